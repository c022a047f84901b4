import type { CarriedHistory } from "./attempt.ts";
import type { StoredMessage } from "./message.ts";

/** One call to a destination, leased to this node. */
export type Delivery = {
  message: StoredMessage;
  attempt: number;
  /** The key of the signature as a JWT. Null if the call has no such signature. */
  signingKey: string | null;
  /** Present if the call is also signed by the rules of Standard Webhooks. */
  standardKeys?: readonly string[];
  /** Sent instead of the body of the message. */
  history?: CarriedHistory;
  /** Why the call must not be made. Absent if it may be made. */
  unsendable?: string;
  /** Present if the outcome must be stored at once, because something waits for it. */
  settlesAtOnce?: true;
};
