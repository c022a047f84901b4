import type { AccountId, Bytes, HeaderList, MessageId, Millis } from "../values/basics.ts";

/** The outcome of one attempt. No response is an outcome too: `status` is null and `error` says why. */
export type Outcome = {
  account: AccountId;
  messageId: MessageId;
  host: string;
  attempt: number;
  status: number | null;
  headers: HeaderList;
  body: Bytes;
  error: string | null;
  /** From the first byte sent to the last received. */
  took: Millis;
  /** SHA-256 of the body in hex, if the log keeps only a part of it. */
  digest?: string;
  /** Not all of the response was read: its body or its headers are longer than the server takes. */
  cut?: true;
  /** Bytes of the body that a dead letter keeps. The rest is for callbacks alone. Absent: all of them. */
  keptBytes?: number;
  /** The log keeps the response even if it is a success. */
  keepsInLog?: true;
  /** Another attempt would have the same outcome. */
  isFinal?: true;
};

/** The last response of a destination, or why there was none. */
export type DestinationResponse = Pick<
  Outcome,
  "status" | "headers" | "body" | "digest" | "error" | "cut" | "keptBytes" | "keepsInLog" | "isFinal"
>;
