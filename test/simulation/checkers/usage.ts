import type { MessageInput } from "../../../src/engine/core/model/message.ts";
import type { LogState } from "../../../src/engine/core/model/logRow.ts";
import type { PublishResult } from "../../../src/engine/core/commands/publish.ts";
import type { Counts, Usage } from "../../../src/engine/core/model/counts.ts";
import { listStepsRunOn, type AssertHolds, type ObservedBatch } from "./observedBatch.ts";
import type { MessageHistory } from "./messageHistory.ts";
import { weighedNames, weighRow } from "../../engine/store/sql/stored.ts";
import type { Change, Tables } from "../storage/changes.ts";

const minute = 60_000;
const hour = 60 * minute;
const day = 24 * hour;
const sizes = {
  "1m": [minute, 6 * hour],
  "12m": [12 * minute, 8 * day],
  "3h": [3 * hour, 33 * day],
} as const;

type UsageCheckContext = {
  messageHistories: ReadonlyMap<string, MessageHistory>;
  now: number;
  assertHolds: AssertHolds;
  tables: Tables;
  cover(what: string): unknown;
};

const names: Partial<Record<LogState, readonly [keyof Counts, keyof Counts]>> = {
  RETRY: ["messages", "workflowMessages"],
  DELIVERED: ["delivered", "workflowDelivered"],
  FAILED: ["failed", "workflowFailed"],
  CANCELLED: ["cancelled", "workflowCancelled"],
};

/** Recounts what each batch did, from its rows and requests, and compares this with the buckets. */
export class UsageRecount {
  /** Requests by account and day. */
  readonly #requests = new Map<string, number>();
  /** By account: stored bytes according to the buckets, and of all rows. */
  readonly #stored = new Map<string, { counted: number; there: number }>();
  /** Dead letters by account: in the buckets, and in the queue. */
  readonly #deadLetters = new Map<string, number>();

  check(observed: ObservedBatch, checkContext: UsageCheckContext): void {
    const expected = this.#recount(observed, checkContext);
    const found = this.#added(observed, checkContext);
    for (const key of new Set([...expected.keys(), ...found.keys()])) {
      const one = expected.get(key) ?? 0;
      const other = found.get(key) ?? 0;
      checkContext.assertHolds(
        one === other,
        `usage counts match what happened: ${other} instead of ${one} for ${key}`,
      );
    }
    this.#checkDeadLetters(observed, checkContext);
    this.#checkStored(observed, checkContext);
    this.#checkRequests(observed, checkContext);
  }

