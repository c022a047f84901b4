import type { AccountId, Millis, NodeId } from "../../core/model/message.ts";
import type { CountName, Counts, Usage } from "../../core/model/counts.ts";
import { noCounts } from "../../core/model/counts.ts";
import { makeBuckets } from "../../core/accounts/usage.ts";

/** Sums the usage that the commands of a batch count, by account. A command that throws counts nothing. */
export class BatchUsage {
  readonly #sums = new Map<AccountId, Counts>();
  #accounts: AccountId[] = [];
  #counts: Partial<Counts>[] = [];

  /** Counts usage for the running command. */
  count(account: AccountId, counts: Partial<Counts>): void {
    this.#accounts.push(account);
    this.#counts.push(counts);
  }

  /** Makes the usage of the running command final, or discards it. */
  end({ isFinal }: { isFinal: boolean }): void {
    if (this.#accounts.length === 0) return;
    if (isFinal) this.#accounts.forEach((account, at) => this.add(account, this.#counts[at] ?? {}));
    this.#accounts = [];
    this.#counts = [];
  }

  /** Adds usage that belongs to no single command. */
  add(account: AccountId, counts: Partial<Counts>): void {
    let sum = this.#sums.get(account);
    if (!sum) this.#sums.set(account, (sum = { ...noCounts }));
    for (const name in counts) sum[name as CountName] += counts[name as CountName] ?? 0;
  }

  /** Returns the usage rows to add, in the order of their keys. */
  rows(at: { now: Millis; node: NodeId }): Usage[] {
    const accounts = [...this.#sums].sort(([one], [other]) => (one < other ? -1 : 1));
    return accounts.flatMap(([account, counts]) => makeBuckets(account, counts, at));
  }
}
