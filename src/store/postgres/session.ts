import { Socket } from "node:net";
import { Client, DatabaseError, types } from "pg";
import type { ClientConfig, CustomTypesConfig, QueryConfig } from "pg";
import type { CommitLoss } from "../../core/nodes/commitLoss.ts";
import { spans } from "../../core/values/limits.ts";
import type { Millis, NodeId } from "../../core/model/message.ts";
import { formatColumnArray } from "./arrayLiteral.ts";
import type { DatabaseConnection, Dialect } from "../sql/database.ts";
import type { KeySource, SecretCipher } from "../sql/keyRing.ts";
import { plaintextCipher } from "../sql/keyRing.ts";
import { parseDatabaseUrl } from "./url.ts";
import { Unavailable } from "../store.ts";
import type { Columns, ColumnType, Value } from "../sql/tables.ts";
import { second } from "../../core/values/time.ts";

/**
 * Where the database is, and what comes of a connection to it. `session`: it is ours until it ends. `transaction`: it leads to a pooler that
 * lends us a connection of the database for one transaction at a time, as PgBouncer can. Then nothing that outlives a transaction
 * is used: nothing is prepared, set or listened for.
 */
export type DatabaseLocation = {
  /** `postgres://user:password@host:port/database?sslmode=…`, with one host or several. */
  url: string;
  pooling?: Pooling;
  /** What secrets of rows are sealed with; the same for all nodes. */
  keys?: KeySource;
};
export type Pooling = "session" | "transaction";

export type PostgresOptions = DatabaseLocation & {
  node: NodeId;
  random(): number;
  /** The time of this machine, as its dispatcher knows it, and waiting. */
  clock: { now(): Millis; sleep(until: Millis, wake: AbortSignal): Promise<void> };
  /** What tests take for the time of the database. */
  now?: () => Millis;
  /** Called with the round trip to the database in milliseconds, after the first one and whenever the fastest of five exceeds `slowRoundTrip`. */
  onRoundTrip?(roundTrip: Millis): void;
  /** Called when the database has lost batches that it had acknowledged to this node, after a failover for example. */
  onLoss?(loss: CommitLoss): void;
  /** A stopwatch that nobody sets: milliseconds since some moment. If it is missing, `clock` is taken for one. */
  elapsed?(): Millis;
  /** Called when the clock of the database has jumped by more than 5 s, with the milliseconds; below 0: it went back. */
  onClockJump?(jump: Millis): void;
  /** Is told when the tables have become newer than this program can work with. From then on it changes nothing any more. */
  onOutdated?(message: string): void;
};

/** A statement that takes longer is ended by the server; where not even that is heard of, the connection is given up. */
const statementTimeout = 30 * second;
/**
 * How long a node may stay silent in the middle of a transaction: until then it holds its row locks, and other nodes wait for them.
 * Short, so that one node with a slow network does not stop the others.
 */
const idleInTransaction = (): Millis => Math.min(2 * second, Math.ceil(spans.lease / 6));
const connectTimeout = 3 * second;

/**
 * `writer`, `listener`: statements go out without waiting for the answers of those before, which the driver allows only where it is told so at
 * first (`pipeline`). All others put one at a time. `migration`: may take its time. `look`: is at work on nothing.
 */
export type ConnectionKind = "writer" | "reader" | "listener" | "migration" | "look";

/** Which of its hosts a URL led to last: after a failover the next connection need not wait for one that is gone. */
const lastHostByUrl = new Map<string, number>();

const clientSockets = new WeakMap<Client, Socket>();

/** Cuts a connection. What is in flight on it fails at once, where `end` would wait for the answers. */
export const cutConnection = (client: Client): void => void clientSockets.get(client)?.destroy();

/** The host that each connection leads to, by its place in the URL. */
const clientHosts = new WeakMap<Client, number>();

/** A transaction holds its row locks for several round trips, so a slow network of one node slows down the others. */
export const slowRoundTrip: Millis = 250;

/** Opens a connection, to the first host that has one for us. Throws `Unavailable` when there is none to be had. */
export async function connect({ url, pooling }: DatabaseLocation, { kind }: { kind: ConnectionKind }): Promise<Client> {
  const { urls, mustWrite } = parseDatabaseUrl(url);
  const first = lastHostByUrl.get(url) ?? 0;
  let lastError: unknown;
  for (let attempt = 0; attempt < urls.length; attempt++) {
    const hostIndex = (first + attempt) % urls.length;
    try {
      const client = await connectTo(urls[hostIndex] ?? url, { kind, pooling });
      await prepareConnection(client, { mustWrite, keepsSettings: kind === "writer" && pooling !== "transaction" });
      lastHostByUrl.set(url, hostIndex);
      clientHosts.set(client, hostIndex);
      return client;
    } catch (error) {
      lastError = error;
    }
  }
  throw toUnavailable(lastError);
}

