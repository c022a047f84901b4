import type { CallbackSettings } from "../../../src/engine/core/model/sendSettings.ts";
import type { MessageInput } from "../../../src/engine/core/model/message.ts";
import type { PublishResult } from "../../../src/engine/core/commands/publish.ts";
import type { Scope } from "../../../src/engine/core/model/rights.ts";
import type { ObservedBatch, AssertHolds } from "./observedBatch.ts";
import type { RandomSource } from "../randomSource.ts";
import type { Tables } from "../storage/changes.ts";
import { groups, queues } from "../actors/clients.ts";

/** Returns a random scope with some destinations, or null for a token without a scope. */
export function randomScope(random: RandomSource, hosts: readonly string[]): Scope | null {
  if (!random.isHit(0.25)) return null;
  const some = () =>
    Array.from({ length: random.integerBetween(1, 12) }, () => `https://${random.of(hosts)}/*`);
  const path = `https://${random.of(hosts)}/${random.integerBetween(1, 9)}`;
  const destinations = random.of([
    some(),
    [...some(), `group:${random.of(groups)}`],
    ["group:group-*", path],
    [`queue:${random.of(queues)}`],
    [...some(), "queue:queue-*"],
    [],
  ]);
  return {
    id: "tok_1",
    verbs: random.isHit(0.5) ? ["publish"] : ["publish", "read"],
    destinations,
    expiresAt: null,
  };
}

type ScopeCheckContext = { assertHolds: AssertHolds; tables: Tables; cover: (what: string) => unknown };

/** Checks that a token publishes only to its destinations, including callbacks. */
export function checkScopes(
  { calls, result, changes }: ObservedBatch,
  { assertHolds, tables, cover }: ScopeCheckContext,
): void {
  calls.forEach(({ name, input }, at) => {
    const reply = result.replies[at];
    if (name !== "publish" || !reply || !("answer" in reply)) return;
    const { account, inputs, scope } = input as {
      account: string;
      inputs: MessageInput[];
      scope?: Scope | null;
    };
    const results = reply.answer as PublishResult[];
    inputs.forEach((input, index) => {
      const one = results[index];
      const isRefused = one !== undefined && "refused" in one && one.refused === "forbidden";
      // Another command in the same batch may change a group before or after this one.
      if (input.group !== null && changes.urlGroups.length > 0) return;
      const endpoints = tables.urlGroups.get(`${account}\n${input.group}`)?.endpoints ?? [];
      const urls = input.group === null ? [input.url] : endpoints.map(({ url }) => url);
      const isGood =
        !scope ||
        urls.length === 0 ||
        (isAllowed(scope.destinations, input, urls) && !revealsGroup(scope, input));
      assertHolds(
        isRefused === !isGood,
        `a token allows its destinations: ${JSON.stringify(scope?.destinations)}, ` +
          `${urls.join(" ")}, ${JSON.stringify(one)}`,
      );
      if (scope) cover(isGood ? "taken within the scope of a token" : "refused beyond the scope of a token");
    });
  });
}

function isAllowed(destinations: readonly string[], input: MessageInput, urls: readonly string[]): boolean {
  const ofKind = (kind: string): string[] =>
    destinations.flatMap((one) => (one.startsWith(`${kind}:`) ? one.slice(kind.length + 1) : []));
  const ofQueues = ofKind("queue");
  const ofGroups = ofKind("group");
  const ofUrls = destinations.filter((one) => one.startsWith("https://"));
  if (ofQueues.length > 0 && !matchesAny(ofQueues, input.queue)) return false;
  if (ofGroups.length + ofUrls.length === 0) return true;
  const aims = [...(matchesAny(ofGroups, input.group) ? [] : urls), ...listCallbackUrls(input)];
  return aims.every((url) => matchesAny(ofUrls, url));
}

/**
 * Reports whether a callback would reveal the endpoints of a group to a token without the verb `read`. Groups
 * have no default headers here.
 */
const revealsGroup = ({ verbs }: Scope, input: MessageInput): boolean =>
  !verbs.includes("read") && input.group !== null && listCallbackUrls(input).length > 0;

const matchesAny = (patterns: readonly string[], text: string | null): boolean =>
  text !== null &&
  patterns.some((pattern) =>
    pattern.endsWith("*") ? text.startsWith(pattern.slice(0, -1)) : text === pattern,
  );

function listCallbackUrls({
  callback,
  failureCallback,
}: Pick<CallbackSettings, "callback" | "failureCallback">): string[] {
  const urls: string[] = [];
  for (const one of [callback, failureCallback]) if (one) urls.push(one.url, ...listCallbackUrls(one));
  return urls;
}
