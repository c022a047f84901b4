import type { Remedy } from "./remedy.ts";

/**
 * Every way in which a request can fail: a code for programs, the HTTP status, and the meaning. The code is
 * in the response. A thrown error that is not a `Refusal` is a fault of the server, with the code `internal`.
 */
export const errorCodes = {
  invalid: { status: 400, meaning: "the request is malformed" },
  unauthorized: { status: 401, meaning: "the token is missing or wrong" },
  forbidden: { status: 403, meaning: "the token does not allow this request" },
  "not-found": { status: 404, meaning: "the object does not exist in this account" },
  "method-not-allowed": { status: 405, meaning: "the path does not support this method" },
  conflict: { status: 409, meaning: "the current state does not allow the request" },
  "attempt-ended": {
    status: 409,
    meaning: "the attempt has ended in another way, so its outcome can no longer be reported",
  },
  "attempt-reported": { status: 409, meaning: "another outcome of this attempt was reported before" },
  "attempt-running": {
    status: 409,
    meaning: "the server has not stored yet that the attempt is held; retry soon",
  },
  "request-timeout": { status: 408, meaning: "the request did not arrive in time" },
  "limit-exceeded": { status: 412, meaning: "the request exceeds a limit of the account" },
  "step-refused": {
    status: 412,
    meaning: "the workflow run can never accept this step, so the workflow client gives up the run",
  },
  "too-large": { status: 413, meaning: "the body is larger than the limit" },
  "day-limit-exceeded": { status: 429, meaning: "the account has used up its requests for the day" },
  "storage-quota-exceeded": {
    status: 429,
    meaning: "the account exceeds its storage quota; retry when it stores less",
  },
  "too-many-requests": { status: 429, meaning: "the account exceeds its limit of requests per second" },
  "too-many-failures": {
    status: 429,
    meaning:
      "too many wrong tokens or passwords, or requests without a valid token, " +
      "from one client or for one user name",
  },
  "headers-too-large": { status: 431, meaning: "the request line and headers are larger than the limit" },
  internal: { status: 500, meaning: "the server has a fault; its log says which" },
  unavailable: {
    status: 503,
    meaning: "the storage is unavailable, or the webhook source accepts no calls now, so nothing was stored",
  },
  "outcome-unknown": {
    status: 503,
    meaning: "the storage is unavailable, and the request may or may not have been stored",
  },
  "too-slow": {
    status: 503,
    meaning: "the request took too long, although the storage shows no failure",
  },
  "disk-low": {
    status: 503,
    meaning: "the disk of the server is almost full; nothing new is accepted until there is room",
  },
  busy: { status: 503, meaning: "the server is at capacity; retry later" },
  stopping: { status: 503, meaning: "the server is stopping; retry later" },
} as const;

/** A code for programs that says why a request failed. */
export type ErrorCode = keyof typeof errorCodes;

/**
 * How much of a limit remains. `resetAt` is the Unix time in milliseconds at which the limit resets.
 * `warning` is present if a lower limit has been exceeded.
 */
export type RemainingQuota = {
  limit: number;
  remaining: number;
  resetAt: number;
  warning?: { message: string; remedy: Remedy | undefined };
};

/** The remedy for a refusal, and hints about when a retry of the request may succeed. */
type Hints = {
  remedy?: Remedy | undefined;
  remainingQuota?: RemainingQuota | undefined;
  retryAfter?: number | undefined;
};

/** A refusal as plain data. */
export type Refused = Omit<Hints, "retryAfter"> & { refused: ErrorCode; message: string };

/**
 * An error that is the caller's fault, with a message for the caller. Any other thrown error is a fault of
 * the server. The API adds the command or request of the remedy to the message.
 */
export class Refusal extends Error {
  readonly code: ErrorCode;
  readonly remedy: Remedy | undefined;
  /** The remaining amount of a limit that resets with time. */
  readonly remainingQuota: RemainingQuota | undefined;
  /** The number of seconds after which a retry may succeed. */
  readonly retryAfter: number | undefined;
  constructor(code: ErrorCode, message: string, { remedy, remainingQuota, retryAfter }: Hints = {}) {
    // The stack of a refusal is never read. Recording it takes 7 µs and 650 bytes, and a batch may have
    // thousands of refusals.
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    super(message);
    Error.stackTraceLimit = stackTraceLimit;
    this.retryAfter = retryAfter;
    this.name = "Refusal";
    this.code = code;
    this.remedy = remedy;
    this.remainingQuota = remainingQuota;
  }
}

/** Returns the error for a refusal that is plain data. */
export const toRefusal = ({ refused, message, ...hints }: Refused): Refusal =>
  new Refusal(refused, message, hints);

/** Throws `Refusal` if a check has returned one. */
export function throwIfRefused(refused: Refused | null | undefined): void {
  if (refused) throw toRefusal(refused);
}

const unavailableTexts = {
  read: "retry later",
  notStored: "nothing was stored; retry later",
  unknown:
    "the request may or may not have been stored; check before you retry; " +
    "a repeat with the same deduplication id creates no second message",
  outdated: "the tables belong to another server version; nothing was stored; retry later",
} as const;

/** Returns the refusal of a request while the storage is unavailable. The cause is for the log only. */
export function makeUnavailable(outcome: keyof typeof unavailableTexts, cause?: Error): Refusal {
  const code = outcome === "unknown" ? "outcome-unknown" : "unavailable";
  const refusal = new Refusal(code, `storage unavailable: ${unavailableTexts[outcome]}`);
  refusal.cause = cause;
  return refusal;
}

/** Reports whether a request was refused because the storage is unavailable, whether or not it was stored. */
export const isUnavailable = (error: unknown): boolean =>
  error instanceof Refusal && (error.code === "unavailable" || error.code === "outcome-unknown");

/** An item that an action on many items did not process, and the reason. */
export type NotDone = { id: string; reason: string };

/**
 * Returns the member `failed` for the response to an action on many items, or no member if all were
 * processed.
 */
export const toFailedMember = (failed: readonly NotDone[]): { failed?: NotDone[] } =>
  failed.length === 0 ? {} : { failed: [...failed] };

/** The number of cancelled items. `failed` lists the others with the reasons; absent if there are none. */
export type Cancelled = { cancelled: number; failed?: NotDone[] };
