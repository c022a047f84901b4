import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import { containsToken } from "../settings/forward.ts";
import type { Target } from "../http/target.ts";

/**
 * The log line of a request. It never contains a token, a query, a header or a body. `fault`: why the server
 * or the storage failed.
 */
export type RequestLine = {
  requestId: string;
  method: string;
  path: string;
  status: number;
  ms: number;
  account: AccountId | null;
  fault?: string;
};

/** A counter of requests, for metrics. `ms` is the time of the request. `route` is null if there is none. */
export type RequestCounter = {
  count?(route: { method: string; path: string; access: string } | null, status: number, ms: Millis): void;
};

/**
 * Returns the path as it may be logged. If a part of the path is or may be a secret, `…` replaces the path
 * from there on. Only the scheme and host of a destination are shown, because the rest is often a secret, as
 * in the URL of a webhook. Case and encoding do not matter, because routers accept several spellings and
 * senders mistype. `token` is the token of the request. If the path contains it, nothing of the path is
 * shown.
 */
export function shownPath({ path }: Target, token = ""): string {
  const readable = decodeFully(path);
  if (readable === null || (token !== "" && containsToken(path, token))) return "…";
  const found = secretPrefix.exec(readable);
  const own = tokenPattern.exec(readable);
  if (own && own.index < (found?.index ?? Infinity)) return `${escapeForLog(readable.slice(0, own.index))}…`;
  if (found === null) return path;
  const [match] = found;
  const start = found.index + (match.endsWith("/") ? match.length : 0);
  const before = escapeForLog(readable.slice(0, start));
  const [, scheme, host] = /\/(?:in|hooks)\/$/i.test(match)
    ? []
    : (destination.exec(readable.slice(start)) ?? []);
  if (scheme === undefined || tokenPattern.test(host ?? "")) return `${before}…`;
  return `${before}${scheme}://${escapeForLog(host ?? "")}`;
}

/**
 * The text before a secret. The secret of a source follows `/in/`, and the credentials of a run's webhook
 * follow `/hooks/`. A destination is any URL in the path, or the text where the path of a publish, trigger,
 * enqueue or schedule has its destination.
 */
const secretPrefix = new RegExp(
  [
    String.raw`/(?:in|hooks)/(?=.)`,
    String.raw`/v2/(?:publish|trigger|enqueue/[^/]+)/(?=.)`,
    String.raw`/v2/schedules/(?=[^/]*[^\w/.-]|[^/]+/(?!(?:pause|resume|run)?/?$))`,
    "https?:",
  ].join("|"),
  "is",
);

const destination = /^(https?):[/\\]*(?:[^/?#\\]*@)?(\[[^\]]*\]|[^/@:?#\\]*)/i;

/** The beginning of an account's tokens of any kind. Case matters only here. */
const tokenPattern = /eyJ[\w+/-]{16,}/;

/** How often a string may be percent-encoded and still be decoded here. */
const maxDecoded = 5;

/**
 * Returns a string with all levels of percent-encoding removed, or null if there are more than `maxDecoded`.
 */
function decodeFully(text: string): string | null {
  let readable = text;
  for (let turn = 0; turn < maxDecoded; turn++) {
    const next = readable.replaceAll(/%([0-9a-f]{2})/gi, (_, code: string) =>
      String.fromCharCode(Number.parseInt(code, 16)),
    );
    if (next === readable) return readable;
    readable = next;
  }
  return /%[0-9a-f]{2}/i.test(readable) ? null : readable;
}

/**
 * Returns a decoded text with every character outside printable ASCII encoded, so that it fits on one line.
 */
const escapeForLog = (text: string): string =>
  text.replaceAll(
    /[^\x21-\x7e]/g,
    (odd) => `%${odd.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`,
  );
