import { Refusal } from "../../engine/core/values/errors.ts";
import { limits } from "../../engine/core/values/limits.ts";
import { isName } from "../../engine/core/values/name.ts";
import { parseUrl } from "../../engine/core/values/url.ts";
import type { Brand } from "../../engine/core/values/basics.ts";
import { findTokenBrand, parseBrandedHeader, parseBrandedName, pickBrand } from "./brand.ts";

/**
 * A request target split at its first `?`. It is not decoded, so the unchanged parts keep all their bytes.
 */
export type Target = { path: string; query: string | null };

/**
 * One parameter of a query string, decoded. `writtenName`: its name as the caller wrote it. `hasPlus`: its
 * value was written with a `+`.
 */
export type Parameter = { name: string; value: string; writtenName: string; hasPlus: boolean };

/**
 * A query string split into the service's own parameters and the caller's. The caller's parameters keep their
 * bytes and their order.
 */
export type Query = {
  token: string | null;
  tokenName: string | null;
  settings: Parameter[];
  rest: string | null;
};

/** Splits a request target. A target in absolute form names this server and is read as its path. */
export function splitTarget(raw: string): Target {
  const target = raw.startsWith("/") ? raw : raw.replace(/^https?:\/\/[^/?]*/i, "");
  const mark = target.indexOf("?");
  return mark < 0
    ? { path: target, query: null }
    : { path: target.slice(0, mark), query: target.slice(mark + 1) };
}

/**
 * Takes the token and the settings out of a query string. The rest belongs to the destination or to the
 * route.
 */
export function splitQuery(query: string | null): Query {
  const split: Query = { token: null, tokenName: null, settings: [], rest: query };
  if (query === null) return split;
  const pieces = query.split("&");
  const kept = pieces.filter((piece) => !takeSetting(piece, split));
  if (kept.length < pieces.length) split.rest = kept.join("&") || null;
  return split;
}

/** Reports whether a query string has a setting, with any value. */
export const hasSetting = (query: string | null, setting: string): boolean =>
  query !== null &&
  query.split("&").some((piece) => parseBrandedName(splitParameter(piece).name)?.name === setting);

/**
 * Returns the brand that the headers, the query or the path of a request show, or the fallback. Unlike
 * `splitQuery`, this never throws, so it can read a request that was refused.
 */
export function readShownBrand(
  { path, query }: Target,
  rawHeaders: readonly string[],
  fallback?: Brand,
): Brand {
  const ofPath: Brand[] = /^\/v2\/qstash(\/|$)/i.test(path) ? ["upstash"] : [];
  const ofHeaders = rawHeaders.flatMap((name, at) =>
    at % 2 === 0 ? (parseBrandedHeader(name)?.brand ?? []) : [],
  );
  const ofQuery = (query ?? "").split("&").flatMap((piece) => {
    const { name } = splitParameter(piece);
    return parseBrandedName(name)?.brand ?? findTokenBrand(name) ?? [];
  });
  return pickBrand([...ofPath, ...ofHeaders, ...ofQuery], fallback);
}

/** Returns the name of a parameter, decoded and in lower case, and its value as written. */
function splitParameter(piece: string): { name: string; value: string } {
  const mark = piece.indexOf("=");
  const rawName = mark < 0 ? piece : piece.slice(0, mark);
  const name = (rawName.includes("%") ? (percentDecode(rawName) ?? rawName) : rawName).toLowerCase();
  return { name, value: mark < 0 ? "" : piece.slice(mark + 1) };
}

function takeSetting(piece: string, split: Query): boolean {
  const { name, value } = splitParameter(piece);
  if (findTokenBrand(name)) {
    // A `+` stays a `+`, because it is a base64 character and no token has a space.
    split.token ??= percentDecode(value);
    split.tokenName ??= name;
    return true;
  }
  if (!parseBrandedName(name)) return false;
  split.settings.push({
    name,
    value: decodeField(name, value),
    writtenName: name,
    hasPlus: value.includes("+"),
  });
  return true;
}

/** Returns all parameters of a query string, decoded, in order. Throws `Refusal` if one cannot be decoded. */
export function readParameters(query: string | null): Parameter[] {
  const pieces = (query ?? "").split("&").filter((piece) => piece !== "");
  return pieces.map((piece) => {
    const mark = piece.indexOf("=");
    const rawName = mark < 0 ? piece : piece.slice(0, mark);
    const name = decodeField("query", rawName);
    const value = mark < 0 ? "" : piece.slice(mark + 1);
    return { name, writtenName: name, value: decodeField(name, value), hasPlus: value.includes("+") };
  });
}

