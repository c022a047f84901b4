import type { Key, LineHead, Rows, TableName } from "../core/command.ts";
import { firstIdAt } from "../core/ids.ts";
import type { AccountId, MessageId, Millis } from "../core/message.ts";
import { decideBatch, resultOf } from "./batch.ts";
import type { Loader, WorkingSet } from "./draft.ts";
import type { Range, Shelf } from "./shelf.ts";
import type { Hands } from "../core/hands.ts";
import type { BatchResult, Call, Source } from "./store.ts";
import { tableNames } from "./store.ts";
import type { Columns, ColumnType, Shape, Table, Value } from "./tables.ts";
import { tables } from "./tables.ts";

/** One connection to a database. Statements are prepared once and kept by their text. */
export interface Connection {
  dialect: Dialect;
  /** Runs a statement; `?` stand for the values. */
  query(sql: string, values: readonly Value[]): Promise<Columns[]>;
  /** Runs a statement once for every row of values, or once for all of them: see `Dialect.given`. */
  each(sql: string, types: readonly ColumnType[], rows: readonly (readonly Value[])[]): Promise<Columns[]>;
}

/** Where two databases differ in words. */
export type Dialect = {
  /** The rows that `each` was given: one row as parameters, or all of them as a relation. */
  given(types: readonly ColumnType[]): { values: string; from: string; also: string; using: string; column(index: number): string };
  /** Takes what is read away from other nodes until the transaction ends: `of` a table, waiting or skipping. */
  lock(of: string, skip?: "skip locked"): string;
};

/** A database that can run transactions, and knows the errors after which one may simply be run again. */
export interface Database {
  transaction<T>(run: (connection: Connection) => Promise<T>): Promise<T>;
  /** A lost race: another node was first. */
  isConflict(error: unknown): boolean;
  /** The time, where nodes must agree on it; else the source's. */
  now?(connection: Connection): Promise<Millis>;
  /** Tells other nodes what became due. */
  notify?(connection: Connection, dueAt: Millis): Promise<void>;
}

const maxRaces = 20;

/** Runs a batch as one transaction, and again from fresh rows when another node was faster. */
export async function runSqlBatch(database: Database, source: Source, calls: readonly Call[], hands: Hands): Promise<BatchResult> {
  for (let race = 1; ; race++) {
    try {
      return await database.transaction(async (connection) => {
        const now = (await database.now?.(connection)) ?? source.now();
        const { set, replies } = await decideBatch(calls, { loader: sqlLoader(connection), hands, source, now });
        for (const table of tableNames) await writeTable(connection, table, set);
        const result = resultOf(set, replies);
        if (result.dueAt !== null) await database.notify?.(connection, result.dueAt);
        return result;
      });
    } catch (error) {
      if (race === maxRaces || !database.isConflict(error)) throw error;
    }
  }
}

/** Writes the net changes of a table: one statement for what is new, one for what changed, one for what is gone. */
async function writeTable<T extends TableName>(connection: Connection, name: T, set: WorkingSet): Promise<void> {
  const table: Table<Rows[T]> = tables[name];
  const made: Value[][] = [];
  const changed: Value[][] = [];
  const gone: Value[][] = [];
  const valuesOf = (row: Rows[T]): Value[] => Object.values(table.write(row));
  for (const { key, before, now } of set.changes(name)) {
    if (now === undefined) gone.push(keyValues(key));
    else if (before === undefined) made.push(valuesOf(now));
    else changed.push(table.unlocked ? [...valuesOf(now), ...valuesOf(before)] : valuesOf(now));
  }
  const types = Object.values(table.columns);
  if (made.length > 0) await connection.each(insert(connection, table), types, made);
  if (changed.length > 0) {
    const updated = await connection.each(update(connection, table), table.unlocked ? [...types, ...types] : types, changed);
    if (table.unlocked && updated.length < changed.length) throw new LostUpdate(`${name}: changed by another node`);
  }
  if (gone.length > 0) await connection.each(remove(connection, table), keyTypes(table), gone);
}

const keyTypes = ({ key }: Shape): ColumnType[] => key.map(() => "text");

/** A row that is read without a lock was changed by another node in between. */
export class LostUpdate extends Error {}

const keyValues = (key: Key): Value[] => key.filter((part) => part !== undefined);

function insert({ dialect }: Connection, { name, columns }: Shape): string {
  return `insert into ${name} (${Object.keys(columns).join(", ")}) ${dialect.given(Object.values(columns)).values}`;
}

function update({ dialect }: Connection, table: Shape): string {
  const names = Object.keys(table.columns);
  const types = Object.values(table.columns);
  const given = dialect.given(table.unlocked ? [...types, ...types] : types);
  const sets = names.map((column, index) => `${column} = ${given.column(index)}`);
  const wheres = table.key.map((column) => `${table.name}.${column} = ${given.column(names.indexOf(column))}`);
  const unchanged = table.unlocked ? names.map((column, index) => `${table.name}.${column} = ${given.column(names.length + index)}`) : [];
  const returning = table.unlocked ? ` returning 1 as changed` : "";
  return `update ${table.name} set ${sets.join(", ")}${given.from} where ${[...wheres, ...unchanged].join(" and ")}${returning}`;
}

