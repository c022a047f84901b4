import type { Key } from "../../core/decision/command.ts";
import type { AccountId } from "../../core/model/message.ts";

/**
 * Rows by key. One map for each account, because a text of account and id joined together would be made, and hashed, at
 * every look-up, and a batch looks up some forty rows for each message.
 */
export class KeyMap<Row> {
  /** Made when the first row comes: a batch has a map for each of many tables, and leaves most of them empty. */
  #accounts: Map<AccountId, Map<string, Row>> | undefined;
  /** The account that was asked for last, which most batches do not leave. */
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

  /** By account, and then in the order in which they came. */
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
