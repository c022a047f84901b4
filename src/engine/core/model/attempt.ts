import type { AccountId, Bytes, HeaderList, MessageId, Millis } from "../values/basics.ts";

/**
 * The history of a run up to one of its steps, as it is sent. The bytes of `parts` follow one another. They
 * are shared with other deliveries of the run and must not be changed.
 */
export type CarriedHistory = {
  parts: readonly Bytes[];
  byteLength: number;
  /** Returns the SHA-256 of the bytes in base64url, without padding. */
  hash(): string;
};

/** When an attempt began, and how long its parts took, in milliseconds. */
export type AttemptTiming = {
  startedAt: Millis;
  /** The time until a connection was ready and the request began. Null: it did not begin. */
  connect: Millis | null;
  /** The time from the beginning of the request until the response began. Null: no response began. */
  firstByte: Millis | null;
  /** The whole time, until the last byte of the response or until the failure. */
  duration: Millis;
  /** Present if the attempt opened its own connection, and failed or was slow. */
  opening?: OpeningTiming;
};

/**
 * How long the parts of opening a connection took, in milliseconds. `lookup`: the lookup of the name; absent
 * for an address. `tls`: the TLS handshake; absent for plain HTTP.
 */
export type OpeningTiming = { lookup?: Millis; tcp: Millis; tls?: Millis };

/** An attempt that takes longer than this is slow. */
export const slowAttempt: Millis = 1_000;

/** The outcome of one attempt. If there was no response, `status` is null and `error` gives the reason. */
export type Outcome = {
  account: AccountId;
  messageId: MessageId;
  host: string;
  attempt: number;
  status: number | null;
  headers: HeaderList;
  body: Bytes;
  error: string | null;
  /** The time from the first byte sent to the last byte received. */
  took: Millis;
  /** SHA-256 of the body in hex. Present if the log keeps only a part of the body. */
  digest?: string;
  /** The response was not read completely, because its body or its headers exceed the server's limit. */
  cut?: true;
  /**
   * The number of bytes of the body that a dead letter keeps. The rest is for callbacks only. If absent, all
   * bytes are kept.
   */
  keptBytes?: number;
  /** Absent if no request was attempted. */
  timing?: AttemptTiming;
  /** The log keeps the response even if the delivery succeeded. */
  keepsInLog?: true;
  /** Another attempt would have the same outcome, so no retry follows. */
  isFinal?: true;
  /**
   * A reused connection ended without a response. The request may not have arrived, and was not resent:
   * see docs/decisions/0047.
   */
  unanswered?: true;
  /** A puller has received the attempt, and holds it for this time. */
  heldFor?: Millis;
  /**
   * No receiver got the request: no puller waits any more, its connection has ended, or it has given the
   * attempt back.
   */
  isReturned?: true;
};

/** The last response of a destination, or the reason why there was none. */
export type DestinationResponse = Pick<
  Outcome,
  | "status"
  | "headers"
  | "body"
  | "digest"
  | "error"
  | "cut"
  | "keptBytes"
  | "keepsInLog"
  | "isFinal"
  | "unanswered"
  | "timing"
>;

/** The error of an attempt that an operator ended. */
export const endedByOperator = "ended by operator";
