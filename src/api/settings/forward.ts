import { brandNames } from "../../core/values/brand.ts";
import { Refusal } from "../../core/values/errors.ts";
import { limits } from "../../core/values/limits.ts";
import type { HeaderList } from "../../core/model/message.ts";
import { canonicalName } from "../../core/values/headers.ts";
import type { Proof } from "../auth/bearer.ts";
import { parseBrandedName } from "../http/brand.ts";
import { parsePassword } from "../auth/token.ts";

/** Belongs to one connection, or is made anew for each delivery. Never forwarded, however it was given. */
const connectionHeaders = [
  ...["host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer", "expect"],
  ...["http2-settings", "proxy-connection", "proxy-authenticate", "proxy-authorization"],
];

/** What only the service may say of a delivery, under either brand. */
const serviceHeaders = Object.values(brandNames).flatMap(({ prefix }) =>
  [
    ...["signature", "message-id", "retried", "region", "caller-ip", "topic-name", "schedule-id"],
    ...["workflow-runid", "workflow-createdat"],
  ].map((name) => `${prefix.toLowerCase()}-${name}`),
);

const neverForwarded: ReadonlySet<string> = new Set([...connectionHeaders, ...serviceHeaders]);

/**
 * What proxies in front of this server add, or are shown by the sender to be let through: it tells of the way to us. But by some headers whose names
 * begin in the same way, the companies that run them sign webhooks of their own.
 */
const proxyHeaders = new RegExp(
  `^(${[
    ...["x-forwarded(-.*)?", "forwarded", "via", "x-real-ip", "true-client-ip", "x-client-ip", "x-amzn-trace-id", "cdn-loop"],
    ...["cf-(?!webhook-auth$).*", "x-vercel-(?!signature$).*", "fly-.*", "render-proxy-ttl"],
  ].join("|")})$`,
);

const isToken = (text: string): boolean => /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(text);
// A tab, and everything of latin 1 that is no control character (RFC 9110, 5.5).
const isValue = (text: string): boolean => /^[\t\x20-\x7e\x80-\xff]*$/.test(text);

/** A header that was given to be delivered. Throws `Refusal` for what HTTP cannot carry; `field` is named in it. */
export function readForwardedHeader(field: string, name: string, value: string): readonly [name: string, value: string] | null {
  if (!isToken(name)) throw new Refusal("invalid", `${field.slice(0, 200)}: not the name of an HTTP header`);
  if (name.length > limits.nameLength)
    throw new Refusal("invalid", `${field.slice(0, 200)}: the name of the header is longer than ${limits.nameLength} characters`);
  if (!isValue(value)) throw new Refusal("invalid", `${field.slice(0, 200)}: the value has characters that an HTTP header cannot carry`);
  return neverForwarded.has(name) ? null : [canonicalName(name), value];
}

/**
 * The headers of a request that go along with `header-forward`: the sender's own. None that has our token in it does, nor
 * `Authorization` where that is how the request was let in. `Cookie` does: the sender addresses it to the destination, and this service sets and reads none.
 */
export function listSenderHeaders(rawHeaders: readonly string[], proof: Pick<Proof, "by" | "token"> | null): HeaderList {
  const headers: [string, string][] = [];
  const named = listConnectionHeaders(rawHeaders);
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const name = (rawHeaders[at] ?? "").toLowerCase();
    if (neverForwarded.has(name) || named.has(name) || parseBrandedName(name) || proxyHeaders.test(name)) continue;
    if (name === "authorization" && proof?.by === "header") continue;
    const value = rawHeaders[at + 1] ?? "";
    if (!proof || !containsToken(value, proof.token)) headers.push([canonicalName(name), value]);
  }
  return headers;
}

/** A text that is still encoded after being decoded this many times is taken to hide something, and so is one with this many readings. */
const maxEncodings = 5;
const maxDecodings = 20_000;

/** Passwords that the server makes have 28 characters. A short one may be in other text by chance. */
const shortestPassword = 24;

/**
 * Reports whether a text contains the token, or the password in the token: as it is, without its padding, in the alphabet of URLs, or encoded up
 * to five times, each time percent-encoded, in hex, or in base64 with other text as in `Basic`. True as well for a text that is encoded more often.
 */
export function containsToken(value: string, token: string): boolean {
  const unpaddedToken = toStandardBase64(token).replace(/=+$/, "");
  const password = parsePassword(token);
  const secrets = password === null || password.length < shortestPassword ? [unpaddedToken] : [unpaddedToken, toStandardBase64(password)];
  const shortest = Math.min(...secrets.map(({ length }) => length));
  let texts = [value];
  for (let times = 0; times <= maxEncodings; times++) {
    // Decoding makes a text shorter.
    texts = texts.filter(({ length }) => length >= shortest);
    if (texts.length === 0) return false;
    if (texts.some((text) => secrets.some((secret) => toStandardBase64(text).includes(secret)))) return true;
    texts = texts.flatMap(listDecodings);
    if (texts.length > maxDecodings) return true;
  }
  return texts.length > 0;
}

/** Returns what a text may mean: decoded as a whole, and each part that is long enough to hide a secret in base64 or hex. */
function listDecodings(text: string): string[] {
  const decoded = decodePercent(text);
  const parts = (text.match(/[\w+/-]{20,}/g) ?? []).flatMap(decodeBase64);
  const hex = (text.match(/[0-9a-f]{40,}/gi) ?? []).flatMap((part) =>
    [part, part.slice(1)].map((one) => Buffer.from(one, "hex").toString("latin1")),
  );
  return [...(decoded === text ? [] : [decoded]), ...parts, ...hex];
}

/** Other text may stand before the base64 without a gap, so each beginning is tried. */
const decodeBase64 = (part: string): string[] => [0, 1, 2, 3].map((from) => Buffer.from(part.slice(from), "base64").toString("latin1"));

/** Base64 in its usual alphabet. */
const toStandardBase64 = (text: string): string => text.replaceAll("-", "+").replaceAll("_", "/");

/** A percent sign that is encoded again and again is decoded at once. */
const decodePercent = (text: string): string =>
  text.includes("%")
    ? text.replaceAll(/%(?:25)*([0-9a-f]{2})/gi, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)))
    : text;

/** Headers that the Connection header declares to be of one connection only (RFC 9110, 7.6.1). */
function listConnectionHeaders(rawHeaders: readonly string[]): ReadonlySet<string> {
  const named = new Set<string>();
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    if (rawHeaders[at]?.toLowerCase() !== "connection") continue;
    for (const name of (rawHeaders[at + 1] ?? "").toLowerCase().split(",")) named.add(name.trim());
  }
  return named;
}
