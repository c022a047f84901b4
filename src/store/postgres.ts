import type { Client } from "pg";
import { idMaker } from "../core/ids.ts";
import type { Millis, NodeId } from "../core/message.ts";
import type { Connection, Database, Dialect } from "./database.ts";
import { LostUpdate } from "./database.ts";
import { groupCommit, orUnavailable } from "./group.ts";
import { migrate } from "./migrate.ts";
import { listenForDue, channel } from "./postgresListener.ts";
import { connect, connectionOf, fault, LostBeforeCommit, readingPool } from "./postgresSession.ts";
import { queriesOf } from "./queries.ts";
import { nextDueAt, runSqlBatch, sqlShelf } from "./sql.ts";
import type { BatchResult, Source, Store } from "./store.ts";
import { Unavailable } from "./store.ts";

/** Waiting, and the time of this machine, as its dispatcher knows it. */
export type Pace = { now(): Millis; sleep(until: Millis, wake: AbortSignal): Promise<void> };

export type PostgresOptions = {
  /** As libpq knows it: `postgres://user:password@host:port/database?sslmode=…`. */
  url: string;
  node: NodeId;
  random(): number;
  clock: Pace;
  /** The time, where it shall not be that of the database: for tests. */
  now?(): Millis;
};

/**
 * PostgreSQL, shared by any number of equal nodes. One connection writes, a few read, one listens to the other nodes.
 * The time is that of the database, so that nodes agree; what this node is told of due times is told in its own time.
 */
export async function postgresStore(options: PostgresOptions): Promise<Store> {
  const { url, node, clock, random } = options;
  const database = new PostgresDatabase(options);
  await database.migrate();
  const pool = readingPool(url);
  const source: Source = { node, now: () => clock.now() + database.ahead, random, newId: idMaker(random) };
  const ours = (at: Millis | null): Millis | null => (at === null ? null : at - database.ahead);
  const listener = await listenForDue({ url, node, clock });
  const read = queriesOf(sqlShelf(pool.connection));
  return groupCommit({
    runBatch: async (calls, hands): Promise<BatchResult> => {
      const result = await runSqlBatch(database, source, calls, hands);
      return { ...result, dueAt: ours(result.dueAt) };
    },
    read: {
      ...{ account: (id) => orUnavailable(read.account(id)), accountByToken: (hash) => orUnavailable(read.accountByToken(hash)) },
      ...{ accounts: () => orUnavailable(read.accounts()), message: (account, id) => orUnavailable(read.message(account, id)) },
      ...{ unfinished: (query) => orUnavailable(read.unfinished(query)), deadLetters: (query) => orUnavailable(read.deadLetters(query)) },
      ...{ deadLetter: (account, id) => orUnavailable(read.deadLetter(account, id)), log: (query) => orUnavailable(read.log(query)) },
      nextExpiryAt: (account, retention) => orUnavailable(read.nextExpiryAt(account, retention)),
    },
    nextDueAt: async () => ours(await orUnavailable(nextDueAt(pool.connection))),
    hearOthers: (tell) => listener.tell((at) => tell(ours(at) ?? clock.now())),
    close: async () => {
      await Promise.all([listener.close(), pool.close(), database.close()]);
    },
  });
}

/** The list of values goes as one array per column, however many rows there are: the statement is always the same. */
const dialect: Dialect = {
  given: (types) => {
    const names = types.map((_, index) => `g${index}`);
    const relation = `unnest(${types.map((type, index) => `$${index + 1}::${type}[]`).join(", ")}) as given(${names.join(", ")})`;
    return {
      ...{ values: `select * from ${relation}`, from: ` from ${relation}`, also: `, ${relation}`, using: ` using ${relation}` },
      column: (index) => `given.g${index}`,
    };
  },
  lock: (of, skip) => ` for update of ${of}${skip ? ` ${skip}` : ""}`,
  lockInOrder: (of, key) => ` order by ${key.map((column) => `${of}.${column}`).join(", ")} for update of ${of}`,
};

/** Any number will do that no other program uses on this database. */
const migrationLock = 7_709_812_345;

/** Beginning and the time in one go. */
const beginning = (time: string): string => `begin isolation level read committed; select ${time} as now`;
const databaseTime = `floor(extract(epoch from clock_timestamp()) * 1000)::bigint`;

class PostgresDatabase implements Database {
  readonly #options: PostgresOptions;
  #client: Client | null = null;
  #begunAt: Millis = 0;
  /** How far the time of the database is ahead of this machine's; the way of the answer is not taken off. */
  ahead: Millis = 0;

  constructor(options: PostgresOptions) {
    this.#options = options;
  }

  async transaction<T>(run: (connection: Connection) => Promise<T>): Promise<T> {
    const client = (this.#client ??= await connect(this.#options.url, () => this.#forget(client)));
    let isCommitting = false;
    try {
      await this.#begin(client);
      const result = await run(connectionOf(dialect, (query) => client.query(query)));
      isCommitting = true;
      await client.query("commit");
      return result;
    } catch (error) {
      throw await this.#afterFault(client, error, isCommitting);
    }
  }
}
