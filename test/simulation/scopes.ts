import type { CallbackSettings, Letter } from "../../src/core/model/message.ts";
import type { PublishResult } from "../../src/core/commands/publish.ts";
import type { Scope } from "../../src/core/model/rights.ts";
import type { Case, Demand } from "./batch.ts";
import type { Chance } from "./chance.ts";
import type { Tables } from "./changes.ts";
import { groups, queues } from "./clients.ts";

/** Now and then a client has a token that is good for some destinations only. Null: it may publish wherever it likes. */
export function randomScope(chance: Chance, hosts: readonly string[]): Scope | null {
  if (!chance.happens(0.25)) return null;
  const some = () => Array.from({ length: chance.between(1, 12) }, () => `https://${chance.of(hosts)}/*`);
  const path = `https://${chance.of(hosts)}/${chance.between(1, 9)}`;
  const destinations = chance.of([
    some(),
    [...some(), `group:${chance.of(groups)}`],
    ["group:group-*", path],
    [`queue:${chance.of(queues)}`],
    [...some(), "queue:queue-*"],
    [],
  ]);
  return { id: "tok_1", verbs: chance.happens(0.5) ? ["publish"] : ["publish", "read"], destinations, expiresAt: null };
}

type Court = { demand: Demand; tables: Tables; happens: (what: string) => unknown };

/** A token publishes to what it is good for, with all that comes of it, and to nothing else. */
export function judgeScopes({ calls, result, changes }: Case, { demand, tables, happens }: Court): void {
  calls.forEach(({ name, input }, at) => {
    const reply = result.replies[at];
    if (name !== "publish" || !reply || !("answer" in reply)) return;
    const { account, letters, scope } = input as { account: string; letters: Letter[]; scope?: Scope | null };
    const results = reply.answer as PublishResult[];
    letters.forEach((letter, index) => {
      const one = results[index];
      const isRefused = one !== undefined && "refused" in one && one.refused === "forbidden";
      // Who else changes a group in the same batch may do so before or after this one.
      if (letter.group !== null && changes.groups.length > 0) return;
      const endpoints = tables.groups.get(`${account}\n${letter.group}`)?.endpoints ?? [];
      const urls = letter.group === null ? [letter.url] : endpoints.map(({ url }) => url);
      const isGood = !scope || urls.length === 0 || (isGoodFor(scope.destinations, letter, urls) && !tellsOfGroup(scope, letter));
      demand(
        isRefused === !isGood,
        `a token is good for its destinations: ${JSON.stringify(scope?.destinations)}, ${urls.join(" ")}, ${JSON.stringify(one)}`,
      );
      if (scope) happens(isGood ? "taken within the scope of a token" : "refused beyond the scope of a token");
    });
  });
}

function isGoodFor(destinations: readonly string[], letter: Letter, urls: readonly string[]): boolean {
  const ofKind = (kind: string): string[] => destinations.flatMap((one) => (one.startsWith(`${kind}:`) ? one.slice(kind.length + 1) : []));
  const [ofQueues, ofGroups, ofUrls] = [ofKind("queue"), ofKind("group"), destinations.filter((one) => one.startsWith("https://"))];
  if (ofQueues.length > 0 && !isAmong(ofQueues, letter.queue)) return false;
  if (ofGroups.length + ofUrls.length === 0) return true;
  const aims = [...(isAmong(ofGroups, letter.group) ? [] : urls), ...callbacksOf(letter)];
  return aims.every((url) => isAmong(ofUrls, url));
}

/** A callback tells of the endpoints of a group, so a token that may not read gives none. Groups have no default headers here. */
const tellsOfGroup = ({ verbs }: Scope, letter: Letter): boolean =>
  !verbs.includes("read") && letter.group !== null && callbacksOf(letter).length > 0;

const isAmong = (patterns: readonly string[], text: string | null): boolean =>
  text !== null && patterns.some((pattern) => (pattern.endsWith("*") ? text.startsWith(pattern.slice(0, -1)) : text === pattern));

function callbacksOf({ callback, failureCallback }: Pick<CallbackSettings, "callback" | "failureCallback">): string[] {
  const urls: string[] = [];
  for (const one of [callback, failureCallback]) if (one) urls.push(one.url, ...callbacksOf(one));
  return urls;
}