  /** Returns what happened, by account and name. */
  #recount(
    { calls, result, changes }: ObservedBatch,
    { messageHistories, tables }: UsageCheckContext,
  ): Map<string, number> {
    const sums = new Map<string, number>();
    const add = (account: string, name: keyof Counts, by = 1): void => {
      if (by !== 0) sums.set(`${account} ${name}`, (sums.get(`${account} ${name}`) ?? 0) + by);
    };
    const ofRun = (id: string): 0 | 1 =>
      [undefined, "failure"].includes(messageHistories.get(id)?.message.run?.kind) ? 0 : 1;
    for (const { before, after } of changes.storedMessages)
      if (after && !before) add(after.account, ofRun(after.id) === 1 ? "workflowMessages" : "messages");
    for (const { before, after } of changes.log)
      if (after && !before)
        for (const state of after.states)
          if (names[state]) add(after.account, names[state][ofRun(after.messageId)]);
    for (const { before, after } of changes.runs) if (after && !before) add(after.account, "workflowRuns");
    for (const { message } of result.deliveries)
      add(message.account, "bytesOut", tables.messages.get(`${message.account}\n${message.id}`)?.size ?? 0);
    for (const { account, input, result: one } of listPublished(calls, result.replies))
      if (!("refused" in one)) add(account, "bytesIn", input.body.byteLength);
    for (const { account, body } of listStepsRunOn({ calls, result }))
      add(account, "bytesIn", body.byteLength);
    return sums;
  }

  /**
   * Returns what was added to the current buckets. Buckets of all sizes must agree, and no other bucket may
   * change.
   */
  #added({ changes }: ObservedBatch, { now, assertHolds, cover }: UsageCheckContext): Map<string, number> {
    const bySize = Object.keys(sizes).map(() => new Map<string, number>());
    for (const { before, after } of changes.usage) {
      const { id } = (after ?? before) as Usage;
      const [size = "", start] = id.split("/");
      const [span, kept] = sizes[size as keyof typeof sizes];
      if (Number(start) === 0) continue;
      if (!after) {
        assertHolds(Number(start) + kept < now, `buckets stay for their time: ${id}`);
        cover("bucket gone");
        continue;
      }
      assertHolds(
        Number(start) === Math.floor(now / span) * span,
        `usage is counted in the current bucket: ${id}`,
      );
      const sums = bySize[Object.keys(sizes).indexOf(size)];
      const {
        account: _account,
        id: _id,
        deadLetters: _deadLetters,
        storedBytes: _stored,
        ...counts
      } = after;
      for (const [name, value] of Object.entries(counts)) {
        const by = value - (before?.[name as keyof Counts] ?? 0);
        const key = `${after.account} ${name}`;
        if (by !== 0) sums?.set(key, (sums.get(key) ?? 0) + by);
      }
    }
    const [first = new Map<string, number>(), ...others] = bySize;
    for (const other of others)
      assertHolds(
        [...new Set([...first.keys(), ...other.keys()])].every((key) => first.get(key) === other.get(key)),
        `buckets of all sizes agree at ${now}`,
      );
    return first;
  }

  #checkDeadLetters({ changes }: ObservedBatch, { assertHolds }: UsageCheckContext): void {
    const add = (key: string, by: number): void =>
      void this.#deadLetters.set(key, (this.#deadLetters.get(key) ?? 0) + by);
    for (const { before, after } of changes.usage)
      add(`${(after ?? before)?.account} buckets`, (after?.deadLetters ?? 0) - (before?.deadLetters ?? 0));
    for (const { before, after } of changes.deadLetters)
      add(`${(after ?? before)?.account} queue`, (after ? 1 : 0) - (before ? 1 : 0));
    for (const account of new Set([...this.#deadLetters.keys()].map((key) => key.split(" ")[0]))) {
      const counted = this.#deadLetters.get(`${account} buckets`) ?? 0;
      const there = this.#deadLetters.get(`${account} queue`) ?? 0;
      assertHolds(counted === there, `dead letters are counted: ${counted} of ${there} of ${account}`);
    }
  }

  #checkStored({ changes }: ObservedBatch, { assertHolds, cover }: UsageCheckContext): void {
    const sumsOf = (account = "") => {
      const known = this.#stored.get(account) ?? { counted: 0, there: 0 };
      this.#stored.set(account, known);
      return known;
    };
    for (const { before, after } of changes.usage)
      if ((after ?? before)?.id.startsWith("3h/"))
        sumsOf((after ?? before)?.account).counted += (after?.storedBytes ?? 0) - (before?.storedBytes ?? 0);
    for (const name of weighedNames)
      for (const { before, after } of changes[name] as Change<typeof name>[]) {
        sumsOf((after ?? before)?.account).there +=
          (after ? weighRow(name, after) : 0) - (before ? weighRow(name, before) : 0);
        if (before && !after) cover("bytes freed");
      }
    for (const [account, { counted, there }] of this.#stored)
      assertHolds(counted === there, `stored bytes are counted: ${counted} of ${there} of ${account}`);
  }

  /** Checks that an account makes at most its daily requests, and that none is refused before. */
  #checkRequests(
    { calls, result, changes }: ObservedBatch,
    { now, assertHolds, tables, cover }: UsageCheckContext,
  ): void {
    const today = Math.floor(now / day) * day;
    const started = changes.runs.flatMap(({ before, after }) => (after && !before ? after.runId : []));
    const all = listPublished(calls, result.replies);
    for (const { account, input, result: one } of all) {
      const key = `${account} ${today}`;
      this.#requests.set(key, (this.#requests.get(key) ?? 0) + countRequests(input, one, started));
    }
    for (const { account, input, result: one } of all) {
      const max = tables.accounts.get(account)?.limits?.requestsPerDayHard;
      const used = this.#requests.get(`${account} ${today}`) ?? 0;
      assertHolds(
        max === undefined || used <= max,
        `daily requests do not exceed the limit: ${used} of ${max}`,
      );
      if (max !== undefined && used > 0)
        assertHolds(tables.dayCounts.get(account)?.requests === used, `requests are counted: ${used}`);
      if (!("refused" in one) || one.refused !== "day-limit-exceeded") continue;
      cover("beyond the requests of a day");
      const asked = tables.urlGroups.get(`${account}\n${input.group}`)?.endpoints.length ?? 1;
      assertHolds(
        used + asked > (max ?? Infinity),
        `requests within the daily limit are accepted: ${used} of ${max}`,
      );
    }
  }
}

type PublishedInput = { account: string; input: MessageInput; result: PublishResult };

function listPublished(
  calls: ObservedBatch["calls"],
  replies: ObservedBatch["result"]["replies"],
): PublishedInput[] {
  return calls.flatMap(({ name, input }, at) => {
    const reply = replies[at];
    if (name !== "publish" || !reply || !("answer" in reply)) return [];
    const { account, inputs } = input as { account: string; inputs: MessageInput[] };
    const results = reply.answer as PublishResult[];
    return inputs.flatMap((input, index): PublishedInput[] => {
      const one = results[index];
      return one ? [{ account, input, result: one }] : [];
    });
  });
}

/** Returns the number of created messages that do not belong to a running run. */
function countRequests({ post }: MessageInput, result: PublishResult, started: string[]): number {
  if ("refused" in result) return 0;
  if ("each" in result) return result.each.filter(({ deduplicated }) => !deduplicated).length;
  if (!post) return result.deduplicated ? 0 : 1;
  const at = post.kind === "start" ? started.indexOf(result.run?.runId ?? "") : -1;
  // A run that is started twice in the same batch counts once.
  if (at >= 0) started.splice(at, 1);
  return at >= 0 && post.kind === "start" && post.invoker === null ? 1 : 0;
}
