import type { AccountId, Millis, NodeId } from "../../core/values/basics.ts";
import type { CountName, Counts, Usage } from "../../core/model/counts.ts";
import { noCounts } from "../../core/model/counts.ts";
import { makeBuckets, makeSourceCounts } from "../../core/accounts/usage.ts";

/** Counts of an account, or of one of its sources. */
type Counted = { account: AccountId; source: string | undefined; counts: Partial<Counts> };

/** Sums the usage that the commands of a batch count, by account. A command that throws counts nothing. */
export class BatchUsage {
  readonly #sums = new Map<AccountId, Counts>();
  readonly #sources = new Map<string, { account: AccountId; source: string; sum: Counts }>();
  #counted: Counted[] = [];

  /** Counts usage for the running command. */
  count(account: AccountId, counts: Partial<Counts>, source?: string): void {
    this.#counted.push({ account, counts, source });
  }

  /** Makes the usage of the running command final, or discards it. */
  end({ isFinal }: { isFinal: boolean }): void {
    if (this.#counted.length === 0) return;
    if (isFinal)
      for (const { account, source, counts } of this.#counted)
        if (source === undefined) this.add(account, counts);
        else this.#addToSource({ account, source }, counts);
    this.#counted = [];
  }

  /** Returns what the commands of the batch have counted so far, the running command included. */
  sumSoFar(account: AccountId, name: CountName): number {
    const isOfAccount = (one: Counted): boolean => one.account === account && one.source === undefined;
    return this.#counted
      .filter(isOfAccount)
      .reduce((sum, { counts }) => sum + (counts[name] ?? 0), this.#sums.get(account)?.[name] ?? 0);
  }

  /** Adds usage that belongs to no single command. */
  add(account: AccountId, counts: Partial<Counts>): void {
    let sum = this.#sums.get(account);
    if (!sum) this.#sums.set(account, (sum = { ...noCounts }));
    addCounts(sum, counts);
  }

  #addToSource(of: { account: AccountId; source: string }, counts: Partial<Counts>): void {
    const key = `${of.account} ${of.source}`;
    const known = this.#sources.get(key) ?? { ...of, sum: { ...noCounts } };
    this.#sources.set(key, known);
    addCounts(known.sum, counts);
  }

  /**
   * Returns the usage rows to add. Other nodes also write the rows of sources, so these rows come last and in
   * the order of their keys: two nodes never wait for each other.
   */
  rows(at: { now: Millis; node: NodeId }): Usage[] {
    const accounts = [...this.#sums].sort(([one], [other]) => (one < other ? -1 : 1));
    const sources = [...this.#sources].sort(([one], [other]) => (one < other ? -1 : 1));
    return [
      ...accounts.flatMap(([account, counts]) => makeBuckets(account, counts, at)),
      ...sources.map(([, { sum, ...of }]) => makeSourceCounts(of, sum, at.node)),
    ];
  }
}

function addCounts(sum: Counts, counts: Partial<Counts>): void {
  for (const name in counts) sum[name as CountName] += counts[name as CountName] ?? 0;
}
