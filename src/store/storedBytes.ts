import type { Usage } from "../core/counts.ts";
import { noCounts } from "../core/counts.ts";
import type { TableName } from "../core/command.ts";
import type { AccountId, Millis, NodeId } from "../core/message.ts";
import { bucketsOf, carriedId } from "../core/usage.ts";
import type { Dialect } from "./database.ts";
import type { Shape, Value } from "./tables.ts";
import { tables } from "./tables.ts";
import type { Tally } from "./tally.ts";

// The bytes that an account has in storage: those of its bodies, logs, dead letters, schedules and audit entries. They are counted from the columns
// as they are written, and from the columns that the database returns for a removed row, so both are always the same number.

/** Tables whose rows are counted. */
export const countedTables = [
  ...(["envelopes", "deadLetters", "schedules", "rejections", "log", "keptLog"] as const),
  ...(["runs", "steps", "notifications", "audit"] as const),
] satisfies TableName[];

/** An estimate of the rest of a row: its other columns, and its entries in indexes. */
const bytesPerRow = 200;

/** Reports whether rows of a table are counted. */
export const isCounted = (name: TableName): boolean => set.has(name);
const set: ReadonlySet<TableName> = new Set(countedTables);

const measured = ["detail", "body"] as const;

/** How many bytes a row comes to, given by the values of all columns of its table. */
export function bytesIn(table: Shape, values: readonly Value[]): number {
  let places = known.get(table);
  if (!places) known.set(table, (places = measured.map((name) => Object.keys(table.columns).indexOf(name))));
  let bytes = bytesPerRow;
  for (const place of places) {
    const value = values[place];
    if (typeof value === "string") bytes += Buffer.byteLength(value);
    else if (value instanceof Uint8Array) bytes += value.byteLength;
  }
  return bytes;
}

const known = new WeakMap<Shape, readonly number[]>();

/** Returns an expression of SQL for the bytes that a row comes to. */
export const bytesOfRow = ({ name, columns }: Shape): string =>
  [
    String(bytesPerRow),
    ...measured.filter((column) => column in columns).map((column) => `coalesce(octet_length(${name}.${column}), 0)`),
  ].join(" + ");

/** Returns a statement for the bytes of all rows of an account, and the sum of its buckets at the same moment. */
export function measuring(dialect: Dialect): { sql: string; values(account: AccountId): Value[] } {
  const sums = countedTables.map((name) => {
    const table = tables[name];
    const isKept = name === "log" && dialect.forgottenUpTo ? ` and id > ${dialect.forgottenUpTo("?")}` : "";
    return { sql: `(select coalesce(sum(${bytesOfRow(table)}), 0) from ${table.name} where account = ?${isKept})`, isKept: isKept !== "" };
  });
  return {
    sql: `select ${sums.map(({ sql }) => sql).join(" + ")} as found, (${sumOfBuckets}) as counted`,
    values: (account) => [...sums.flatMap(({ isKept }) => (isKept ? [account, account] : [account])), account],
  };
}

/** The sum of the buckets of an account. */
export const sumOfBuckets = `select coalesce(sum(stored_bytes), 0) as counted from usage where account = ? and id > '3h/' and id < '3h0'`;

/**
 * Adds up the bytes that a batch stores and removes, by account. They are added to the buckets of the node. A batch that counts nothing else of an account
 * only removes its history; then they are added to the carried balances, so that no new bucket outlives everything else.
 */
export class StoredBytes {
  readonly #sums = new Map<AccountId, number>();

  add(account: AccountId, bytes: number): void {
    this.#sums.set(account, (this.#sums.get(account) ?? 0) + bytes);
  }

  /** Gives what was added so far to a tally, and begins again with nothing. */
  take(tally: Tally): void {
    for (const [account, storedBytes] of this.#sums) if (storedBytes !== 0) tally.add(account, { storedBytes });
    this.#sums.clear();
  }

  /** Returns the rows of usage to add to, in the order of their keys. `tally`: everything else that the batch has counted. */
  rows(tally: Tally, at: { now: Millis; node: NodeId }): Usage[] {
    const sums = [...this.#sums].sort(([one], [other]) => (one < other ? -1 : 1));
    return sums.flatMap(([account, storedBytes]) => {
      const counts = { ...noCounts, storedBytes };
      return tally.has(account) ? bucketsOf(account, counts, at) : [{ ...counts, account, id: carriedId }];
    });
  }
}
