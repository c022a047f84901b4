/**
 * Every way in which a request can be refused: a code for programs, the HTTP status it is answered with.
 * What is not in this table is our own fault, and is answered with 500.
 */
export const errorCodes = {
  invalid: { status: 400, meaning: "something in the request is malformed" },
  unauthorized: { status: 401, meaning: "the token is missing or wrong" },
  forbidden: { status: 403, meaning: "the token may not do this" },
  "not-found": { status: 404, meaning: "there is no such thing in this account" },
  "method-not-allowed": { status: 405, meaning: "the path exists, with another method" },
  conflict: { status: 409, meaning: "it would do harm now" },
  "request-timeout": { status: 408, meaning: "the request did not arrive in time" },
  "limit-exceeded": { status: 412, meaning: "a limit of the account does not allow it" },
  "step-refused": { status: 412, meaning: "a step that a workflow run can never take; its client gives up the run" },
  "too-large": { status: 413, meaning: "the body is larger than the limit" },
  "day-limit-exceeded": { status: 429, meaning: "the requests of the day are used up" },
  "storage-quota-exceeded": { status: 429, meaning: "the account stores more than its quota; retry when it stores less" },
  "too-many-requests": { status: 429, meaning: "more requests in a second than the account may make" },
  "too-many-failures": {
    status: 429,
    meaning: "too many wrong tokens or passwords, or requests without a valid token, came from the same client, or for the same user name",
  },
  "headers-too-large": { status: 431, meaning: "the request line and headers are larger than the limit" },
  unavailable: { status: 503, meaning: "the storage cannot be reached" },
  busy: { status: 503, meaning: "the server has all it can hold under way; ask again" },
  stopping: { status: 503, meaning: "the server is stopping; ask again" },
} as const;

export type ErrorCode = keyof typeof errorCodes;

/** How much of a limit is left, until when; that is a time in unix milliseconds. `warning`: a lower limit is passed. */
export type RemainingQuota = { limit: number; remaining: number; resetAt: number; warning?: string };

/** When asking again may help. */
type RetryHints = { remainingQuota?: RemainingQuota | undefined; retryAfter?: number | undefined };

/** A decision has to see more than its batch has loaded. It changes nothing, and is asked again in a batch of its own. */
export class RetryInNextBatch extends Error {}

/** The caller's fault, in words for the caller. Anything else that is thrown is a fault of ours. */
export class Refusal extends Error {
  readonly code: ErrorCode;
  /** What is left where time brings it back. */
  readonly remainingQuota: RemainingQuota | undefined;
  /** In so many seconds it may be different. */
  readonly retryAfter: number | undefined;
  constructor(code: ErrorCode, message: string, { remainingQuota, retryAfter }: RetryHints = {}) {
    // Nobody reads where it came from. To note that takes 7 µs and 650 bytes, and a batch may have thousands of them.
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    super(message);
    Error.stackTraceLimit = stackTraceLimit;
    this.retryAfter = retryAfter;
    this.name = "Refusal";
    this.code = code;
    this.remainingQuota = remainingQuota;
  }
}

/** What an action on many did not do, and why. */
export type NotDone = { id: string; reason: string };

/** The member `failed` of the answer to an action on many; nothing if all was done. */
export const toFailedMember = (failed: readonly NotDone[]): { failed?: NotDone[] } => (failed.length === 0 ? {} : { failed: [...failed] });

/** How many were cancelled. `failed`: those that were not, and why; absent if there are none. */
export type Cancelled = { cancelled: number; failed?: NotDone[] };
