import type { Key } from "../core/command.ts";
import type { AccountId } from "../core/message.ts";

/**
 * Rows by key. One map for each account, because a text of account and id joined together would be made, and hashed, at
 * every look-up, and a batch looks up some forty rows for each message.
 */
export class KeyMap<Row> {
  /** Made when the first row comes: a batch has a map for each of many tables, and leaves most of them empty. */
  #accounts: Map<AccountId, Map<string, Row>> | undefined;
  /** The account that was asked for last, which most batches do not leave. */
  #account: AccountId = "";
  #rows: Map<string, Row> | undefined;

  /** True until a row comes; what is deleted afterwards does not count. */
  get isEmpty(): boolean {
    return this.#accounts === undefined;
  }

  get([account, id = ""]: Key): Row | undefined {
    return this.#of(account)?.get(id);
  }

  has([account, id = ""]: Key): boolean {
    return this.#of(account)?.has(id) === true;
  }

  set([account, id = ""]: Key, row: Row): void {
    let rows = this.#of(account);
    if (!rows) {
      rows = new Map();
      this.#accounts ??= new Map();
      this.#accounts.set(account, rows);
      this.#account = account;
      this.#rows = rows;
    }
    rows.set(id, row);
  }

  delete([account, id = ""]: Key): void {
    this.#of(account)?.delete(id);
  }

  /** By account, and then in the order in which they came. */
  *values(): Generator<Row> {
    if (this.#accounts === undefined) return;
    for (const rows of this.#accounts.values()) yield* rows.values();
  }

  #of(account: AccountId): Map<string, Row> | undefined {
    if (this.#rows && account === this.#account) return this.#rows;
    const rows = this.#accounts?.get(account);
    if (rows) {
      this.#account = account;
      this.#rows = rows;
    }
    return rows;
  }
}
