import type { AccountId, Millis, NodeId } from "../../core/model/message.ts";
import type { CountName, Counts, Usage } from "../../core/model/counts.ts";
import { noCounts } from "../../core/model/counts.ts";
import { makeBuckets } from "../../core/accounts/usage.ts";

/** What the commands of a batch have counted, added up by account: each command as a whole, or not at all. */
export class BatchUsage {
  readonly #sums = new Map<AccountId, Counts>();
  #accounts: AccountId[] = [];
  #counts: Partial<Counts>[] = [];

  /** Adds something for the running command. */
  count(account: AccountId, counts: Partial<Counts>): void {
    this.#accounts.push(account);
    this.#counts.push(counts);
  }

  /** Runs a command. What it has counted is forgotten when it throws. */
  countDuring<Answer>(run: () => Answer): Answer {
    this.#accounts = [];
    this.#counts = [];
    const result = run();
    this.#accounts.forEach((account, at) => this.add(account, this.#counts[at] ?? {}));
    return result;
  }

  /** Adds something for no command alone. */
  add(account: AccountId, counts: Partial<Counts>): void {
    let sum = this.#sums.get(account);
    if (!sum) this.#sums.set(account, (sum = { ...noCounts }));
    for (const name in counts) sum[name as CountName] += counts[name as CountName] ?? 0;
  }

  /** What is to be added to which rows, in the order of their keys. */
  rows(at: { now: Millis; node: NodeId }): Usage[] {
    const accounts = [...this.#sums].sort(([one], [other]) => (one < other ? -1 : 1));
    return accounts.flatMap(([account, counts]) => makeBuckets(account, counts, at));
  }
}