/** Decodes a field as clients encode query strings: `+` is a space. */
function decodeField(name: string, text: string): string {
  if (!/[%+]/.test(text)) return text;
  const value = percentDecode(text.replaceAll("+", " "));
  if (value === null)
    throw new Refusal("invalid", `${shorten(name)}: the percent-encoding is malformed or not UTF-8`);
  return value;
}

/** Returns the percent-decoded text, or null if the encoding is malformed or not UTF-8. */
export function percentDecode(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}

/**
 * Returns the destination of a publish: the rest of the path as received, with the caller's part of the
 * query. A path that begins with an encoded scheme is decoded once. `https:/host`, which some proxies make of
 * `https://host`, is repaired.
 */
export function parseDestination(path: string, query: string | null): string {
  const encoded = /^https?%3a/i.test(path);
  const readable = encoded ? percentDecode(path) : path;
  if (readable === null)
    throw new Refusal(
      "invalid",
      "destination: the percent-encoding is malformed; encode the whole URL or none of it",
    );
  const url = readable.replace(/^(https?):\/(?=[^/])/i, "$1://");
  if (query === null) return url;
  return `${url}${url.includes("?") ? "&" : "?"}${query}`;
}

/** Reports whether a destination begins like an http or https URL. */
export const isUrl = (destination: string): boolean => /^https?:\/\//i.test(destination);

/**
 * Returns the name of a queue or a URL group. Throws `Refusal`, which names `field`, if the name is invalid.
 */
export function parseName(field: string, name: string): string {
  if (isName(name)) return name;
  const allowed = `use at most ${limits.nameLength} of A-Z, a-z, 0-9, ".", "_" and "-"`;
  throw new Refusal("invalid", `${field}: ${JSON.stringify(shorten(name))} is not a valid name; ${allowed}`);
}

/** Returns the decoded name of a URL group in a destination, or null if it cannot be a name. */
export function parseGroupName(destination: string): string | null {
  const name = percentDecode(destination);
  return name !== null && isName(name) ? name : null;
}

/**
 * Returns the refusal of an invalid destination. Its status is 404 if the destination could be the name of a
 * group, otherwise 400.
 */
export function makeDestinationRefusal(destination: string): Refusal {
  if (destination === "")
    return new Refusal(
      "invalid",
      "destination: a non-empty destination must be provided; use a URL or a URL group",
    );
  const name = percentDecode(destination) ?? destination;
  const shown = JSON.stringify(shorten(name));
  const isName = parseGroupName(destination) !== null;
  // Tests of clients look for "topic … not found".
  const problem = isName
    ? `topic ${shorten(name)} not found; use an existing URL group or a URL`
    : `${shown} is not an http:// or https:// URL or an existing URL group`;
  const hint =
    /^[a-z0-9.-]+(:\d+)?\/|^[a-z0-9-]+:\d+$/i.test(name) && !name.startsWith("api/")
      ? `; did you mean http://${shorten(name)}?`
      : "";
  return new Refusal(isName ? "not-found" : "invalid", `destination: ${problem}${hint}`);
}

/** Checks an absolute http or https URL. Throws `Refusal`, which names `field`. */
export function assertUrl(field: string, url: string): void {
  const refuse = (problem: string): never => {
    throw new Refusal("invalid", `${field}: ${JSON.stringify(shorten(url))} ${problem}`);
  };
  if (url.length > limits.urlLength)
    refuse(`has ${url.length} characters, which exceeds the limit of ${limits.urlLength}`);
  if (!/^https?:\/\//i.test(url)) refuse("is not an http:// or https:// URL");
  if (hasDroppedCharacters(url) || /^https?:\/\/[/\\]/i.test(url)) refuse("is not a valid URL");
  const { hostname } = parseUrl(url) ?? refuse("is not a valid URL");
  if (hostname.length > limits.hostLength)
    refuse(`has a host of ${hostname.length} characters, which exceeds the limit of ${limits.hostLength}`);
}

/**
 * Reports whether a string has characters that URL parsers drop silently, so that the URL would not be the
 * one that was given.
 */
// oxlint-disable-next-line no-control-regex -- those are the ones
export const hasDroppedCharacters = (text: string): boolean => /[\0-\x1f\x7f]| $/.test(text);

/** Returns as much of a string as a refusal shows, at most 200 characters. */
export const shorten = (text: string): string => (text.length > 200 ? `${text.slice(0, 200)}…` : text);
