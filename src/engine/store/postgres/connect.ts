import { Socket } from "node:net";
import { Client, types } from "pg";
import type { ClientConfig, CustomTypesConfig, QueryConfig } from "pg";
import type { CommitLoss } from "../../core/cluster/commitLoss.ts";
import { spans } from "../../core/values/limits.ts";
import type { ClientChoice } from "../../core/model/runPost.ts";
import type { Millis, NodeId } from "../../core/values/basics.ts";
import type { KeySource } from "../layout/keyRing.ts";
import type { OnMoved } from "../sql/schema.ts";
import type { QueryResult } from "./connection.ts";
import { runPlain } from "./connection.ts";
import { readSqlState, rethrowFault, toUnavailable } from "./databaseErrors.ts";
import { parseDatabaseUrl } from "./url.ts";
import { Unavailable } from "../layout/storageErrors.ts";
import type { Columns } from "../catalog/tables.ts";
import { second } from "../../core/values/time.ts";

/**
 * Where the database is, and how to connect. With `pooling: "session"`, a connection belongs to this process
 * until it ends. With `pooling: "transaction"`, it leads to a pooler, such as PgBouncer, that lends a
 * database connection for one transaction at a time. The store then uses nothing that outlives a transaction:
 * no prepared statements, no settings, no `listen`.
 */
export type DatabaseLocation = {
  /** `postgres://user:password@host:port/database?sslmode=…`, with one host or several. */
  url: string;
  pooling?: Pooling;
  /** The keys that encrypt secrets in rows; equal on all nodes. */
  keys?: KeySource;
};
/** How long a connection of the database belongs to this process: see `DatabaseLocation`. */
export type Pooling = "session" | "transaction";

/** The options of a PostgreSQL store: where the database is, and what the store needs from its node. */
export type PostgresOptions = DatabaseLocation & {
  node: NodeId;
  /** The version of this program. Other nodes can read it. */
  version?: string;
  random(): number;
  /** The clock of this machine, which the dispatcher uses too, and a function that waits. */
  clock: { now(): Millis; sleep(until: Millis, wake: AbortSignal): Promise<void> };
  /** Replaces the database's clock in tests. */
  now?: () => Millis;
  /** The maximum time of a batch. Default: see `batchTimeout` in `deadline.ts`. */
  batchTimeout?: Millis;
  /**
   * Called with the round trip to the database in milliseconds, after the first one and whenever the fastest
   * of five exceeds `slowRoundTrip`.
   */
  onRoundTrip?(roundTrip: Millis): void;
  /**
   * Called if the database has lost batches that it had acknowledged to this node, for example after a
   * failover.
   */
  onLoss?(loss: CommitLoss): void;
  /** See `BodyLimit`. */
  maxBody?: number;
  /** See `Moment`. */
  skipsCallsOf?: ClientChoice;
  /** A monotonic clock: milliseconds since an arbitrary moment. Defaults to `clock`. */
  elapsed?(): Millis;
  /**
   * Called if the database's clock has jumped by more than 5 s, with the jump in milliseconds. A negative
   * jump went back.
   */
  onClockJump?(jump: Millis): void;
  /**
   * Called if the tables have become newer than this program can work with. From then on, this store changes
   * nothing.
   */
  onOutdated?(message: string): void;
  /** Called for a store from which everything was moved, see `createTables`. */
  onMoved?: OnMoved | undefined;
};

/**
 * The server cancels a statement that takes longer than this. If not even the cancellation arrives, the
 * connection is given up 5 s later.
 */
const statementTimeout = 30 * second;
/**
 * How long a node may stay silent during a transaction. A silent node holds its row locks for this long, and
 * other nodes wait for them. The time is short, so that a node with a slow network does not stop the others.
 */
const idleInTransaction = (): Millis => Math.min(2 * second, Math.ceil(spans.lease / 6));
const connectTimeout = 3 * second;

/**
 * The use of a connection. A `writer` and a `listener` send statements before earlier ones are answered
 * (`pipeline`), which the driver must know when it connects. Readers behind a transaction pooler do so too.
 * All other connections send one statement at a time. A `migration` has no time limits. A `look` is a short
 * check.
 */
export type ConnectionKind = "writer" | "reader" | "listener" | "migration" | "look";

/**
 * For each URL, the index of the host that the last connection led to. After a failover, the next connection
 * need not wait for a lost host.
 */
const lastHostByUrl = new Map<string, number>();

const clientSockets = new WeakMap<Client, Socket>();

/** Cuts a connection. Its statements fail at once; `end` would wait for their answers. */
export const cutConnection = (client: Client): void => void clientSockets.get(client)?.destroy();

/** The host of each connection, by its index in the URL. */
const clientHosts = new WeakMap<Client, number>();

/**
 * A round trip that takes longer than this is reported. A transaction holds its row locks for several round
 * trips, so one node's slow network delays the others.
 */
export const slowRoundTrip: Millis = 250;

/** Opens a connection to the first host that accepts one. Throws `Unavailable` if no host accepts one. */
export async function connect(
  { url, pooling }: DatabaseLocation,
  { kind }: { kind: ConnectionKind },
): Promise<Client> {
  const { urls, mustWrite } = parseDatabaseUrl(url);
  const first = lastHostByUrl.get(url) ?? 0;
  let lastError: unknown;
  for (let attempt = 0; attempt < urls.length; attempt++) {
    const hostIndex = (first + attempt) % urls.length;
    try {
      const client = await connectTo(urls[hostIndex] ?? url, { kind, pooling });
      await prepareConnection(client, {
        mustWrite,
        settings: pooling === "transaction" ? "" : settingsOf[kind],
      });
      lastHostByUrl.set(url, hostIndex);
      clientHosts.set(client, hostIndex);
      return client;
    } catch (error) {
      lastError = error;
    }
  }
  throw toUnavailable(lastError);
}

