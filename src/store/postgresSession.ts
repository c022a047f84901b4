import { Client, DatabaseError, Pool, types } from "pg";
import type { ClientConfig, CustomTypesConfig, QueryConfig } from "pg";
import type { Millis, NodeId } from "../core/message.ts";
import type { Connection, Dialect } from "./database.ts";
import { orUnavailable } from "./group.ts";
import type { KeySource, Seals } from "./keyRing.ts";
import { noSeals } from "./keyRing.ts";
import { Unavailable } from "./store.ts";
import type { Columns, ColumnType, Value } from "./tables.ts";

export type PostgresOptions = {
  /** `postgres://user:password@host:port/database?sslmode=…` */
  url: string;
  node: NodeId;
  random(): number;
  /** The time of this machine, as its dispatcher knows it, and waiting. */
  clock: { now(): Millis; sleep(until: Millis, wake: AbortSignal): Promise<void> };
  /** What secrets of rows are sealed with; the same for all nodes. */
  keys?: KeySource;
  /** What tests take for the time of the database. */
  now?: () => Millis;
};

const second = 1000;

/** A statement that takes longer is ended by the server; where not even that is heard of, the connection is given up. */
const statementTimeout = 30 * second;
const idleInTransaction = 30 * second;
const connectTimeout = 5 * second;
const readers = 4;

/** `writer`: statements go out without waiting for the answers of those before. `migration`: may take its time. */
type Kind = "writer" | "listener" | "migration";

/** Opens a connection. Throws `Unavailable` when there is none to be had. */
export async function connect(url: string, { kind }: { kind: Kind }): Promise<Client> {
  const client = new Client({ ...settings(url, kind), pipeline: kind === "writer" });
  // Whoever waits for an answer is told as well; without a listener the process would end.
  client.on("error", () => undefined);
  try {
    await client.connect();
    return client;
  } catch (error) {
    await client.end().catch(() => undefined);
    throw outage(error);
  }
}

/** A few connections for plain reads. A read that met a connection that was lost is put once more. */
export function readingPool(url: string, seals: Seals = noSeals): { connection: Connection; close(): Promise<void> } {
  const pool = new Pool({ ...settings(url, "reader"), max: readers, idleTimeoutMillis: 60 * second });
  pool.on("error", () => undefined);
  const once = (query: QueryConfig): Promise<Answer> => pool.query<Columns>(query).catch(rethrow);
  const twice = (query: QueryConfig): Promise<Answer> =>
    once(query).catch((error: unknown) => {
      if (error instanceof Unavailable) return once(query);
      throw error;
    });
  const { query, each } = connectionOf(twice);
  const connection: Connection = {
    ...{ dialect, seals },
    query: (sql, values) => orUnavailable(query(sql, values)),
    each: (sql, types, rows) => orUnavailable(each(sql, types, rows)),
  };
  return { connection, close: () => pool.end() };
}

function settings(url: string, kind: Kind | "reader"): ClientConfig {
  const common: ClientConfig = {
    ...{ connectionString: url, types: parsers, application_name: `waypost ${kind}` },
    ...{ keepAlive: true, keepAliveInitialDelayMillis: 10 * second, connectionTimeoutMillis: connectTimeout },
  };
  if (kind === "migration") return common;
  return {
    ...common,
    ...{ statement_timeout: statementTimeout, query_timeout: statementTimeout + 5 * second },
    idle_in_transaction_session_timeout: idleInTransaction,
  };
}

const int8 = 20;
const bytea = 17;

/** Times are numbers and bodies are bytes, on our own connections only: other users of the driver are left alone. */
const parsers: CustomTypesConfig = {
  getTypeParser: ((oid: number, format: "text"): unknown => {
    if (oid === int8) return Number;
    return oid === bytea ? bytesOf : types.getTypeParser(oid, format);
  }) as CustomTypesConfig["getTypeParser"],
};

/** `\x` and hexadecimal digits. */
function bytesOf(text: string): Uint8Array {
  const buffer = Buffer.from(text.slice(2), "hex");
  return new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength);
}

type Answer = { rows: Columns[] };

