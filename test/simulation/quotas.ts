import type { Account, Letter } from "../../src/core/model/message.ts";
import type { PublishResult } from "../../src/core/commands/publish.ts";
import type { Case, Demand } from "./batch.ts";
import type { Tables } from "./changes.ts";

type Court = { demand: Demand; tables: Tables; now: number; happens: (what: string) => unknown };
type Asked = { account: string; letters: readonly Letter[] };

/** Nodes that can be reached look every 10 s. It may take a while until there is one, and whose clock is right. */
const longest = 2 * 3_600_000;

/** An account that stores more than its quota takes nothing new, and soon after it does. */
export class Quotas {
  /** By account: what the buckets tell, and since when that is more than the quota. */
  readonly #stored = new Map<string, { bytes: number; overSince: number | null }>();
  /** When it was last seen that an account is over its quota, or is so no more. */
  readonly #turnedAt = new Map<string, number>();

  judge(of: Case, court: Court): void {
    const { now, happens, tables } = court;
    for (const { before, after } of of.changes.usage) {
      const row = after ?? before;
      if (!row?.id.startsWith("3h/")) continue;
      const known = this.#stored.get(row.account) ?? { bytes: 0, overSince: null };
      this.#stored.set(row.account, known);
      known.bytes += (after?.storedBytes ?? 0) - (before?.storedBytes ?? 0);
    }
    for (const [account, known] of this.#stored) {
      const most = quotaOf(tables.accounts.get(account));
      known.overSince = known.bytes > most ? (known.overSince ?? now) : null;
    }
    for (const { before, after } of of.changes.accounts) {
      if (!after || isFull(before) === isFull(after)) continue;
      this.#turnedAt.set(after.id, now);
      happens(isFull(after) ? "full" : "has room again");
    }
    of.calls.forEach(({ name, input }, at) => {
      const reply = of.result.replies[at];
      if (name !== "publish" || !reply) return;
      if ("answer" in reply) this.#judgePublish(input as Asked, reply.answer as PublishResult[], court);
      else if ("refused" in reply && reply.refused.message.includes("by more than 25 %")) happens("run refused for the quota");
    });
  }

  /** Whether an account is known to be over its quota. Null: that has turned just now. */
  isFull(account: string, { tables, now }: Pick<Court, "tables" | "now">): boolean | null {
    return this.#turnedAt.get(account) === now ? null : isFull(tables.accounts.get(account));
  }

  #judgePublish({ account, letters }: Asked, results: readonly PublishResult[], court: Court): void {
    const isKnown = this.isFull(account, court);
    const { overSince = null } = this.#stored.get(account) ?? {};
    letters.forEach(({ post }, at) => {
      const one = results[at];
      if (post || !one || isKnown === null) return;
      const isRefused = "refused" in one && one.refused === "storage-quota-exceeded";
      court.demand(!isRefused || isKnown, `nobody is refused for a quota that it has not reached: ${account}`);
      court.demand("refused" in one || !isKnown, `who is over its quota publishes nothing: ${account}`);
      const isLate = overSince !== null && court.now - overSince > longest;
      court.demand("refused" in one || !isLate, `it is soon known that an account is over its quota: ${account} since ${overSince}`);
      if (isRefused) court.happens("refused for the quota");
    });
  }
}

const quotaOf = (account: Account | undefined): number => account?.limits?.storageBytes ?? Infinity;
const isFull = (account: Account | undefined): boolean => (account?.storedBytes ?? 0) > quotaOf(account);
