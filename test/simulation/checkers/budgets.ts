import type { Account } from "../../../src/engine/core/model/account.ts";
import type { MessageInput } from "../../../src/engine/core/model/message.ts";
import type { PublishResult } from "../../../src/engine/core/commands/publish.ts";
import type { ObservedBatch, AssertHolds } from "./observedBatch.ts";
import type { Tables } from "../storage/changes.ts";

type BudgetCheckContext = {
  assertHolds: AssertHolds;
  tables: Tables;
  now: number;
  cover: (what: string) => unknown;
};

/** Each message and each retry costs a dollar. */
export const prices = { messages: 100_000, workflowMessages: 100_000, gigabyte: 0 };

const startOfMonth = (now: number): number =>
  Date.UTC(new Date(now).getUTCFullYear(), new Date(now).getUTCMonth());

/**
 * Checks that an account which has spent its budget publishes nothing, not even by schedules, and that no
 * account has spent more than was sent.
 */
export class BudgetChecker {
  /** Spending in dollars, by account and month. */
  readonly #spent = new Map<string, number>();
  /** When the state of a budget was last seen to change. */
  readonly #changedAt = new Map<string, number>();

  check(observed: ObservedBatch, checkContext: BudgetCheckContext): void {
    const { assertHolds, now, cover } = checkContext;
    this.#count(observed, now);
    for (const { before, after } of observed.changes.accounts) {
      if (after && isSpent(before, now) !== isSpent(after, now)) this.#changedAt.set(after.id, now);
      if (!after?.spending || after.spending === before?.spending) continue;
      const { month, dollars } = after.spending;
      const spent = this.#spent.get(`${after.id} ${month}`) ?? 0;
      assertHolds(
        dollars <= spent,
        `an account spends at most what was sent: ${dollars} of ${spent} by ${after.id}`,
      );
      cover("spending noted");
    }
    observed.calls.forEach(({ name, input }, at) => {
      const reply = observed.result.replies[at];
      if (name === "publish" && reply && "answer" in reply)
        this.#checkPublish(input as PublishInput, reply.answer as PublishResult[], checkContext);
    });
  }

  /**
   * Reports whether an account has spent its budget. Null: this has just changed, so a concurrent batch may
   * have seen otherwise.
   */
  hasSpent(account: string, { tables, now }: Pick<BudgetCheckContext, "tables" | "now">): boolean | null {
    return this.#changedAt.get(account) === now ? null : isSpent(tables.accounts.get(account), now);
  }

  #count({ changes }: ObservedBatch, now: number): void {
    const add = (account: string, dollars: number): void => {
      const key = `${account} ${startOfMonth(now)}`;
      this.#spent.set(key, (this.#spent.get(key) ?? 0) + dollars);
    };
    for (const { before, after } of changes.storedMessages) if (after && !before) add(after.account, 1);
    for (const { before, after } of changes.log)
      if (after && !before) add(after.account, after.states.filter((state) => state === "RETRY").length);
  }

  #checkPublish(
    { account, inputs }: PublishInput,
    results: readonly PublishResult[],
    checkContext: BudgetCheckContext,
  ): void {
    const hasSpent = this.hasSpent(account, checkContext);
    if (hasSpent === null) return;
    inputs.forEach(({ post }, at) => {
      const one = results[at];
      // A message that continues a run is accepted at any cost.
      if (post || !one) return;
      const isRefused = "refused" in one && one.message.startsWith("budget: ");
      const isOtherwise =
        "refused" in one &&
        ["forbidden", "day-limit-exceeded", "storage-quota-exceeded"].includes(one.refused);
      checkContext.assertHolds(
        isRefused === hasSpent || isOtherwise,
        `only an account that has spent its budget is refused for it: ${account} ${JSON.stringify(one)}`,
      );
      if (isRefused) checkContext.cover("refused for the budget");
    });
  }
}

type PublishInput = { account: string; inputs: readonly MessageInput[] };

function isSpent(account: Account | undefined, now: number): boolean {
  const { budget = 0, spending } = account ?? {};
  return budget > 0 && spending?.month === startOfMonth(now) && spending.dollars >= budget;
}
