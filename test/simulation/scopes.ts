import type { CallbackSettings, MessageInput } from "../../src/core/model/message.ts";
import type { PublishResult } from "../../src/core/commands/publish.ts";
import type { Scope } from "../../src/core/model/rights.ts";
import type { ObservedBatch, AssertHolds } from "./observedBatch.ts";
import type { RandomSource } from "./randomSource.ts";
import type { Tables } from "./changes.ts";
import { groups, queues } from "./clients.ts";

/** Now and then a client has a token that is good for some destinations only. Null: it may publish wherever it likes. */
export function randomScope(random: RandomSource, hosts: readonly string[]): Scope | null {
  if (!random.isHit(0.25)) return null;
  const some = () => Array.from({ length: random.integerBetween(1, 12) }, () => `https://${random.of(hosts)}/*`);
  const path = `https://${random.of(hosts)}/${random.integerBetween(1, 9)}`;
  const destinations = random.of([
    some(),
    [...some(), `group:${random.of(groups)}`],
    ["group:group-*", path],
    [`queue:${random.of(queues)}`],
    [...some(), "queue:queue-*"],
    [],
  ]);
  return { id: "tok_1", verbs: random.isHit(0.5) ? ["publish"] : ["publish", "read"], destinations, expiresAt: null };
}

type ScopeCheckContext = { assertHolds: AssertHolds; tables: Tables; cover: (what: string) => unknown };

/** A token publishes to what it is good for, with all that comes of it, and to nothing else. */
export function checkScopes({ calls, result, changes }: ObservedBatch, { assertHolds, tables, cover }: ScopeCheckContext): void {
  calls.forEach(({ name, input }, at) => {
    const reply = result.replies[at];
    if (name !== "publish" || !reply || !("answer" in reply)) return;
    const { account, inputs, scope } = input as { account: string; inputs: MessageInput[]; scope?: Scope | null };
    const results = reply.answer as PublishResult[];
    inputs.forEach((letter, index) => {
      const one = results[index];
      const isRefused = one !== undefined && "refused" in one && one.refused === "forbidden";
      // Who else changes a group in the same batch may do so before or after this one.
      if (letter.group !== null && changes.urlGroups.length > 0) return;
      const endpoints = tables.urlGroups.get(`${account}\n${letter.group}`)?.endpoints ?? [];
      const urls = letter.group === null ? [letter.url] : endpoints.map(({ url }) => url);
      const isGood = !scope || urls.length === 0 || (isAllowed(scope.destinations, letter, urls) && !revealsGroup(scope, letter));
      assertHolds(
        isRefused === !isGood,
        `a token is good for its destinations: ${JSON.stringify(scope?.destinations)}, ${urls.join(" ")}, ${JSON.stringify(one)}`,
      );
      if (scope) cover(isGood ? "taken within the scope of a token" : "refused beyond the scope of a token");
    });
  });
}

function isAllowed(destinations: readonly string[], input: MessageInput, urls: readonly string[]): boolean {
  const ofKind = (kind: string): string[] => destinations.flatMap((one) => (one.startsWith(`${kind}:`) ? one.slice(kind.length + 1) : []));
  const ofQueues = ofKind("queue");
  const ofGroups = ofKind("group");
  const ofUrls = destinations.filter((one) => one.startsWith("https://"));
  if (ofQueues.length > 0 && !matchesAny(ofQueues, input.queue)) return false;
  if (ofGroups.length + ofUrls.length === 0) return true;
  const aims = [...(matchesAny(ofGroups, input.group) ? [] : urls), ...listCallbackUrls(input)];
  return aims.every((url) => matchesAny(ofUrls, url));
}

/** A callback tells of the endpoints of a group, so a token that may not read gives none. Groups have no default headers here. */
const revealsGroup = ({ verbs }: Scope, input: MessageInput): boolean =>
  !verbs.includes("read") && input.group !== null && listCallbackUrls(input).length > 0;

const matchesAny = (patterns: readonly string[], text: string | null): boolean =>
  text !== null && patterns.some((pattern) => (pattern.endsWith("*") ? text.startsWith(pattern.slice(0, -1)) : text === pattern));

function listCallbackUrls({ callback, failureCallback }: Pick<CallbackSettings, "callback" | "failureCallback">): string[] {
  const urls: string[] = [];
  for (const one of [callback, failureCallback]) if (one) urls.push(one.url, ...listCallbackUrls(one));
  return urls;
}
