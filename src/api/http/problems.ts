import { STATUS_CODES } from "node:http";
import type { ErrorCode } from "../../core/values/errors.ts";
import { Refusal, errorCodes } from "../../core/values/errors.ts";
import { allowanceHeaders } from "./allowanceHeaders.ts";

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
  isOfAccounts(path) ? { code: (STATUS_CODES[status] ?? String(status)).toLowerCase().replaceAll(" ", "-"), message: error } : { error };

/** Whether a path is one of those that manage accounts. */
export const isOfAccounts = (path: string): boolean => /^\/v2\/(svc|qstash|admin)(\/|$)/i.test(path);

/** Turns whatever was thrown into an answer. Only a `Refusal` and the HTTP server's own refusals tell the caller why. */
export function problemOf(thrown: unknown, mostBytes: number): Problem {
  if (thrown instanceof Refusal) {
    const { code, message, retryAfter } = thrown;
    // Public clients take any 429 with the allowance of a day for the end of that.
    const allowance = code === "storage-quota-exceeded" ? undefined : thrown.allowance;
    return {
      ...{ status: errorCodes[code].status, error: message, fault: causeOf(thrown) },
      ...(allowance && { headers: allowanceHeaders(allowance) }),
      ...(retryAfter !== undefined && { retryAfter }),
    };
  }
  const code = textOf(thrown, "code");
  if (code === "FST_ERR_CTP_BODY_TOO_LARGE") {
    return {
      status: errorCodes["too-large"].status,
      error: `body: larger than ${mostBytes} bytes, which is the limit of this request`,
      fault: null,
    };
  }
  const known = ofTheServer[code];
  if (known) return { status: errorCodes[known.code].status, error: known.error, fault: null };
  const status = typeof thrown === "object" && thrown !== null && "statusCode" in thrown ? Number(thrown.statusCode) : 500;
  if (status >= 400 && status < 500) return { status, error: textOf(thrown, "message") || "the request is malformed", fault: null };
  const fault = thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown);
  return { status: 500, error: "internal error: the server failed to handle this request; its log says why", fault };
}

/** Why the storage is away is not for the caller, and whoever runs the server must know: a full disk and a dead database look the same from outside. */
export const causeOf = ({ cause }: Refusal): string | null => (cause instanceof Error ? cause.message : null);

const headersTooLarge = { code: "headers-too-large", error: "headers: the request line and the headers are larger than 64 KiB" } as const;

/** What the HTTP server refuses by itself, before a route is asked. */
const ofTheServer: Readonly<Record<string, { code: ErrorCode; error: string }>> = {
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: { code: "invalid", error: "body: not as long as Content-Length says" },
  HPE_HEADER_OVERFLOW: headersTooLarge,
  HPE_CHUNK_EXTENSIONS_OVERFLOW: { code: "too-large", error: "body: its chunks have too many extensions" },
  ERR_HTTP_REQUEST_TIMEOUT: { code: "request-timeout", error: "request: it did not arrive in time" },
};

/** The same for bytes that are no HTTP request at all. */
export function problemOfBytes(error: Error): Problem {
  const known = ofTheServer[textOf(error, "code")];
  if (known) return { status: errorCodes[known.code].status, error: known.error, fault: null };
  const reason = textOf(error, "reason");
  return { status: 400, error: `request: not valid HTTP${reason && `: ${reason}`}`, fault: null };
}

const textOf = (thrown: unknown, key: "code" | "message" | "reason"): string => {
  const value: unknown = typeof thrown === "object" && thrown !== null ? Reflect.get(thrown, key) : undefined;
  return typeof value === "string" ? value : "";
};
