import type { CarriedHistory } from "./attempt.ts";
import type { MessageId } from "../values/basics.ts";
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
  /** The key of the token of the attempt. Present if the call is not made, but pulled. */
  pullKey?: string;
  /**
   * The attempts before this one that the header `Retried` leaves out, because no puller received them, or an
   * operator ended them. Present only if the call is pulled.
   */
  uncounted?: number;
  /** Why the call must not be made. Absent if it may be made. */
  unsendable?: string;
  /** Present if the outcome must be stored at once, because something waits for it. */
  settlesAtOnce?: true;
  /**
   * The message of the call in which an endpoint posted this step. The delivery waits a moment for the
   * response to that call, if this node sends both.
   */
  follows?: MessageId;
};
