import type { TableName } from "../../core/decision/command.ts";
import type { AccountId } from "../../core/model/message.ts";
import { rowBytes, findWeighedColumns, weighRow } from "../../core/accounts/storageQuota.ts";
import type { Columns, Value } from "./tables.ts";
import type { BatchUsage } from "../batch/usage.ts";

/** Returns what a row weighs, by the columns that it is written to. Only for tables whose rows are weighed. */
export function weighColumns(table: TableName, columns: Columns): number {
  return weighRow(findWeighedColumns(table)?.map((name) => countValueBytes(columns[name])) ?? []);
}

const countValueBytes = (value: Value | undefined): number =>
  typeof value === "string" ? Buffer.byteLength(value) : value instanceof Uint8Array ? value.byteLength : 0;

/** Returns the same in SQL. Null if rows of the table are not weighed. */
export function makeWeightSql(table: TableName): string | null {
  const parts = findWeighedColumns(table)?.map((column) => `coalesce(octet_length(${column}), 0)`);
  return parts ? [rowBytes, ...parts].join(" + ") : null;
}

/** The stored bytes that a batch adds and takes away, by account. */
export class StoredBytes {
  readonly #sums = new Map<AccountId, number>();
  readonly #removals: Promise<void>[] = [];

  add(account: AccountId, bytes: number): void {
    if (bytes !== 0) this.#sums.set(account, (this.#sums.get(account) ?? 0) + bytes);
  }

  /** Takes away what rows weighed that are removed, as the database says when it has removed them. */
  subtractRemoved(removed: Promise<readonly Columns[]>): void {
    this.#removals.push(removed.then((rows) => rows.forEach(({ account, weight }) => this.add(String(account), -Number(weight)))));
  }

  /** Null if all is known already. */
  whenKnown(): Promise<unknown> | null {
    return this.#removals.length === 0 ? null : Promise.all(this.#removals);
  }

  /** Adds all to what the batch has counted. `isGone`: a deleted account, of which nothing is counted: its row would stay for that. */
  addTo(usage: BatchUsage, isGone: (account: AccountId) => boolean): void {
    for (const [account, storedBytes] of this.#sums) if (storedBytes !== 0 && !isGone(account)) usage.add(account, { storedBytes });
  }
}