/** A connection that puts its statements through `run`. Every text is prepared once on each of the driver's connections. */
export function connectionOf(run: (query: QueryConfig<unknown[]>) => Promise<Answer>, seals: Seals = noSeals): Connection {
  return {
    ...{ dialect, seals },
    query: async (sql, values) => (await run({ ...prepared(sql), values: values.map(storable) }).catch(rethrow)).rows,
    each: async (sql, types, rows) => {
      const found: Columns[] = [];
      for (const portion of types.includes("bytea") ? portionsOf(rows) : [rows]) {
        const columns = types.map((_: ColumnType, index) => portion.map((row) => storable(row[index] ?? null)));
        const { rows: answered } = await run({ ...prepared(sql), values: columns }).catch(rethrow);
        if (portion.length === rows.length) return answered;
        for (const one of answered) found.push(one);
      }
      return found;
    },
  };
}

/** Bytes in bodies of one statement. The driver makes a text of them, twice as long, and no text can be longer than 512 MiB. */
const statementBytes = 32 * 1024 * 1024;

/** Rows, as many at a time as a statement can carry: one after another, so that not all of them are in memory as texts. */
function portionsOf(rows: readonly (readonly Value[])[]): (readonly (readonly Value[])[])[] {
  const portions: [(readonly Value[])[], ...(readonly Value[])[][]] = [[]];
  let [portion, bytes] = [portions[0], 0];
  for (const row of rows) {
    const size = row.reduce<number>((sum, value) => sum + (value instanceof Uint8Array ? value.byteLength : 0), 0);
    if (portion.length > 0 && bytes + size > statementBytes) {
      [portion, bytes] = [[], 0];
      portions.push(portion);
    }
    portion.push(row);
    bytes += size;
  }
  return portions;
}

/** Runs statements that take no values, in one go. Answers the rows of the last. */
export async function plainly(client: Client, sql: string): Promise<Columns[]> {
  const answers: unknown = await client.query<Columns>(sql).catch(rethrow);
  const last = (Array.isArray(answers) ? answers.at(-1) : answers) as Answer;
  return last.rows;
}

/** A list of rows goes as one array per column, however many there are: so the statement is always the same. */
const dialect: Dialect = {
  given: (types) => {
    const arrays = types.map((type, index) => `$${index + 1}::${type}[]`);
    const relation = `unnest(${arrays.join(", ")}) as given(${types.map((_, index) => `g${index}`).join(", ")})`;
    return {
      ...{ values: `select * from ${relation}`, from: ` from ${relation}`, also: `, ${relation}`, using: ` using ${relation}` },
      column: (index) => `given.g${index}`,
    };
  },
  lock: (of, skip) => ` for update of ${of}${skip ? ` ${skip}` : ""}`,
  lockInOrder: (of, key) => ` order by ${key.map((column) => `${of}.${column}`).join(", ")} for update of ${of}`,
  by: () => "",
};

const statements = new Map<string, { name: string; text: string }>();

/** There are some dozens of texts, so all are kept. */
function prepared(sql: string): { name: string; text: string } {
  const known = statements.get(sql);
  if (known) return known;
  let count = 0;
  const statement = { name: `waypost_${statements.size}`, text: sql.replace(/\?/g, () => `$${++count}`) };
  statements.set(sql, statement);
  return statement;
}

/** PostgreSQL has no text with a NUL in it, so none that is stored has one; what asks for one shall find nothing. */
const storable = (value: Value): Value => (typeof value === "string" && value.includes("\0") ? value.replaceAll("\0", "\uFFFD") : value);

const rethrow = (error: unknown): never => {
  throw faultOf(error);
};

/** What the database itself calls an error: its five characters. */
export const codeOf = (error: unknown): string | undefined => (error instanceof DatabaseError ? error.code : undefined);

/**
 * Connection failures, missing resources, operator intervention, system errors, a standby, a transaction ended for
 * idleness: the fault of no statement. (PostgreSQL, Appendix A.)
 */
const outages = /^(08|53|57|58)|^(25006|25P03)/;

/** An error of the driver, as `Unavailable` where the database is not at hand: then it has no code of the database, or a certain one. */
function faultOf(error: unknown): Error {
  if (error instanceof Unavailable) return error;
  const fault = error instanceof Error ? error : new Error(String(error));
  const code = codeOf(fault);
  return code !== undefined && !outages.test(code) ? fault : outage(fault);
}

const outage = (cause: unknown): Unavailable =>
  new Unavailable(`PostgreSQL cannot be reached: ${cause instanceof Error ? cause.message || cause.name : String(cause)}`, { cause });
