import type { Account, Letter } from "../../src/core/model/message.ts";
import type { PublishResult } from "../../src/core/commands/publish.ts";
import type { Case, Demand } from "./batch.ts";
import type { Tables } from "./changes.ts";

type Court = { demand: Demand; tables: Tables; now: number; happens: (what: string) => unknown };

/** Each message costs a dollar, and so does each time that it is sent again. */
export const prices = { messages: 100_000, workflowMessages: 100_000, gigabyte: 0 };

const monthAt = (now: number): number => Date.UTC(new Date(now).getUTCFullYear(), new Date(now).getUTCMonth());

/** Who has spent its budget publishes nothing any more, neither do its schedules; and nobody has spent more than was sent. */
export class Budgets {
  /** Dollars, by account and month. */
  readonly #spent = new Map<string, number>();
  /** When it was last seen that an account has spent its budget, or has so no more. */
  readonly #turnedAt = new Map<string, number>();

  judge(of: Case, court: Court): void {
    const { demand, now, happens } = court;
    this.#count(of, now);
    for (const { before, after } of of.changes.accounts) {
      if (after && isSpent(before, now) !== isSpent(after, now)) this.#turnedAt.set(after.id, now);
      if (!after?.spending || after.spending === before?.spending) continue;
      const { month, dollars } = after.spending;
      const spent = this.#spent.get(`${after.id} ${month}`) ?? 0;
      demand(dollars <= spent, `nobody has spent more than was sent: ${dollars} of ${spent} by ${after.id}`);
      happens("spending noted");
    }
    of.calls.forEach(({ name, input }, at) => {
      const reply = of.result.replies[at];
      if (name === "publish" && reply && "answer" in reply) this.#judgePublish(input as Asked, reply.answer as PublishResult[], court);
    });
  }

  /** Whether an account has spent its budget. Null: that has turned just now, and who was at work meanwhile may have seen it otherwise. */
  hasSpent(account: string, { tables, now }: Pick<Court, "tables" | "now">): boolean | null {
    return this.#turnedAt.get(account) === now ? null : isSpent(tables.accounts.get(account), now);
  }

  #count({ changes }: Case, now: number): void {
    const add = (account: string, dollars: number): void => {
      const key = `${account} ${monthAt(now)}`;
      this.#spent.set(key, (this.#spent.get(key) ?? 0) + dollars);
    };
    for (const { before, after } of changes.envelopes) if (after && !before) add(after.account, 1);
    for (const { before, after } of changes.log)
      if (after && !before) add(after.account, after.states.filter((state) => state === "RETRY").length);
  }

  #judgePublish({ account, letters }: Asked, results: readonly PublishResult[], court: Court): void {
    const hasSpent = this.hasSpent(account, court);
    if (hasSpent === null) return;
    letters.forEach(({ post }, at) => {
      const one = results[at];
      // What goes on with a run is taken in whatever it costs.
      if (post || !one) return;
      const isRefused = "refused" in one && one.message.startsWith("budget: ");
      const isOtherwise = "refused" in one && ["forbidden", "day-limit-exceeded", "storage-quota-exceeded"].includes(one.refused);
      court.demand(
        isRefused === hasSpent || isOtherwise,
        `who has spent its budget publishes no more, and nobody else is refused for it: ${account} ${JSON.stringify(one)}`,
      );
      if (isRefused) court.happens("refused for the budget");
    });
  }
}

type Asked = { account: string; letters: readonly Letter[] };

function isSpent(account: Account | undefined, now: number): boolean {
  const { budget = 0, spending } = account ?? {};
  return budget > 0 && spending?.month === monthAt(now) && spending.dollars >= budget;
}