/** Opens a connection to the host of `client` and asks it `select 1`. A refusal is an answer, too. Throws if none comes. */
export async function probeHost(client: Client, { url, pooling }: DatabaseLocation): Promise<void> {
  const { urls } = parseDatabaseUrl(url);
  let probe: Client | null = null;
  try {
    probe = await connectTo(urls[clientHosts.get(client) ?? 0] ?? url, { kind: "look", pooling });
    await runPlain(probe, "select 1");
  } catch (error) {
    if (!isDatabaseRefusal(error)) throw error;
  } finally {
    if (probe) cutConnection(probe);
  }
}

const isDatabaseRefusal = (error: unknown): boolean =>
  error instanceof Unavailable ? isDatabaseRefusal(error.cause) : readSqlState(error) !== undefined;

/** Makes the next connection begin with another host than that of `client`, if the URL names several. */
export function avoidHost(client: Client, { url }: DatabaseLocation): void {
  const hostIndex = clientHosts.get(client);
  if (hostIndex !== undefined && lastHostByUrl.get(url) === hostIndex)
    lastHostByUrl.set(url, (hostIndex + 1) % parseDatabaseUrl(url).urls.length);
}

async function connectTo(url: string, { kind, pooling }: { kind: ConnectionKind; pooling: Pooling | undefined }): Promise<Client> {
  const isPipelined = kind === "writer" || kind === "listener" || (kind === "reader" && pooling === "transaction");
  const socket = new Socket();
  const client = new Client({ ...makeClientConfig(url, { kind, pooling }), pipeline: isPipelined, stream: () => socket });
  clientSockets.set(client, socket);
  // Whoever waits for an answer is told as well; without a listener the process would end.
  client.on("error", () => undefined);
  try {
    await client.connect();
    return client;
  } catch (error) {
    await client.end().catch(() => undefined);
    throw error;
  }
}

/** One that is of no use is closed. */
async function prepareConnection(
  client: Client,
  { mustWrite, keepsSettings }: { mustWrite: boolean; keepsSettings: boolean },
): Promise<void> {
  try {
    const [row] = mustWrite ? await runPlain(client, "show transaction_read_only") : [];
    if (row && row.transaction_read_only !== "off")
      throw new Unavailable("no host of the database takes changes; the last one asked is a standby");
    if (keepsSettings) await runPlain(client, sessionSettingsSql);
  } catch (error) {
    await client.end().catch(() => undefined);
    throw error;
  }
}

function makeClientConfig(url: string, { kind, pooling }: { kind: ConnectionKind; pooling: Pooling | undefined }): ClientConfig {
  const common: ClientConfig = {
    connectionString: url,
    types: parsers,
    application_name: `waypost ${kind}`,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10 * second,
    connectionTimeoutMillis: connectTimeout,
  };
  if (kind === "migration") return common;
  const withTimeout: ClientConfig = { ...common, query_timeout: statementTimeout + 5 * second };
  // A pooler refuses connections that ask for these.
  if (pooling === "transaction") return withTimeout;
  return { ...withTimeout, statement_timeout: statementTimeout, idle_in_transaction_session_timeout: idleInTransaction() };
}

/**
 * So long a transaction waits for a lock when it is first tried, and twice as long each time it is tried again. Nodes
 * that wait for each other in a circle notice it so, long before the database would (`deadlock_timeout`, a second).
 */
export const firstLockTimeout: Millis = 50;

/**
 * How whoever writes finds rows: by their keys, whatever the statistics say. Those of tables that fill and empty all the time are never right, and
 * going through a small table with thousands of dead rows for thirty that live took half of the time of a batch.
 */
const plannerSettings = ["enable_seqscan = off", "enable_hashjoin = off", "enable_mergejoin = off", "jit = off"];

/** The limits of a transaction, where they are not those of its connection. */
export const formatTransactionLimits = ({ pooling }: DatabaseLocation): string =>
  pooling === "transaction"
    ? [...[`statement_timeout = ${statementTimeout}`, `idle_in_transaction_session_timeout = ${idleInTransaction()}`], ...plannerSettings]
        .map((setting) => `; set local ${setting}`)
        .join("")
    : "";

