import { Refusal } from "../values/errors.ts";
import { limits } from "../values/limits.ts";
import { isName } from "../values/name.ts";

/** URLs that a pattern stands for: `https://*.example.com/in/*`. Plain data. `host`: with its port, as URLs have it. */
type UrlPattern = { protocol: string; host: string; matchesSubdomains: boolean; path: string; isPrefix: boolean };
/** Names that a pattern stands for: `orders`, `orders-*`. */
type NamePattern = { name: string; isPrefix: boolean };

/** Where something may go. What is aimed at is a URL or a URL group; queues are a bound of their own. Empty lists bind nothing. */
export type AllowedDestinations = { urls: readonly UrlPattern[]; groups: readonly NamePattern[]; queues: readonly NamePattern[] };

/** So many patterns together. */
export const maxPatterns = 32;
const maxPatternLength = 2_048;

const patternHelp = "give a URL such as https://example.com/orders/* or https://*.example.com/*, or queue:orders, or group:orders-*";

/** Writes a pattern in the one way in which it is kept. Throws `Refusal`. */
export function normalizePattern(text: string): string {
  const refuse = (problem: string): never => {
    throw new Refusal("invalid", `destinations: ${JSON.stringify(text.slice(0, 200))} ${problem}; ${patternHelp}`);
  };
  // oxlint-disable-next-line no-control-regex -- URL parsers drop these silently, and the pattern would mean more than it says
  if (/[\0-\x1f\x7f]/.test(text)) return refuse("has control characters");
  if (text.length > maxPatternLength) return refuse(`is too long, the limit is ${maxPatternLength} characters`);
  const [, kind, name = "", star = ""] = /^(queue|group):([^*]*)(\*?)$/.exec(text) ?? [];
  if (kind !== undefined) return (name === "" && star) || isName(name) ? text : refuse("has no name behind the colon");
  return parseUrlPattern(text, refuse);
}

function parseUrlPattern(text: string, refuse: (problem: string) => never): string {
  const [, protocol = "", wildcard = "", host = "", path = "", star = ""] =
    /^(https?):\/\/(\*\.)?([^/?#@\\*\s]+)([/?][^#*\\\s]*)?(\*)?$/i.exec(text) ?? refuse("is no pattern of destinations");
  if (path === "" && star !== "") refuse('ends in the middle of a host; end it with "/*"');
  const url = URL.parse(`${protocol}://${host}${path}`) ?? refuse("is not a valid URL");
  if (isAmbiguousPath(path.replace(/\?.*/s, ""))) refuse("has steps, or encoded slashes, dots or percent signs, in its path");
  if (wildcard !== "" && (!url.hostname.includes(".") || /^[\d.]+$|\]$/.test(url.hostname))) refuse("has a star before what is no domain");
  return `${url.protocol}//${wildcard}${url.host}${url.pathname}${url.search}${star}`;
}

/**
 * Reports whether a receiver may take a path for another one: because of steps up or down in any spelling, with any text after their dots, of
 * texts that are encoded twice, or of invalid UTF-8 that some receivers read as dots and slashes. A path is delivered as it came, so it is
 * checked as it came.
 */
const isAmbiguousPath = (path: string): boolean =>
  /(^|\/)\.{1,2}(?![\w~.-]|%(25)*[89a-f])|\\|%(25)*(2e|2f|5c|00|u|c[01]|e0%(25)*[89]|f0%(25)*8)/i.test(path);

/** Reads patterns that were written by `normalizePattern`. */
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
    const [, protocol = "", wildcard, host = "", path = ""] = /^(https?:)\/\/(\*\.)?([^/]+)(.*)$/s.exec(bare) ?? [];
    urls.push({ protocol, host, matchesSubdomains: wildcard !== undefined, path, isPrefix });
  }
  return { urls, groups: names.group, queues: names.queue };
}

const matchesName = (patterns: readonly NamePattern[], name: string): boolean =>
  patterns.some((one) => (one.isPrefix ? name.startsWith(one.name) : name === one.name));

/** Whether a URL is one of those that are meant. One with a user name in it is none, whatever its host is. */
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

/** What is to go somewhere: a message and what it goes through, with its callbacks, and theirs. */
export type DestinationTarget = {
  url: string;
  group: string | null;
  queue: string | null;
  callback: CallbackTarget | null;
  failureCallback: CallbackTarget | null;
  post?: { kind: string; url?: string; invoker?: { url: string } | null };
};
type CallbackTarget = { url: string; callback: CallbackTarget | null; failureCallback: CallbackTarget | null };

/** What of an aim is not among the destinations, in words for people; null when all of it is. */
export function findForbiddenDestination({ urls, groups, queues }: AllowedDestinations, target: DestinationTarget): string | null {
  if (queues.length > 0 && (target.queue === null || !matchesName(queues, target.queue)))
    return target.queue === null ? "a message without a queue" : `the queue ${target.queue}`;
  if (urls.length + groups.length === 0) return null;
  const isGroupNamed = target.group !== null && matchesName(groups, target.group);
  const all = [...(isGroupNamed ? [] : [target.url]), ...listRunUrls(target.post), ...listAllCallbackUrls(target)];
  const forbidden = all.find((url) => !matchesUrl(urls, url));
  if (forbidden === undefined) return null;
  if (target.group === null || forbidden !== target.url) return shortenUrl(forbidden);
  // Whoever may publish to a group need not know where that goes.
  return `${forbidden === "" ? "" : "an endpoint of "}the URL group ${target.group}`;
}

/** Where else a run goes: to its own endpoint, and to that of the run which invokes it. */
const listRunUrls = (post: DestinationTarget["post"]): string[] => [post?.url, post?.invoker?.url].filter((url) => url !== undefined);

/** The URLs of callbacks, and of theirs. */
export function listAllCallbackUrls({ callback, failureCallback }: Pick<CallbackTarget, "callback" | "failureCallback">): string[] {
  const found: string[] = [];
  for (const one of [callback, failureCallback]) if (one) found.push(one.url, ...listAllCallbackUrls(one));
  return found;
}

const shortenUrl = (text: string): string => (text.length > limits.nameLength ? `${text.slice(0, limits.nameLength)}…` : text);
