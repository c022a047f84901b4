import { Refusal } from "../values/errors.ts";
import { limits } from "../values/limits.ts";
import { isName } from "../values/name.ts";

/**
 * The URLs that a pattern such as `https://*.example.com/in/*` matches. `host` includes the port, as in a
 * URL.
 */
type UrlPattern = {
  protocol: string;
  host: string;
  matchesSubdomains: boolean;
  path: string;
  isPrefix: boolean;
};
/** The names that a pattern such as `orders` or `orders-*` matches. */
type NamePattern = { name: string; isPrefix: boolean };

/**
 * The destinations that a token may publish to. `urls` and `groups` restrict the destination; `queues`
 * restricts the queue separately. An empty list restricts nothing.
 */
export type AllowedDestinations = {
  urls: readonly UrlPattern[];
  groups: readonly NamePattern[];
  queues: readonly NamePattern[];
};

/** The largest number of patterns of one token. */
export const maxPatterns = 32;
const maxPatternLength = 2_048;

const patternHelp =
  "use a URL such as https://example.com/orders/* or https://*.example.com/*, queue:orders or group:orders-*";

/**
 * Returns a pattern in its canonical form, which is the form that is stored. Throws `Refusal` if it is not a
 * pattern.
 */
export function normalizePattern(text: string): string {
  const refuse = (problem: string): never => {
    throw new Refusal(
      "invalid",
      `destinations: ${JSON.stringify(text.slice(0, 200))} ${problem}; ${patternHelp}`,
    );
  };
  // URL parsers drop control characters silently, so the pattern would match more than it says.
  // oxlint-disable-next-line no-control-regex
  if (/[\0-\x1f\x7f]/.test(text)) return refuse("has control characters");
  if (text.length > maxPatternLength) return refuse(`exceeds the limit of ${maxPatternLength} characters`);
  const [, kind, name = "", star = ""] = /^(queue|group):([^*]*)(\*?)$/.exec(text) ?? [];
  if (kind !== undefined)
    return (name === "" && star) || isName(name) ? text : refuse("has no name after the colon");
  return parseUrlPattern(text, refuse);
}