/** What a connection keeps, and a transaction need not say again. All that go by keys are planned once, for any number of them. */
const sessionSettingsSql = [...plannerSettings, "plan_cache_mode = force_generic_plan", `lock_timeout = ${firstLockTimeout}`]
  .map((setting) => `set ${setting}`)
  .join("; ");

/** Whether texts of statements may be kept on a connection. */
export const canPrepare = ({ pooling }: DatabaseLocation): boolean => pooling !== "transaction";

/** Puts one read. Where a connection is lent for a transaction, it is one, which has the limits that the connection has not. */
export async function runRead(client: Client, location: DatabaseLocation, query: QueryConfig): Promise<QueryResult> {
  if (canPrepare(location)) return client.query<Columns>(query).catch(rethrowFault);
  const [, answer] = await Promise.all([
    runPlain(client, `begin read only${formatTransactionLimits(location)}`),
    client.query<Columns>(query).catch(rethrowFault),
    runPlain(client, "commit"),
  ]);
  return answer;
}

const int8 = 20;
const bytea = 17;

/** Times are numbers and bodies are bytes, on our own connections only: other users of the driver are left alone. */
const parsers: CustomTypesConfig = {
  getTypeParser: ((oid: number, format: "text"): unknown => {
    if (oid === int8) return Number;
    return oid === bytea ? parseBytea : types.getTypeParser(oid, format);
  }) as CustomTypesConfig["getTypeParser"],
};

/** `\x` and hexadecimal digits. */
function parseBytea(text: string): Uint8Array {
  const buffer = Buffer.from(text.slice(2), "hex");
  return new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength);
}

export type QueryResult = { rows: Columns[] };

type ConnectionOptions = { prepares?: boolean; cipher?: SecretCipher };

/** A connection that puts its statements through `run`. Where it `prepares`, every text is prepared once on each of the driver's connections. */
export function createConnection(
  run: (query: QueryConfig<unknown[]>) => Promise<QueryResult>,
  { prepares = true, cipher = plaintextCipher }: ConnectionOptions = {},
): DatabaseConnection {
  const toStatement = prepares ? prepareStatement : toUnprepared;
  return {
    dialect,
    cipher,
    query: async (sql, values) => (await run({ ...toStatement(sql), values: values.map(withoutNul) }).catch(rethrowFault)).rows,
    each: async (sql, types, rows) => {
      const collected: Columns[] = [];
      for (const portion of types.includes("bytea") ? splitRows(rows) : [rows]) {
        const columns = types.map((_: ColumnType, index) => formatColumnArray(portion, index));
        const { rows: rowsOfPortion } = await run({ ...toStatement(sql), values: columns }).catch(rethrowFault);
        if (portion.length === rows.length) return rowsOfPortion;
        for (const one of rowsOfPortion) collected.push(one);
      }
      return collected;
    },
  };
}

/** Bytes in bodies of one statement. The driver makes a text of them, twice as long, and no text can be longer than 512 MiB. */
const statementBytes = 32 * 1024 * 1024;

/** Rows, as many at a time as a statement can carry: one after another, so that not all of them are in memory as texts. */
function splitRows(rows: readonly (readonly Value[])[]): (readonly (readonly Value[])[])[] {
  const portions: [(readonly Value[])[], ...(readonly Value[])[][]] = [[]];
  let portion = portions[0];
  let bytes = 0;
  for (const row of rows) {
    const size = row.reduce<number>((sum, value) => sum + (value instanceof Uint8Array ? value.byteLength : 0), 0);
    if (portion.length > 0 && bytes + size > statementBytes) {
      portion = [];
      bytes = 0;
      portions.push(portion);
    }
    portion.push(row);
    bytes += size;
  }
  return portions;
}

/** Runs statements that take no values, in one go. Answers the rows of the last. */
export async function runPlain(client: Client, sql: string): Promise<Columns[]> {
  const answers: unknown = await client.query<Columns>(sql).catch(rethrowFault);
  const last = (Array.isArray(answers) ? answers.at(-1) : answers) as QueryResult;
  return last.rows;
}

