import { Refusal } from "../values/errors.ts";
import { limits } from "../values/limits.ts";
import { isName } from "../values/name.ts";

/** URLs that a pattern stands for: `https://*.example.com/in/*`. Plain data. `host`: with its port, as URLs have it. */
type UrlPattern = { protocol: string; host: string; isBelow: boolean; path: string; isBeginning: boolean };
/** Names that a pattern stands for: `orders`, `orders-*`. */
type NamePattern = { name: string; isBeginning: boolean };

/** Where something may go. What is aimed at is a URL or a URL group; queues are a bound of their own. Empty lists bind nothing. */
export type Destinations = { urls: readonly UrlPattern[]; groups: readonly NamePattern[]; queues: readonly NamePattern[] };

/** So many patterns together. */
export const mostPatterns = 32;
const longestPattern = 2_048;

const howToWrite = "give a URL such as https://example.com/orders/* or https://*.example.com/*, or queue:orders, or group:orders-*";

/** Writes a pattern in the one way in which it is kept. Throws `Refusal`. */
export function normalPattern(written: string): string {
  const refuse = (problem: string): never => {
    throw new Refusal("invalid", `destinations: ${JSON.stringify(written.slice(0, 200))} ${problem}; ${howToWrite}`);
  };
  // oxlint-disable-next-line no-control-regex -- URL parsers drop these silently, and the pattern would mean more than it says
  if (/[\0-\x1f\x7f]/.test(written)) return refuse("has control characters");
  if (written.length > longestPattern) return refuse(`is too long, the limit is ${longestPattern} characters`);
  const [, kind, name = "", star = ""] = /^(queue|group):([^*]*)(\*?)$/.exec(written) ?? [];
  if (kind !== undefined) return (name === "" && star) || isName(name) ? written : refuse("has no name behind the colon");
  return urlOf(written, refuse);
}

function urlOf(written: string, refuse: (problem: string) => never): string {
  const [, protocol = "", below = "", host = "", path = "", star = ""] =
    /^(https?):\/\/(\*\.)?([^/?#@\\*\s]+)([/?][^#*\\\s]*)?(\*)?$/i.exec(written) ?? refuse("is no pattern of destinations");
  if (path === "" && star !== "") refuse('ends in the middle of a host; end it with "/*"');
  const url = URL.parse(`${protocol}://${host}${path}`) ?? refuse("is not a valid URL");
  if (isDoubtful(path.replace(/\?.*/s, ""))) refuse("has steps, or encoded slashes, dots or percent signs, in its path");
  if (below !== "" && (!url.hostname.includes(".") || /^[\d.]+$|\]$/.test(url.hostname))) refuse("has a star before what is no domain");
  return `${url.protocol}//${below}${url.host}${url.pathname}${url.search}${star}`;
}

/**
 * Reports whether a receiver may take a path for another one: because of steps up or down in any spelling, with any text after their dots, of
 * texts that are encoded twice, or of invalid UTF-8 that some receivers read as dots and slashes. A path is delivered as it came, so it is
 * checked as it came.
 */
const isDoubtful = (path: string): boolean =>
  /(^|\/)\.{1,2}(?![\w~.-]|%(25)*[89a-f])|\\|%(25)*(2e|2f|5c|00|u|c[01]|e0%(25)*[89]|f0%(25)*8)/i.test(path);

/** Reads patterns that were written by `normalPattern`. */
export function destinationsOf(patterns: readonly string[]): Destinations {
  const urls: UrlPattern[] = [];
  const names = { queue: [] as NamePattern[], group: [] as NamePattern[] };
  for (const pattern of patterns) {
    const isBeginning = pattern.endsWith("*");
    const bare = isBeginning ? pattern.slice(0, -1) : pattern;
    const [, kind] = /^(queue|group):/.exec(bare) ?? [];
    if (kind === "queue" || kind === "group") {
      names[kind].push({ name: bare.slice(kind.length + 1), isBeginning });
      continue;
    }
    const [, protocol = "", below, host = "", path = ""] = /^(https?:)\/\/(\*\.)?([^/]+)(.*)$/s.exec(bare) ?? [];
    urls.push({ protocol, host, isBelow: below !== undefined, path, isBeginning });
  }
  return { urls, groups: names.group, queues: names.queue };
}

const isNamed = (patterns: readonly NamePattern[], name: string): boolean =>
  patterns.some((one) => (one.isBeginning ? name.startsWith(one.name) : name === one.name));

/** Whether a URL is one of those that are meant. One with a user name in it is none, whatever its host is. */
function isUrlOf(patterns: readonly UrlPattern[], text: string): boolean {
  const url = URL.parse(text);
  const [, authority = "@", pathAsItCame = ""] = /^https?:\/\/([^/?#\\]+)([^?#]*)/i.exec(text) ?? [];
  if (!url || authority.includes("@")) return false;
  const path = url.pathname + url.search;
  const isClear = !isDoubtful(pathAsItCame);
  return patterns.some((one) => {
    if (one.protocol !== url.protocol) return false;
    if (one.isBelow ? !url.host.endsWith(`.${one.host}`) : url.host !== one.host) return false;
    if (one.isBeginning && one.path === "/") return true;
    return isClear && (one.isBeginning ? path.startsWith(one.path) : path === one.path);
  });
}

/** What is to go somewhere: a message and what it goes through, with its callbacks, and theirs. */
export type Aim = {
  url: string;
  group: string | null;
  queue: string | null;
  callback: CallbackAim | null;
  failureCallback: CallbackAim | null;
  post?: { kind: string; url?: string; invoker?: { url: string } | null };
};
type CallbackAim = { url: string; callback: CallbackAim | null; failureCallback: CallbackAim | null };

/** What of an aim is not among the destinations, in words for people; null when all of it is. */
export function beyond({ urls, groups, queues }: Destinations, aim: Aim): string | null {
  if (queues.length > 0 && (aim.queue === null || !isNamed(queues, aim.queue)))
    return aim.queue === null ? "a message without a queue" : `the queue ${aim.queue}`;
  if (urls.length + groups.length === 0) return null;
  const isGroupNamed = aim.group !== null && isNamed(groups, aim.group);
  const all = [...(isGroupNamed ? [] : [aim.url]), ...ofRun(aim.post), ...callbacksOf(aim)];
  const stranger = all.find((url) => !isUrlOf(urls, url));
  if (stranger === undefined) return null;
  if (aim.group === null || stranger !== aim.url) return shortened(stranger);
  // Whoever may publish to a group need not know where that goes.
  return `${stranger === "" ? "" : "an endpoint of "}the URL group ${aim.group}`;
}

/** Where else a run goes: to its own endpoint, and to that of the run which invokes it. */
const ofRun = (post: Aim["post"]): string[] => [post?.url, post?.invoker?.url].filter((url) => url !== undefined);

/** The URLs of callbacks, and of theirs. */
export function callbacksOf({ callback, failureCallback }: Pick<CallbackAim, "callback" | "failureCallback">): string[] {
  const found: string[] = [];
  for (const one of [callback, failureCallback]) if (one) found.push(one.url, ...callbacksOf(one));
  return found;
}

const shortened = (text: string): string => (text.length > limits.nameLength ? `${text.slice(0, limits.nameLength)}…` : text);
