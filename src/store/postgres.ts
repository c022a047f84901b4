import type { Client } from "pg";
import { idMaker } from "../core/ids.ts";
import type { Millis } from "../core/message.ts";
import type { Connection, Database } from "./database.ts";
import { LostUpdate } from "./database.ts";
import { groupCommit } from "./group.ts";
import type { KeySource, Seals } from "./keyRing.ts";
import { sealsOf } from "./keyRing.ts";
import { migrate } from "./migrate.ts";
import { accountChannel, channel, listenForDue } from "./postgresListener.ts";
import type { PostgresOptions } from "./postgresSession.ts";
import { codeOf, connect, connectionOf, plainly, readingPool } from "./postgresSession.ts";
import { queriesOf } from "./queries.ts";
import { nextDueAt, runSqlBatch, sqlShelf } from "./sql.ts";
import type { Shelf } from "./shelf.ts";
import type { Source, Store } from "./store.ts";
import { Unavailable } from "./store.ts";

/**
 * PostgreSQL, shared by any number of equal nodes. One connection writes, a few read, one listens to the other nodes.
 * Time is that of the database, so that nodes agree. Due times are told in it, too: a dispatcher knows how its own clock differs.
 */
export async function postgresStore(options: PostgresOptions): Promise<Store> {
  const { url, node, clock, random } = options;
  const seals = sealsOf(options.keys ?? null);
  const database = new PostgresDatabase(options, seals);
  await database.migrate();
  const pool = readingPool(url, seals);
  const source: Source = { node, now: () => clock.now(), random, newId: idMaker(random) };
  const listener = await listenForDue({ url, node, clock });
  return groupCommit({
    runBatch: (calls, hands) =>
      runSqlBatch(database, source, calls, hands).catch((error: unknown) => {
        throw isContention(error) ? new Unavailable("the storage is locked by others", { cause: error }) : error;
      }),
    read: queriesOf(sqlShelf(pool.connection)),
    nextDueAt: () => nextDueAt(pool.connection),
    hearOthers: (tell) => listener.hear(tell),
    hearAccounts: (tell) => listener.hearAccounts(tell),
    tellAccounts: async () => {
      await pool.connection.query(`select pg_notify('${accountChannel}', ?)`, [node]);
    },
    close: async () => {
      await Promise.all([listener.close(), pool.close(), database.close()]);
    },
  });
}

/** The plain reads alone, for tools that look into a database and leave it as it is. */
export async function openPostgresShelf(url: string, keys: KeySource = null): Promise<{ shelf: Shelf; close(): Promise<void> }> {
  const { connection, close } = readingPool(url, sealsOf(keys));
  return { shelf: sqlShelf(connection), close };
}

/** Serialization failure, deadlock, lock timeout: the fault of no command, so there is no sense in running them apart. */
const isContention = (error: unknown): boolean => ["40001", "40P01", "55P03"].includes(codeOf(error) ?? "");
/** Another node made the same row. */
const uniqueViolation = "23505";

/** The connection was lost before the end of the transaction, so nothing of it happened. */
class Interrupted extends Unavailable {}

/** Any number will do that no other program uses on this database. */
const migrationLock = 7_709_812_345;
/** The longest pause between two tries of the same transaction. */
const longestPause: Millis = 100;
/**
 * So long a transaction waits for a lock when it is first tried, and twice as long each time it is tried again. Nodes
 * that wait for each other in a circle notice it so, long before the database would (`deadlock_timeout`, a second).
 */
const firstLockTimeout: Millis = 50;
const longestLockTimeout: Millis = 2_000;

type Session = { client: Client; connection: Connection };

class PostgresDatabase implements Database {
  readonly #options: PostgresOptions;
  readonly #seals: Seals;
  #session: Session | null = null;
  #begunAt: Millis = 0;
  #lockTimeout = firstLockTimeout;

  constructor(options: PostgresOptions, seals: Seals) {
    this.#options = options;
    this.#seals = seals;
  }

  now(): Millis {
    return this.#begunAt;
  }

  isConflict(error: unknown): boolean {
    return isContention(error) || codeOf(error) === uniqueViolation || error instanceof LostUpdate || error instanceof Interrupted;
  }

  async pause(race: number): Promise<void> {
    this.#lockTimeout = Math.min(firstLockTimeout * 2 ** race, longestLockTimeout);
    const { clock, random } = this.#options;
    await clock.sleep(clock.now() + random() * Math.min(2 ** race, longestPause), new AbortController().signal);
  }

  async notify(connection: Connection, dueAt: Millis): Promise<void> {
    await connection.query(`select pg_notify('${channel}', ?)`, [`${this.#options.node} ${dueAt}`]);
  }

  async transaction<T>(run: (connection: Connection) => Promise<T>): Promise<T> {
    const session = await this.#open();
    let isCommitting = false;
    try {
      await this.#begin(session);
      const result = await run(session.connection);
      isCommitting = true;
      await plainly(session.client, "commit");
      this.#lockTimeout = firstLockTimeout;
      return result;
    } catch (error) {
      if (!(error instanceof Unavailable)) {
        await plainly(session.client, "rollback").catch(() => this.#drop(session));
        throw error;
      }
      this.#drop(session);
      throw isCommitting ? error : new Interrupted(error.message, { cause: error });
    }
  }

  /** Brings the tables up to this version. Of several nodes that start at once, one does it and the others wait. */
  async migrate(): Promise<void> {
    const client = await connect(this.#options.url, { kind: "migration" });
    const connection = connectionOf((query) => client.query(query));
    try {
      await client.query("begin");
      await connection.query("select pg_advisory_xact_lock(?)", [migrationLock]);
      await migrate(connection, "postgres", async (sql) => {
        await client.query(sql);
      });
      await client.query("commit");
    } finally {
      await client.end();
    }
  }

  async close(): Promise<void> {
    await this.#session?.client.end();
  }

  async #open(): Promise<Session> {
    if (this.#session) return this.#session;
    const client = await connect(this.#options.url, { kind: "writer" });
    const session: Session = { client, connection: connectionOf((query) => client.query(query), this.#seals) };
    client.once("end", () => this.#drop(session));
    this.#session = session;
    return session;
  }

  #drop(session: Session): void {
    if (this.#session === session) this.#session = null;
    void session.client.end().catch(() => undefined);
  }

  async #begin({ client }: Session): Promise<void> {
    const [row] = await plainly(
      client,
      `begin isolation level read committed; set local lock_timeout = ${this.#lockTimeout}; ` +
        `select floor(extract(epoch from clock_timestamp()) * 1000)::bigint as now`,
    );
    this.#begunAt = this.#options.now?.() ?? Number(row?.now);
  }
}