/** A list of rows goes as one array per column, however many there are: so the statement is always the same. */
const dialect: Dialect = {
  givenRows: (types) => {
    const arrays = types.map((type, index) => `$${index + 1}::${type}[]`);
    const relation = `unnest(${arrays.join(", ")}) as given(${types.map((_, index) => `g${index}`).join(", ")})`;
    return {
      values: `select * from ${relation}`,
      from: ` from ${relation}`,
      also: `, ${relation}`,
      using: ` using ${relation}`,
      column: (index) => `given.g${index}`,
    };
  },
  lock: (table, skip) => ` for update of ${table}${skip ? ` ${skip}` : ""}`,
  // As a range, by which rows can be found through the index of their key and in no other way: see docs/decisions/0041.
  isRow: (columns, key) => [">=", "<="].map((bound) => `(${columns.join(", ")}) ${bound} (${key.join(", ")})`).join(" and "),
  useIndex: () => "",
  lockNames: ({ also, column }) => `select pg_advisory_xact_lock(hashtextextended(${column(0)}, 0)) from (select 1 as one) as one${also}`,
  logForgottenUpTo: (account) => `coalesce((select up_to from log_cuts where log_cuts.account = ${account}), '')`,
};

const statements = new Map<string, { name: string; text: string }>();

/** There are some dozens of texts, so all are kept. */
function prepareStatement(sql: string): { name: string; text: string } {
  const known = statements.get(sql);
  if (known) return known;
  let count = 0;
  const statement = { name: `waypost_${statements.size}`, text: sql.replace(/\?/g, () => `$${++count}`) };
  statements.set(sql, statement);
  return statement;
}

const toUnprepared = (sql: string): { text: string } => ({ text: prepareStatement(sql).text });

/** PostgreSQL has no text with a NUL in it, so none that is stored has one; what asks for one shall find nothing. */
const withoutNul = (value: Value): Value => (typeof value === "string" && value.includes("\0") ? value.replaceAll("\0", "\uFFFD") : value);

const rethrowFault = (error: unknown): never => {
  throw toStorageError(error);
};

/** Returns the five characters by which the database names an error (SQLSTATE). */
export const readSqlState = (error: unknown): string | undefined => (error instanceof DatabaseError ? error.code : undefined);

/** Reports whether the database has ended a transaction because it waited too long for its next statement. That statement has not run. */
export const isIdleTimeout = (error: unknown): boolean =>
  error instanceof Unavailable ? isIdleTimeout(error.cause) : readSqlState(error) === "25P03";

/** Reports whether the database lacks a resource, such as room on its disk (class 53). Trying again at once makes it worse. */
export const isOutOfResources = (error: unknown): boolean =>
  error instanceof Unavailable ? isOutOfResources(error.cause) : (readSqlState(error)?.startsWith("53") ?? false);

/**
 * Connection failures, missing resources, operator intervention, system errors, a standby, a transaction ended for
 * idleness: the fault of no statement. (PostgreSQL, Appendix A.)
 */
const outageCodes = /^(08|53|57|58)|^(25006|25P03)/;

/** An error of the driver, as `Unavailable` where the database is not at hand: then it has no code of the database, or a certain one. */
function toStorageError(error: unknown): Error {
  if (error instanceof Unavailable) return error;
  const fault = error instanceof Error ? error : new Error(String(error));
  const code = readSqlState(fault);
  return code !== undefined && !outageCodes.test(code) ? fault : toUnavailable(fault);
}

function toUnavailable(cause: unknown): Unavailable {
  if (cause instanceof Unavailable) return cause;
  const reason = cause instanceof Error ? cause.message || cause.name : String(cause);
  const [, advice] = adviceByMessage.find(([pattern]) => pattern.test(reason)) ?? [];
  return new Unavailable(`PostgreSQL cannot be reached: ${reason}${advice === undefined ? "" : `; ${advice}`}`, { cause });
}

/** What to do about it, by the words of PgBouncer, of Node.js, of the driver, and of PostgreSQL. */
const adviceByMessage: readonly (readonly [words: RegExp, advice: string])[] = [
  [/unsupported startup parameter/, "behind a pooler, start with --database-pooling transaction"],
  [
    /self-signed certificate|unable to (verify the first|get (local )?issuer) certificate/,
    "if its certificate comes from an authority of your own, name that in the URL of the database: sslrootcert=/path/ca.pem",
  ],
  [/does not match certificate's altnames/, "the name of the host in the URL of the database must be one that its certificate is for"],
  [/does not support SSL/, "turn TLS on there (ssl = on), or say sslmode=disable where nobody else is on the way"],
  [/, no encryption$/, "if it wants TLS, ask for that in the URL of the database: sslmode=verify-full"],
];
