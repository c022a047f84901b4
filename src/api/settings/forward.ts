import { memoize } from "../../engine/core/caches/memoize.ts";
import type { HeaderList } from "../../engine/core/values/basics.ts";
import { brandNames } from "../../engine/core/values/brand.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import { canonicalName, connectionHeaders } from "../../engine/core/values/headers.ts";
import { limits } from "../../engine/core/values/limits.ts";
import type { Proof } from "../auth/bearer.ts";
import { withoutConsoleCookies } from "../auth/consoleRequest.ts";
import { parseBrandedName } from "../http/brand.ts";
import { parsePassword } from "../auth/token.ts";

/** Headers under both brands that only this service may set on a delivery. */
const serviceHeaders = Object.values(brandNames).flatMap(({ prefix }) =>
  [
    "signature",
    "message-id",
    "retried",
    "region",
    "caller-ip",
    "topic-name",
    "schedule-id",
    "workflow-runid",
    "workflow-createdat",
  ].map((name) => `${prefix.toLowerCase()}-${name}`),
);

const neverForwarded: ReadonlySet<string> = new Set([...connectionHeaders, ...serviceHeaders]);

/**
 * Headers that proxies in front of this server add, or that a sender shows to such a proxy. They describe the
 * path to this server. `cf-webhook-auth` and `x-vercel-signature` are not among them: their owners sign
 * webhooks with them.
 */
const proxyHeaders = new RegExp(
  `^(${[
    "x-forwarded(-.*)?",
    "forwarded",
    "via",
    "x-real-ip",
    "true-client-ip",
    "x-client-ip",
    "x-amzn-trace-id",
    "cdn-loop",
    "cf-(?!webhook-auth$).*",
    "x-vercel-(?!signature$).*",
    "fly-.*",
    "render-proxy-ttl",
  ].join("|")})$`,
);

const isToken = (text: string): boolean => /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(text);
// A tab, and all of Latin-1 except control characters (RFC 9110, 5.5).
const isValue = (text: string): boolean => /^[\t\x20-\x7e\x80-\xff]*$/.test(text);

/**
 * Returns a header that the caller wants delivered, with its name in canonical form. Returns null for a
 * header that is never forwarded. Throws `Refusal`, which names `field`, for a header that HTTP cannot carry.
 */
export function readForwardedHeader(
  field: string,
  name: string,
  value: string,
): readonly [name: string, value: string] | null {
  if (!isToken(name)) throw new Refusal("invalid", `${field.slice(0, 200)}: not the name of an HTTP header`);
  if (name.length > limits.nameLength)
    throw new Refusal(
      "invalid",
      `${field.slice(0, 200)}: the name of the header is longer than ${limits.nameLength} characters`,
    );
  if (!isValue(value))
    throw new Refusal(
      "invalid",
      `${field.slice(0, 200)}: the value contains characters that an HTTP header cannot carry; remove them`,
    );
  return neverForwarded.has(name) ? null : [canonicalName(name), value];
}

/**
 * Returns the headers of a request that `header-forward` delivers. A header that contains the token of this
 * service is left out, and so is `Authorization` if it authenticated the request. `Cookie` is delivered
 * without the cookies of the console: the sender addresses the others to the destination. In a session of the
 * console, a browser adds the cookies of this host, and none is delivered.
 */
export function listSenderHeaders(
  rawHeaders: readonly string[],
  proof: Pick<Proof, "by" | "token" | "session"> | null,
): HeaderList {
  const headers: [string, string][] = [];
  const named = listConnectionHeaders(rawHeaders);
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const name = (rawHeaders[at] ?? "").toLowerCase();
    if (neverForwarded.has(name) || named.has(name) || parseBrandedName(name) || proxyHeaders.test(name))
      continue;
    if (name === "authorization" && proof?.by === "header") continue;
    if (name === "cookie" && proof?.session) continue;
    const original = rawHeaders[at + 1] ?? "";
    const value = name === "cookie" ? withoutConsoleCookies(original) : original;
    if (value === null) continue;
    if (!proof || !containsToken(value, proof.token)) headers.push([canonicalName(name), value]);
  }
  return headers;
}

