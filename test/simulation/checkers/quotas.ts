import type { Account } from "../../../src/engine/core/model/account.ts";
import type { MessageInput } from "../../../src/engine/core/model/message.ts";
import type { PublishResult } from "../../../src/engine/core/commands/publish.ts";
import type { ObservedBatch, AssertHolds } from "./observedBatch.ts";
import type { Tables } from "../storage/changes.ts";

type QuotaCheckContext = {
  assertHolds: AssertHolds;
  tables: Tables;
  now: number;
  cover: (what: string) => unknown;
};
type PublishInput = { account: string; inputs: readonly MessageInput[] };

/**
 * How long an exceeded quota may go unnoticed. Nodes check every 10 s, but it may take long until one is
 * reachable with a correct clock.
 */
const maxOverQuota = 2 * 3_600_000;

/** Checks that an account which exceeds its quota accepts nothing new, with little delay. */
export class QuotaChecker {
  /** By account: the stored bytes according to the buckets, and since when they exceed the quota. */
  readonly #stored = new Map<string, { bytes: number; overSince: number | null }>();
  /** When the state of a quota was last seen to change. */
  readonly #changedAt = new Map<string, number>();

  check(observed: ObservedBatch, checkContext: QuotaCheckContext): void {
    const { now, cover, tables } = checkContext;
    for (const { before, after } of observed.changes.usage) {
      const row = after ?? before;
      if (!row?.id.startsWith("3h/")) continue;
      const known = this.#stored.get(row.account) ?? { bytes: 0, overSince: null };
      this.#stored.set(row.account, known);
      known.bytes += (after?.storedBytes ?? 0) - (before?.storedBytes ?? 0);
    }
    for (const [account, known] of this.#stored) {
      const max = readQuota(tables.accounts.get(account));
      known.overSince = known.bytes > max ? (known.overSince ?? now) : null;
    }
    for (const { before, after } of observed.changes.accounts) {
      if (!after || isFull(before) === isFull(after)) continue;
      this.#changedAt.set(after.id, now);
      cover(isFull(after) ? "full" : "has room again");
    }
    observed.calls.forEach(({ name, input }, at) => {
      const reply = observed.result.replies[at];
      if (name !== "publish" || !reply) return;
      if ("answer" in reply)
        this.#checkPublish(input as PublishInput, reply.answer as PublishResult[], checkContext);
      else if ("refused" in reply && reply.refused.message.includes("by more than 25 %"))
        cover("run refused for the quota");
    });
  }

  /** Reports whether an account is known to exceed its quota. Null: this has just changed. */
  isFull(account: string, { tables, now }: Pick<QuotaCheckContext, "tables" | "now">): boolean | null {
    return this.#changedAt.get(account) === now ? null : isFull(tables.accounts.get(account));
  }

  #checkPublish(
    { account, inputs }: PublishInput,
    results: readonly PublishResult[],
    checkContext: QuotaCheckContext,
  ): void {
    const isKnown = this.isFull(account, checkContext);
    const { overSince = null } = this.#stored.get(account) ?? {};
    inputs.forEach(({ post }, at) => {
      const one = results[at];
      if (post || !one || isKnown === null) return;
      const isRefused = "refused" in one && one.refused === "storage-quota-exceeded";
      checkContext.assertHolds(
        !isRefused || isKnown,
        `an account below its quota is not refused for it: ${account}`,
      );
      checkContext.assertHolds(
        "refused" in one || !isKnown,
        `an account over its quota publishes nothing: ${account}`,
      );
      const isLate = overSince !== null && checkContext.now - overSince > maxOverQuota;
      checkContext.assertHolds(
        "refused" in one || !isLate,
        `an exceeded quota is noticed soon: ${account} since ${overSince}`,
      );
      if (isRefused) checkContext.cover("refused for the quota");
    });
  }
}

const readQuota = (account: Account | undefined): number => account?.limits?.storageBytes ?? Infinity;
const isFull = (account: Account | undefined): boolean => (account?.storedBytes ?? 0) > readQuota(account);
