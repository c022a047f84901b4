import type { TableName } from "../../core/decision/command.ts";
import { findCountedColumns, rowBytes } from "../../core/limits/storageQuota.ts";
import type { AccountId } from "../../core/values/basics.ts";
import type { Columns, Value } from "../catalog/tables.ts";
import type { BatchUsage } from "../batch/usage.ts";

/**
 * Returns the weight of a row in bytes, computed from its columns. Only for tables whose rows are weighed.
 */
export function weighColumns(table: TableName, columns: Columns): number {
  let weight = rowBytes;
  for (const name of findCountedColumns(table) ?? []) weight += countValueBytes(columns[name]);
  return weight;
}

const countValueBytes = (value: Value | undefined): number =>
  typeof value === "string" ? Buffer.byteLength(value) : value instanceof Uint8Array ? value.byteLength : 0;

/**
 * Returns the SQL that computes the weight of a row in bytes, or null if the rows of the table are not
 * weighed.
 */
export function makeWeightSql(table: TableName): string | null {
  const parts = findCountedColumns(table)?.map((column) => `coalesce(octet_length(${column}), 0)`);
  return parts ? [rowBytes, ...parts].join(" + ") : null;
}

/** Sums the stored bytes that a batch adds and removes, by account. */
export class StoredBytes {
  readonly #sums = new Map<AccountId, number>();
  readonly #removals: Promise<void>[] = [];

  add(account: AccountId, bytes: number): void {
    if (bytes !== 0) this.#sums.set(account, (this.#sums.get(account) ?? 0) + bytes);
  }

  /** Subtracts the weight of removed rows, which the database returns when it has removed them. */
  subtractRemoved(removed: Promise<readonly Columns[]>): void {
    this.#removals.push(
      removed.then((rows) =>
        rows.forEach(({ account, weight }) => this.add(String(account), -Number(weight))),
      ),
    );
  }

  /**
   * Returns a promise that resolves once the weights of all removed rows are known. Returns null if they are
   * known already.
   */
  whenKnown(): Promise<unknown> | null {
    return this.#removals.length === 0 ? null : Promise.all(this.#removals);
  }

  /**
   * Adds the sums to the usage of the batch. Deleted accounts, for which `isGone` returns true, are skipped,
   * because counting for them would keep their rows.
   */
  addTo(usage: BatchUsage, isGone: (account: AccountId) => boolean): void {
    for (const [account, storedBytes] of this.#sums)
      if (storedBytes !== 0 && !isGone(account)) usage.add(account, { storedBytes });
  }
}