function parseUrlPattern(text: string, refuse: (problem: string) => never): string {
  const [, protocol = "", wildcard = "", host = "", path = "", star = ""] =
    /^(https?):\/\/(\*\.)?([^/?#@\\*\s]+)([/?][^#*\\\s]*)?(\*)?$/i.exec(text) ??
    refuse("is not a destination pattern");
  if (path === "" && star !== "") refuse('ends in the middle of a host; end it with "/*"');
  const url = URL.parse(`${protocol}://${host}${path}`) ?? refuse("is not a valid URL");
  if (isAmbiguousPath(path.replace(/\?.*/s, "")))
    refuse("has dot segments, or encoded slashes, dots or percent signs, in its path");
  if (wildcard !== "" && (!url.hostname.includes(".") || /^[\d.]+$|\]$/.test(url.hostname)))
    refuse("has a star before a host that is not a domain");
  return `${url.protocol}//${wildcard}${url.host}${url.pathname}${url.search}${star}`;
}

/**
 * Reports whether a receiver may interpret a path as another path. Such a path has dot segments in any
 * spelling (with or without text after the dots), double encoding, or invalid UTF-8 that some receivers read
 * as dots and slashes. A path is checked unchanged, because it is delivered unchanged.
 */
const isAmbiguousPath = (path: string): boolean =>
  /(^|\/)\.{1,2}(?![\w~.-]|%(25)*[89a-f])|\\|%(25)*(2e|2f|5c|00|u|c[01]|e0%(25)*[89]|f0%(25)*8)/i.test(path);

/** Parses patterns that `normalizePattern` returned. */
export function parseDestinations(patterns: readonly string[]): AllowedDestinations {
  const urls: UrlPattern[] = [];
  const names = { queue: [] as NamePattern[], group: [] as NamePattern[] };
  for (const pattern of patterns) {
    const isPrefix = pattern.endsWith("*");
    const bare = isPrefix ? pattern.slice(0, -1) : pattern;
    const [, kind] = /^(queue|group):/.exec(bare) ?? [];
    if (kind === "queue" || kind === "group") {
      names[kind].push({ name: bare.slice(kind.length + 1), isPrefix });
      continue;
    }
    const [, protocol = "", wildcard, host = "", path = ""] =
      /^(https?:)\/\/(\*\.)?([^/]+)(.*)$/s.exec(bare) ?? [];
    urls.push({ protocol, host, matchesSubdomains: wildcard !== undefined, path, isPrefix });
  }
  return { urls, groups: names.group, queues: names.queue };
}

const matchesName = (patterns: readonly NamePattern[], name: string): boolean =>
  patterns.some((one) => (one.isPrefix ? name.startsWith(one.name) : name === one.name));

/**
 * Reports whether a URL matches one of the patterns. A URL with a user name matches none, regardless of its
 * host.
 */
function matchesUrl(patterns: readonly UrlPattern[], text: string): boolean {
  const url = URL.parse(text);
  const [, authority = "@", rawPath = ""] = /^https?:\/\/([^/?#\\]+)([^?#]*)/i.exec(text) ?? [];
  if (!url || authority.includes("@")) return false;
  const path = url.pathname + url.search;
  const isUnambiguous = !isAmbiguousPath(rawPath);
  return patterns.some((one) => {
    if (one.protocol !== url.protocol) return false;
    if (one.matchesSubdomains ? !url.host.endsWith(`.${one.host}`) : url.host !== one.host) return false;
    if (one.isPrefix && one.path === "/") return true;
    return isUnambiguous && (one.isPrefix ? path.startsWith(one.path) : path === one.path);
  });
}

/** Reports whether patterns allow every URL of an origin, in every queue. */
export function coversOrigin({ urls, queues }: AllowedDestinations, origin: string): boolean {
  const everything = urls.filter(({ path, isPrefix }) => isPrefix && path === "/");
  return queues.length === 0 && matchesUrl(everything, `${origin}/`);
}

/** A message to be checked: its destination, its queue, and its callbacks with their own callbacks. */
export type DestinationTarget = {
  url: string;
  group: string | null;
  queue: string | null;
  callback: CallbackTarget | null;
  failureCallback: CallbackTarget | null;
  post?: { kind: string; url?: string; invoker?: InvokerTarget | null };
};
type InvokerTarget = { url: string; failureCallback?: CallbackTarget };
type CallbackTarget = {
  url: string;
  callback: CallbackTarget | null;
  failureCallback: CallbackTarget | null;
};

/**
 * Returns the part of a target that is not allowed, as text for an error. Returns null if all parts are
 * allowed.
 */
export function findForbiddenDestination(
  { urls, groups, queues }: AllowedDestinations,
  target: DestinationTarget,
): string | null {
  if (queues.length > 0 && (target.queue === null || !matchesName(queues, target.queue)))
    return target.queue === null ? "a message without a queue" : `the queue ${target.queue}`;
  if (urls.length + groups.length === 0) return null;
  const isGroupNamed = target.group !== null && matchesName(groups, target.group);
  const all = [
    ...(isGroupNamed ? [] : [target.url]),
    ...listRunUrls(target.post),
    ...listAllCallbackUrls(target),
  ];
  const forbidden = all.find((url) => !matchesUrl(urls, url));
  if (forbidden === undefined) return null;
  if (target.group === null || forbidden !== target.url) return shortenUrl(forbidden);
  // The error does not name the endpoint, because a caller that publishes to a group need not know its
  // endpoints.
  return `${forbidden === "" ? "" : "an endpoint of "}the URL group ${target.group}`;
}

/**
 * Returns the other URLs of a run: its own endpoint, and the endpoint and failure callbacks of the run that
 * invokes it.
 */
export const listRunUrls = (post: DestinationTarget["post"]): string[] => {
  const { url, failureCallback = null } = post?.invoker ?? {};
  const callbacks = listAllCallbackUrls({ callback: null, failureCallback });
  return [post?.url, url, ...callbacks].filter((one) => one !== undefined);
};

/** Returns the URLs of all callbacks, including callbacks of callbacks. */
export function listAllCallbackUrls({
  callback,
  failureCallback,
}: Pick<CallbackTarget, "callback" | "failureCallback">): string[] {
  const found: string[] = [];
  for (const one of [callback, failureCallback]) if (one) found.push(one.url, ...listAllCallbackUrls(one));
  return found;
}

const shortenUrl = (text: string): string =>
  text.length > limits.nameLength ? `${text.slice(0, limits.nameLength)}…` : text;
