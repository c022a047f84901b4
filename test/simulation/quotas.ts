import type { Account, MessageInput } from "../../src/core/model/message.ts";
import type { PublishResult } from "../../src/core/commands/publish.ts";
import type { ObservedBatch, AssertHolds } from "./observedBatch.ts";
import type { Tables } from "./changes.ts";

type QuotaCheckContext = { assertHolds: AssertHolds; tables: Tables; now: number; cover: (what: string) => unknown };
type PublishInput = { account: string; inputs: readonly MessageInput[] };

/** Nodes that can be reached look every 10 s. It may take a while until there is one, and whose clock is right. */
const maxOverQuota = 2 * 3_600_000;

/** An account that stores more than its quota takes nothing new, and soon after it does. */
export class QuotaChecker {
  /** By account: what the buckets tell, and since when that is more than the quota. */
  readonly #stored = new Map<string, { bytes: number; overSince: number | null }>();
  /** When it was last seen that an account is over its quota, or is so no more. */
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
      if ("answer" in reply) this.#checkPublish(input as PublishInput, reply.answer as PublishResult[], checkContext);
      else if ("refused" in reply && reply.refused.message.includes("by more than 25 %")) cover("run refused for the quota");
    });
  }

  /** Whether an account is known to be over its quota. Null: that has turned just now. */
  isFull(account: string, { tables, now }: Pick<QuotaCheckContext, "tables" | "now">): boolean | null {
    return this.#changedAt.get(account) === now ? null : isFull(tables.accounts.get(account));
  }

  #checkPublish({ account, inputs }: PublishInput, results: readonly PublishResult[], checkContext: QuotaCheckContext): void {
    const isKnown = this.isFull(account, checkContext);
    const { overSince = null } = this.#stored.get(account) ?? {};
    inputs.forEach(({ post }, at) => {
      const one = results[at];
      if (post || !one || isKnown === null) return;
      const isRefused = "refused" in one && one.refused === "storage-quota-exceeded";
      checkContext.assertHolds(!isRefused || isKnown, `nobody is refused for a quota that it has not reached: ${account}`);
      checkContext.assertHolds("refused" in one || !isKnown, `who is over its quota publishes nothing: ${account}`);
      const isLate = overSince !== null && checkContext.now - overSince > maxOverQuota;
      checkContext.assertHolds(
        "refused" in one || !isLate,
        `it is soon known that an account is over its quota: ${account} since ${overSince}`,
      );
      if (isRefused) checkContext.cover("refused for the quota");
    });
  }
}

const readQuota = (account: Account | undefined): number => account?.limits?.storageBytes ?? Infinity;
const isFull = (account: Account | undefined): boolean => (account?.storedBytes ?? 0) > readQuota(account);