/**
 * Opens a connection to the host of `client` and asks it `select 1`. A refusal counts as an answer. Throws if
 * there is no answer.
 */
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

/**
 * Makes the next connection start with another host than the host of `client`, if the URL names several
 * hosts.
 */
export function avoidHost(client: Client, { url }: DatabaseLocation): void {
  const hostIndex = clientHosts.get(client);
  if (hostIndex !== undefined && lastHostByUrl.get(url) === hostIndex)
    lastHostByUrl.set(url, (hostIndex + 1) % parseDatabaseUrl(url).urls.length);
}

async function connectTo(
  url: string,
  { kind, pooling }: { kind: ConnectionKind; pooling: Pooling | undefined },
): Promise<Client> {
  const isPipelined =
    kind === "writer" || kind === "listener" || (kind === "reader" && pooling === "transaction");
  const socket = new Socket();
  const client = new Client({
    ...makeClientConfig(url, { kind, pooling }),
    pipeline: isPipelined,
    stream: () => socket,
  });
  clientSockets.set(client, socket);
  // The error is not lost, because callers that wait for an answer get it too. Without a listener, it would
  // end the process.
  client.on("error", () => undefined);
  try {
    await client.connect();
    return client;
  } catch (error) {
    await client.end().catch(() => undefined);
    throw error;
  }
}

/** Checks and configures a new connection. Closes the connection if this fails. */
async function prepareConnection(
  client: Client,
  { mustWrite, settings }: { mustWrite: boolean; settings: string },
): Promise<void> {
  try {
    const [row] = mustWrite ? await runPlain(client, "show transaction_read_only") : [];
    if (row && row.transaction_read_only !== "off")
      throw new Unavailable(
        "no host of the database accepts writes; the last one tried is a standby; check the hosts in its URL",
      );
    if (settings !== "") await runPlain(client, settings);
  } catch (error) {
    await client.end().catch(() => undefined);
    throw error;
  }
}

function makeClientConfig(
  url: string,
  { kind, pooling }: { kind: ConnectionKind; pooling: Pooling | undefined },
): ClientConfig {
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
  // A pooler refuses connections with these parameters.
  if (pooling === "transaction") return withTimeout;
  return {
    ...withTimeout,
    statement_timeout: statementTimeout,
    idle_in_transaction_session_timeout: idleInTransaction(),
  };
}

/**
 * How long a transaction waits for a lock at the first try, in milliseconds. Each retry doubles the time.
 * With this timeout, nodes notice a deadlock long before the database would (`deadlock_timeout`, 1 s).
 */
export const firstLockTimeout: Millis = 50;

/**
 * Settings that make writers and readers find rows through keys, regardless of the statistics. The statistics
 * are never right for tables that fill and empty all the time. In one case, the scan of a small table with 30
 * live and thousands of dead rows took half of the time of a batch.
 */
const plannerSettings = [
  "enable_seqscan = off",
  "enable_hashjoin = off",
  "enable_mergejoin = off",
  "jit = off",
];

/**
 * Returns the limits of a transaction as SQL. Returns an empty text if the connection has these limits
 * already.
 */
export const formatTransactionLimits = ({ pooling }: DatabaseLocation): string =>
  pooling === "transaction"
    ? [
        `statement_timeout = ${statementTimeout}`,
        `idle_in_transaction_session_timeout = ${idleInTransaction()}`,
        ...plannerSettings,
      ]
        .map((setting) => `; set local ${setting}`)
        .join("")
    : "";

const toSettingsSql = (settings: readonly string[]): string =>
  settings.map((setting) => `set ${setting}`).join("; ");

/**
 * The settings of each kind of connection, so that transactions need not set them. With `force_generic_plan`,
 * every statement is planned once, for any number of keys and for any limit. A reader waits for a lock as
 * long as a statement may take, because it waits only while a partition of the log is added or removed.
 */
const readerSettings = [...plannerSettings, "plan_cache_mode = force_generic_plan"];
const settingsOf: Record<ConnectionKind, string> = {
  writer: toSettingsSql([...readerSettings, `lock_timeout = ${firstLockTimeout}`]),
  reader: toSettingsSql(readerSettings),
  listener: "",
  migration: "",
  look: "",
};

/** Reports whether statements may be prepared and kept on a connection. */
export const canPrepare = ({ pooling }: DatabaseLocation): boolean => pooling !== "transaction";

/**
 * Runs one read. Behind a transaction pooler the read is a transaction, with the limits that the connection
 * lacks.
 */
export async function runRead(
  client: Client,
  location: DatabaseLocation,
  query: QueryConfig,
): Promise<QueryResult> {
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

/**
 * Parses times as numbers and bodies as bytes, on connections of this file only. Other users of the driver
 * keep their parsers.
 */
const parsers: CustomTypesConfig = {
  getTypeParser: ((oid: number, format: "text"): unknown => {
    if (oid === int8) return Number;
    return oid === bytea ? parseBytea : types.getTypeParser(oid, format);
  }) as CustomTypesConfig["getTypeParser"],
};

/** Parses `\x` followed by hexadecimal digits. */
function parseBytea(text: string): Uint8Array {
  const buffer = Buffer.from(text.slice(2), "hex");
  return new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength);
}
