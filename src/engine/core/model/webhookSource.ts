import type { AccountId, Bytes, HeaderList, Millis } from "../values/basics.ts";

/**
 * A URL through which one sender sends webhooks. Its calls are published to `destination` with `headers` as
 * settings.
 */
export type WebhookSource = {
  account: AccountId;
  id: string;
  name: string;
  /** SHA-256 in hex of the secret part of the URL. */
  secretHash: string;
  destination: string;
  headers: HeaderList;
  /**
   * How calls are verified, in the form that `operations/sources/schemes` reads. Null means that they are not
   * verified.
   */
  verification: unknown;
  /** Whether calls with the same event id of the sender are accepted only once. */
  deduplicate: boolean;
  paused: boolean;
  /** Whether rejected calls are kept whole for a day. */
  keepsRejected?: boolean;
  /** The rejected calls that are kept whole, the oldest first: their numbers, bytes and ends. */
  keptCalls?: readonly { number: number; size: number; until: Millis }[];
  createdAt: Millis;
  /**
   * The number of calls that were ever rejected. `kept` is the number of rejections that were ever kept. The
   * next kept rejection gets this number.
   */
  rejected: number;
  kept: number;
  /** The time until which the kept rejections use up the allowed rate: see `mayKeepRejection`. */
  keptUntil: Millis;
  /** When a call was last accepted. It is written at most once a minute. */
  acceptedAt: Millis | null;
  /** When a rejected call was last kept. Absent if none was. */
  rejectedAt?: Millis;
};

/** The values that an own signature of a sender (the scheme `hmac`) has where the owner gives none. */
export const hmacDefaults = {
  algorithm: "sha256",
  encoding: "hex",
  prefix: "",
  signed: "{body}",
  timestamp: { unit: "seconds", toleranceSeconds: 300 },
} as const;

/** A rejected call to a source. `id` is `<source>/<place>`. The oldest place is reused. */
export type Rejection = {
  account: AccountId;
  id: string;
  time: Millis;
  /** The number of the rejection, counted from the first one that its source kept. */
  number: number;
  /** The number of calls between the previous kept rejection and this one that were rejected and not kept. */
  others: number;
  reason: string;
  method: string;
  headers: HeaderList;
  callerIp: string | null;
  /** The number of bytes of the body as it arrived; `body` is cut. */
  size: number;
  body: Bytes;
  /** The headers are cut. */
  cut?: true;
};
