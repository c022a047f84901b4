import type { Key, Rows, TableName } from "../core/command.ts";
import type { Account, AccountId, MessageId, MessageState } from "../core/message.ts";
import type { WorkingSet } from "./draft.ts";
import type { Loader } from "./loader.ts";

/** Messages of a generation, some 400 bytes each: more than this node can have under way. */
const mostMessages = 5_000;
const mostAccounts = 1_000;

/**
 * What was written last, so that it need not be asked for again: most messages are looked at once more, when their outcome
 * comes, some milliseconds after they were written. For a storage with one writer, which forgets it all when something changed behind its back.
 */
export class RecentRows {
  /** Two generations, each in a `Map` of its own: see docs/decisions/0034. */
  #messages = new Map<MessageId, MessageState>();
  #older = new Map<MessageId, MessageState>();
  #learned = 0;
  readonly #accounts = new Map<AccountId, Account>();

  /** Learns what a batch has written. To be told when it is stored, and not before. */
  learn(set: Pick<WorkingSet, "changes">): void {
    // An account is changed only where it still is what was read, so it must have been read.
    for (const { key } of set.changes("accounts")) this.#accounts.delete(key[0]);
    for (const { key, now } of set.changes("messages")) this.#keep(key[1] ?? "", now);
  }

  #keep(id: MessageId, row: MessageState | undefined): void {
    if (row === undefined) {
      this.#messages.delete(id);
      this.#older.delete(id);
      return;
    }
    this.#messages.set(id, row);
    if (++this.#learned < mostMessages) return;
    this.#learned = 0;
    this.#older = this.#messages;
    this.#messages = new Map();
  }

  forget(): void {
    this.#messages.clear();
    this.#older.clear();
    this.#accounts.clear();
  }

  /** The same rows as `loader`, which is asked only for those that are not known. */
  before(loader: Loader): Loader {
    const messageOf = ([account, id = ""]: Key): MessageState | undefined => {
      const row = this.#messages.get(id) ?? this.#older.get(id);
      return row?.account === account ? row : undefined;
    };
    const rows = async <T extends TableName>(table: T, keys: readonly Key[], how?: { bodies?: false }): Promise<readonly Rows[T][]> => {
      if (table === "messages") return (await withKnown(keys, messageOf, async (rest) => loader.rows("messages", rest, how))) as Rows[T][];
      if (table !== "accounts") return loader.rows(table, keys, how);
      const accounts = await withKnown(
        keys,
        ([id]) => this.#accounts.get(id),
        async (rest) => loader.rows("accounts", rest, how),
      );
      for (const account of accounts) keep(this.#accounts, account.id, account, mostAccounts);
      return accounts as Rows[T][];
    };
    return { ...loader, rows };
  }
}

function keep<Row>(rows: Map<string, Row>, id: string, row: Row, most: number): void {
  rows.set(id, row);
  const [oldest] = rows.size > most ? rows.keys() : [];
  if (oldest !== undefined) rows.delete(oldest);
}

async function withKnown<Row>(
  keys: readonly Key[],
  known: (key: Key) => Row | undefined,
  ask: (keys: readonly Key[]) => Promise<readonly Row[]>,
): Promise<readonly Row[]> {
  const rest: Key[] = [];
  const found: Row[] = [];
  for (const key of keys) {
    const row = known(key);
    if (row === undefined) rest.push(key);
    else found.push(row);
  }
  return rest.length === 0 ? found : found.concat(await ask(rest));
}