/**
 * Limits of `containsToken`. A string that is still encoded after `maxEncodings` rounds, or that has more
 * than `maxDecodings` readings, is assumed to hide the token.
 */
const maxEncodings = 5;
const maxDecodings = 20_000;

/**
 * Shortest password that is searched for by itself, in characters. The server's own passwords have 28; a
 * shorter one may occur in other text by chance.
 */
const shortestPassword = 24;

/**
 * Reports whether a string contains the token or the password in the token. It finds them as they are,
 * without padding, in the alphabet of URLs, or encoded up to five times. Each encoding may be
 * percent-encoding, hex, or base64 together with other text, as in `Basic`. Returns true as well for a string
 * that is encoded more often.
 */
export function containsToken(value: string, token: string): boolean {
  const { secrets, shortest } = listSecrets(token);
  // Most values are shorter than a token.
  if (value.length < shortest) return false;
  let texts = [value];
  for (let times = 0; times <= maxEncodings; times++) {
    // Decoding shortens a string, so one that is already too short cannot contain a secret.
    texts = texts.filter(({ length }) => length >= shortest);
    if (texts.length === 0) return false;
    if (texts.some((text) => secrets.some((secret) => toStandardBase64(text).includes(secret)))) return true;
    texts = texts.flatMap(listDecodings);
    if (texts.length > maxDecodings) return true;
  }
  return texts.length > 0;
}

/**
 * Returns the secrets that a token contains, and the length of the shortest one. Remembers only the
 * last token.
 */
const listSecrets = memoize((token: string): { secrets: string[]; shortest: number } => {
  const unpaddedToken = toStandardBase64(token).replace(/=+$/, "");
  const password = parsePassword(token);
  const secrets =
    password === null || password.length < shortestPassword
      ? [unpaddedToken]
      : [unpaddedToken, toStandardBase64(password)];
  return { secrets, shortest: Math.min(...secrets.map(({ length }) => length)) };
}, 1);

/**
 * Returns the possible decodings of a string: the whole text percent-decoded, and each part that is long
 * enough to hide a secret decoded from base64 or hex.
 */
function listDecodings(text: string): string[] {
  const decoded = decodePercent(text);
  const parts = (text.match(/[\w+/-]{20,}/g) ?? []).flatMap(decodeBase64);
  const hex = (text.match(/[0-9a-f]{40,}/gi) ?? []).flatMap((part) =>
    [part, part.slice(1)].map((one) => Buffer.from(one, "hex").toString("latin1")),
  );
  return [...(decoded === text ? [] : [decoded]), ...parts, ...hex];
}

/**
 * Decodes base64 from each of its first four characters on, because other text may precede it without a gap.
 */
const decodeBase64 = (part: string): string[] =>
  [0, 1, 2, 3].map((from) => Buffer.from(part.slice(from), "base64").toString("latin1"));

/** Returns base64 in its usual alphabet instead of the alphabet of URLs. */
const toStandardBase64 = (text: string): string => text.replaceAll("-", "+").replaceAll("_", "/");

/** Percent-decodes a string. A percent sign that was encoded several times is decoded in one step. */
const decodePercent = (text: string): string =>
  text.includes("%")
    ? text.replaceAll(/%(?:25)*([0-9a-f]{2})/gi, (_, code: string) =>
        String.fromCharCode(Number.parseInt(code, 16)),
      )
    : text;

/** Returns the names of the headers that the Connection header limits to one connection (RFC 9110, 7.6.1). */
function listConnectionHeaders(rawHeaders: readonly string[]): ReadonlySet<string> {
  const named = new Set<string>();
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    if (rawHeaders[at]?.toLowerCase() !== "connection") continue;
    for (const name of (rawHeaders[at + 1] ?? "").toLowerCase().split(",")) named.add(name.trim());
  }
  return named;
}
