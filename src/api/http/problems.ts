import { STATUS_CODES } from "node:http";
import type { ErrorCode } from "../../core/values/errors.ts";
import { Refusal, errorCodes } from "../../core/values/errors.ts";
import { rateLimitHeaders } from "./rateLimitHeaders.ts";

/** What a failed request is answered with. `fault`: for the log, when it is ours, or the storage's. */
export type Problem = {
  status: number;
  error: string;
  fault: string | null;
  headers?: Readonly<Record<string, string>>;
  /** Seconds. */
  retryAfter?: number;
};

/** The body of a refusal. Paths of accounts have a shape of their own. */
export const problemBody = (path: string, { status, error }: Problem): Record<string, string> =>
  isAccountPath(path) ? { code: (STATUS_CODES[status] ?? String(status)).toLowerCase().replaceAll(" ", "-"), message: error } : { error };

/** Whether a path is one of those that manage accounts. */
export const isAccountPath = (path: string): boolean => /^\/v2\/(svc|qstash|admin)(\/|$)/i.test(path);

/** Turns whatever was thrown into an answer. Only a `Refusal` and the HTTP server's own refusals tell the caller why. */
export function toProblem(thrown: unknown, maxBytes: number): Problem {
  if (thrown instanceof Refusal) {
    const { code, message, retryAfter } = thrown;
    // Public clients take any 429 with the allowance of a day for the end of that.
    const dayLimit = code === "storage-quota-exceeded" ? undefined : thrown.remainingQuota;
    return {
      status: errorCodes[code].status,
      error: message,
      fault: readCause(thrown),
      ...(dayLimit && { headers: rateLimitHeaders(dayLimit) }),
      ...(retryAfter !== undefined && { retryAfter }),
    };
  }
  const code = readTextProperty(thrown, "code");
  if (code === "FST_ERR_CTP_BODY_TOO_LARGE") {
    return {
      status: errorCodes["too-large"].status,
      error: `body: larger than ${maxBytes} bytes, which is the limit of this request`,
      fault: null,
    };
  }
  const known = serverProblems[code];
  if (known) return { status: errorCodes[known.code].status, error: known.error, fault: null };
  const status = typeof thrown === "object" && thrown !== null && "statusCode" in thrown ? Number(thrown.statusCode) : 500;
  if (status >= 400 && status < 500)
    return { status, error: readTextProperty(thrown, "message") || "the request is malformed", fault: null };
  const fault = thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown);
  return { status: 500, error: "internal error: the server failed to handle this request; its log says why", fault };
}

/** Why the storage is away is not for the caller, and whoever runs the server must know: a full disk and a dead database look the same from outside. */
export const readCause = ({ cause }: Refusal): string | null => (cause instanceof Error ? cause.message : null);

const headersTooLarge = { code: "headers-too-large", error: "headers: the request line and the headers are larger than 64 KiB" } as const;

/** What the HTTP server refuses by itself, before a route is asked. */
const serverProblems: Readonly<Record<string, { code: ErrorCode; error: string }>> = {
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: { code: "invalid", error: "body: not as long as Content-Length says" },
  HPE_HEADER_OVERFLOW: headersTooLarge,
  HPE_CHUNK_EXTENSIONS_OVERFLOW: { code: "too-large", error: "body: its chunks have too many extensions" },
  ERR_HTTP_REQUEST_TIMEOUT: { code: "request-timeout", error: "request: it did not arrive in time" },
};

/** The same for bytes that are no HTTP request at all. */
export function toParseProblem(error: Error): Problem {
  const known = serverProblems[readTextProperty(error, "code")];
  if (known) return { status: errorCodes[known.code].status, error: known.error, fault: null };
  const reason = readTextProperty(error, "reason");
  return { status: 400, error: `request: not valid HTTP${reason && `: ${reason}`}`, fault: null };
}

const readTextProperty = (thrown: unknown, key: "code" | "message" | "reason"): string => {
  const value: unknown = typeof thrown === "object" && thrown !== null ? Reflect.get(thrown, key) : undefined;
  return typeof value === "string" ? value : "";
};
