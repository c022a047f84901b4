import type { Key } from "../../core/decision/command.ts";
import type { AccountId } from "../../core/values/basics.ts";

/**
 * Rows by key, with one map per account. A single map would need a joined text of account and id, which would
 * be created and hashed at every lookup. A batch looks up about 40 rows per message.
 */
export class KeyMap<Row> {
  /** Created with the first row: a batch has a map for each of many tables, and most of them stay empty. */
  #accounts: Map<AccountId, Map<string, Row>> | undefined;
  /** The account of the last lookup. Most batches use only one account. */
  #lastAccount: AccountId = "";
  #lastRows: Map<string, Row> | undefined;

  get(key: Key): Row | undefined {
    return this.#rowsOfAccount(key[0])?.get(key[1] ?? "");
  }

  has(key: Key): boolean {
    return this.#rowsOfAccount(key[0])?.has(key[1] ?? "") === true;
  }

  set(key: Key, row: Row): void {
    const account = key[0];
    let rows = this.#rowsOfAccount(account);
    if (!rows) {
      rows = new Map();
      this.#accounts ??= new Map();
      this.#accounts.set(account, rows);
      this.#lastAccount = account;
      this.#lastRows = rows;
    }
    rows.set(key[1] ?? "", row);
  }

  delete(key: Key): void {
    this.#rowsOfAccount(key[0])?.delete(key[1] ?? "");
  }

  /** Visits all rows, by account and then in the order in which they were added. */
  forEach(visit: (row: Row) => void): void {
    this.#accounts?.forEach((rows) => rows.forEach((row) => visit(row)));
  }

  #rowsOfAccount(account: AccountId): Map<string, Row> | undefined {
    if (this.#lastRows && account === this.#lastAccount) return this.#lastRows;
    const rows = this.#accounts?.get(account);
    if (rows) {
      this.#lastAccount = account;
      this.#lastRows = rows;
    }
    return rows;
  }
}