function remove({ dialect }: Connection, table: Shape): string {
  const given = dialect.given(keyTypes(table));
  return `delete from ${table.name}${given.using} where ${keyEquals(table, given)}`;
}

const keyEquals = ({ name, key }: Shape, given: ReturnType<Dialect["given"]>): string =>
  key.map((column, index) => `${name}.${column} = ${given.column(index)}`).join(" and ");

async function rows<T extends TableName>(connection: Connection, name: T, keys: readonly Key[], locked: boolean): Promise<Rows[T][]> {
  const table: Table<Rows[T]> = tables[name];
  const { dialect } = connection;
  const given = dialect.given(keyTypes(table));
  const lock = locked && !table.unlocked ? dialect.lock(table.name) : "";
  const sql = `select ${columnsOf(table)} from ${table.name}${given.also} where ${keyEquals(table, given)}${lock}`;
  // In one order, so that two nodes that lock the same rows do not wait for each other in a circle.
  const sorted = keys.map(keyValues).sort((a, b) => (a.join("\n") < b.join("\n") ? -1 : 1));
  const found = await connection.each(sql, keyTypes(table), sorted);
  return found.map((row) => table.read(row));
}

const columnsOf = ({ name, columns }: Shape): string =>
  Object.keys(columns)
    .map((column) => `${name}.${column}`)
    .join(", ");

function sqlLoader(connection: Connection): Loader {
  const { messages, lines, log, deadLetters, deduplications } = tables;
  const { dialect } = connection;
  const list = async <Row>(table: Table<Row>, rest: string, values: Value[]): Promise<Row[]> =>
    (await connection.query(`select ${columnsOf(table)} from ${table.name} ${rest}`, values)).map((row) => table.read(row));
  const skipping = (table: Shape): string => dialect.lock(table.name, "skip locked");
  return {
    rows: (name, keys) => rows(connection, name, keys, true),
    due: async (now, limit) => ({
      messages: await list(messages, `where due_at <= ? order by due_at, id limit ?${skipping(messages)}`, [now, limit]),
      lines: await list(lines, `where due_at <= ? order by due_at, host limit ?${skipping(lines)}`, [now, limit]),
    }),
    heads: async (heads: readonly LineHead[]) => {
      const rest = `where state = 'held' and account = ? and host = ? order by id limit ?${dialect.lock("messages")}`;
      const found = [];
      for (const { account, host, limit } of heads) found.push(...(await list(messages, rest, [account, host, limit])));
      return found;
    },
    leasedByOthers: (node, limit) =>
      list(messages, `where due_at is not null and state = 'active' and leased_by <> ? order by due_at, id limit ?`, [node, limit]),
    expired: async ({ account, limit, ...before }) => {
      const oldest = `where account = ? and id < ? order by id limit ?`;
      return {
        log: await list(log, oldest, [account, firstIdAt("log", before.logBefore), limit]),
        deadLetters: await list(deadLetters, oldest + dialect.lock("dead_letters"), [account, firstIdAt("dlq", before.deadLettersBefore), limit]),
        deduplications: await list(
          deduplications,
          `where account = ? and expires_at < ? order by expires_at, key limit ?${dialect.lock("deduplications")}`,
          [account, before.deduplicationsBefore, limit],
        ),
      };
    },
  };
}

/** When the next message or line falls due. */
export async function nextDueAt(connection: Connection): Promise<Millis | null> {
  const sql = `select min(due_at) as at from (select min(due_at) as due_at from messages where due_at is not null
    union all select min(due_at) as due_at from lines) as earliest`;
  const [row] = await connection.query(sql, []);
  return typeof row?.at === "number" ? row.at : null;
}

/** The plain reads of a database. */
export function sqlShelf(connection: Connection): Shelf {
  const read = async <Row>(table: Table<Row>, rest: string, values: Value[]): Promise<Row[]> =>
    (await connection.query(`select ${columnsOf(table)} from ${table.name} ${rest}`, values)).map((row) => table.read(row));
  return {
    rows: (name, keys) => rows(connection, name, keys, false),
    range: async (name, range) => {
      const { where, values } = stretch(range);
      return read(tables[name], `${where} order by id ${range.descending ? "desc" : "asc"} limit ?`, [...values, range.limit]);
    },
    logOf: (account: AccountId, messageId: MessageId) => read(tables.log, `where account = ? and message_id = ? order by id`, [account, messageId]),
    accountByToken: async (hash) => (await read(tables.accounts, `where token_hash = ?`, [hash]))[0] ?? null,
    accounts: () => read(tables.accounts, `order by id`, []),
    earliestDeduplicationEnd: async (account) => {
      const [row] = await connection.query(`select min(expires_at) as at from deduplications where account = ?`, [account]);
      return typeof row?.at === "number" ? row.at : null;
    },
  };
}

function stretch({ account, after, before }: Range): { where: string; values: Value[] } {
  const conditions: [string, Value][] = [["account = ?", account]];
  if (after !== undefined) conditions.push(["id > ?", after]);
  if (before !== undefined) conditions.push(["id < ?", before]);
  return { where: `where ${conditions.map(([text]) => text).join(" and ")}`, values: conditions.map(([, value]) => value) };
}
