import { STATUS_CODES } from "node:http";
import type { Brand } from "../../engine/core/values/basics.ts";
import type { ErrorCode } from "../../engine/core/values/errors.ts";
import { Refusal, errorCodes } from "../../engine/core/values/errors.ts";
import { formatRefusal } from "./remedies.ts";
import type { Target } from "./target.ts";
import { readShownBrand } from "./target.ts";
import { rateLimitHeaders } from "./rateLimitHeaders.ts";

/**
 * The response to a failed request. `fault` is the cause for the log, if the server or the storage failed.
 */
export type Problem = {
  status: number;
  error: string;
  code: ErrorCode;
  fault: string | null;
  headers?: Readonly<Record<string, string>>;
  /** In seconds. */
  retryAfter?: number;
};

/** A request that failed, and the brand of requests that show none. */
export type FailedRequest = { target: Target; rawHeaders: readonly string[]; brand?: Brand | undefined };

/**
 * Returns the body of a refusal. Account endpoints have their own form: their `code` is the name of the
 * status, as their clients expect, and `errorCode` is what `code` is elsewhere. Applications compare the
 * bodies of the compatible API, so these do not link to the documentation.
 */
export function problemBody(
  { target, rawHeaders, brand }: FailedRequest,
  { status, error, code }: Problem,
): Record<string, string> {
  const docs = readShownBrand(target, rawHeaders, brand) === "svc" && { docs: linkErrorPage(code) };
  return isAccountPath(target.path)
    ? { code: formatStatusName(status), message: error, errorCode: code, ...docs }
    : { error, code, ...docs };
}

/** Returns the path of the documentation of a code on this server. */
export const linkErrorPage = (code: ErrorCode): string => `/docs/errors#${code}`;

/** Returns the name of a status as the account endpoints write it, such as `bad-request`. */
export const formatStatusName = (status: number): string =>
  (STATUS_CODES[status] ?? String(status)).toLowerCase().replaceAll(" ", "-");

/** Reports whether a path belongs to the account endpoints. */
export const isAccountPath = (path: string): boolean => /^\/v2\/(svc|qstash|admin)(\/|$)/i.test(path);

/**
 * Converts a thrown value into a response. Only a `Refusal` and the HTTP server's own refusals tell the
 * caller the reason. `maxBytes`: the limit of the body, for an error of the framework.
 */
export function toProblem(thrown: unknown, maxBytes?: number): Problem {
  if (thrown instanceof Refusal) {
    const { code, retryAfter } = thrown;
    // Public clients treat any 429 with these headers as the end of the daily limit.
    const dayLimit = code === "storage-quota-exceeded" ? undefined : thrown.remainingQuota;
    return {
      status: errorCodes[code].status,
      error: formatRefusal(thrown),
      code,
      fault: readCause(thrown),
      ...(dayLimit && { headers: rateLimitHeaders(dayLimit) }),
      ...(retryAfter !== undefined && { retryAfter }),
    };
  }
  const code = readTextProperty(thrown, "code");
  if (code === "FST_ERR_CTP_BODY_TOO_LARGE")
    return makeProblem({ code: "too-large", error: `body: exceeds the limit of ${maxBytes} bytes` });
  const known = serverProblems[code];
  if (known) return makeProblem(known);
  const status =
    typeof thrown === "object" && thrown !== null && "statusCode" in thrown ? Number(thrown.statusCode) : 500;
  if (status >= 400 && status < 500) {
    const error = readTextProperty(thrown, "message") || "the request is malformed";
    return { status, error, code: findCode(status), fault: null };
  }
  const fault = thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown);
  return {
    ...makeProblem({
      code: "internal",
      error: "internal error: the server could not handle this request; see its log",
    }),
    fault,
  };
}

/**
 * Returns the cause of a refusal, for the log. Callers do not see why the storage is unavailable, but the
 * operator must know. A full disk and a database that is down look the same from outside.
 */
export const readCause = ({ cause }: Refusal): string | null =>
  cause instanceof Error ? cause.message : null;

type KnownProblem = { code: ErrorCode; error: string };

const makeProblem = ({ code, error }: KnownProblem): Problem => ({
  status: errorCodes[code].status,
  error,
  code,
  fault: null,
});

/** Returns the code of a status that the framework chose. */
const findCode = (status: number): ErrorCode =>
  (Object.keys(errorCodes) as ErrorCode[]).find((code) => errorCodes[code].status === status) ?? "invalid";

const headersTooLarge = {
  code: "headers-too-large",
  error: "headers: the request line and the headers exceed the limit of 64 KiB",
} as const;

/** Requests that the HTTP server itself refuses before a route sees them. */
const serverProblems: Readonly<Record<string, KnownProblem>> = {
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: {
    code: "invalid",
    error: "body: its length differs from Content-Length",
  },
  HPE_HEADER_OVERFLOW: headersTooLarge,
  HPE_CHUNK_EXTENSIONS_OVERFLOW: { code: "too-large", error: "body: the chunks have too many extensions" },
  ERR_HTTP_REQUEST_TIMEOUT: { code: "request-timeout", error: "request: it did not arrive in time" },
};

/** Returns the response to bytes that are not an HTTP request. */
export function toParseProblem(error: Error): Problem {
  const known = serverProblems[readTextProperty(error, "code")];
  if (known) return makeProblem(known);
  const reason = readTextProperty(error, "reason");
  return makeProblem({ code: "invalid", error: `request: not valid HTTP${reason && `: ${reason}`}` });
}

const readTextProperty = (thrown: unknown, key: "code" | "message" | "reason"): string => {
  const value: unknown = typeof thrown === "object" && thrown !== null ? Reflect.get(thrown, key) : undefined;
  return typeof value === "string" ? value : "";
};
