import type { Client } from "pg";
import { idMaker } from "../../core/values/ids.ts";
import type { Millis } from "../../core/model/message.ts";
import type { Session as NodeSession } from "../../core/nodes/takeover.ts";
import type { Connection, Database } from "../sql/database.ts";
import { LostUpdate } from "../sql/database.ts";
import { afterLook } from "../batch/coalesce.ts";
import type { Parts } from "../batch/groupCommit.ts";
import { groupCommit } from "../batch/groupCommit.ts";
import type { Seals } from "../sql/keyRing.ts";
import { sealsOf } from "../sql/keyRing.ts";
import { isReplaced, isSchemaKnown, replacedSchema } from "../sql/schema.ts";
import { createPostgresTables } from "./schema.ts";
export { inFoundation } from "./schema.ts";
export { slowRoundTrip } from "./session.ts";
import { LogPartitions } from "./logPartitions.ts";
import { isWithoutPart } from "./logParts.ts";
import type { Others } from "./listener.ts";
import { othersOf } from "./listener.ts";
import { NodeHold } from "./hold.ts";
import { NodeRow } from "./node.ts";
import { requireOwnConnections } from "./pooling.ts";
import type { Readers } from "./readers.ts";
import { readersOf } from "./readers.ts";
import type { Place, PostgresOptions } from "./session.ts";
import {
  avoidHostOf,
  codeOf,
  connect,
  connectionOf,
  cut,
  firstLockTimeout,
  isEndedIdle,
  isOutOfResources,
  isPrepared,
  limitsWithin,
  plainly,
  slowRoundTrip,
} from "./session.ts";
import { whileHostAnswers } from "./silence.ts";
import { queriesOf } from "../queries/index.ts";
import { RecentSightings } from "../batch/recentTimeIndex.ts";
import { runSqlBatch } from "../sql/transaction.ts";
import { nextDueAt, sqlShelf } from "../sql/reads.ts";
import type { Shelf } from "../queries/storageReads.ts";
import type { Source, Store } from "../store.ts";
import { Interrupted, Outdated, StorageRefused, Unavailable } from "../store.ts";
import { turns } from "../turns.ts";

/**
 * PostgreSQL, shared by any number of equal nodes. One connection writes, a few read, one listens to the other nodes.
 * Time is that of the database, so that nodes agree; it does not go back when the clock of the database does. Due times are told in it, too: a dispatcher knows how its own clock differs.
 */
export async function postgresStore(options: PostgresOptions): Promise<Store> {
  const { node, clock, random } = options;
  await requireOwnConnections(options, { name: node });
  await createPostgresTables(options);
  const readers = readersOf(options, pauseOf(options));
  const database = new PostgresDatabase(options);
  const parts = postgresParts(readers, database, { node, now: () => clock.now(), random, newId: idMaker(random) });
  // It is tried again at the next start.
  await database.removeOldNodes().catch(() => undefined);
  const hold = new NodeHold(options);
  let store: Store | null = null;
  const takeOver = async (session: NodeSession): Promise<void> => {
    for (let more = true; more && store;)
      more = (await store.execute("takeOver", { ...session, now: database.now(), limit: mostTakenOver })).reclaimed > 0;
  };
  const others = await othersOf({ ...options, connection: readers.connection, holding: { hold, takeOver } });
  database.others = others;
  store = groupCommit({
    ...parts,
    hold,
    look: afterLook,
    pause: (time) => pauseOf(options)(time, never),
    hearOthers: (tell) => others.hear(tell),
    hearAccounts: (tell) => others.hearAccounts(tell),
    tellAccounts: () => others.tellAccounts(),
    close: async () => {
      await Promise.all([others.close(), parts.close()]);
    },
  });
  return store;
}

/** Of a node that is gone, with one batch. */
const mostTakenOver = 1_000;

const never = new AbortController().signal;

const pauseOf =
  ({ clock }: Pick<PostgresOptions, "clock">) =>
  (time: Millis, wake: AbortSignal): Promise<void> =>
    clock.sleep(clock.now() + time, wake);

/** The way of one node into a database that has its tables, without word of the other nodes. */
export function postgresParts(readers: Readers, database: PostgresDatabase, source: Source): Parts {
  return {
    runBatch: (calls, hands) =>
      runSqlBatch(database, source, calls, hands).catch((error: unknown) => {
        throw isContention(error) ? new Unavailable("the storage is locked by others", { cause: error }) : error;
      }),
    read: queriesOf(sqlShelf(readers.connection)),
    nextDueAt: () => nextDueAt(readers.connection),
    tryToStore: () => database.tryToStore(),
    forgetBefore: (time) => database.logCut.dropBefore(time),
    close: async () => {
      await Promise.all([readers.close(), database.close()]);
    },
  };
}

/**
 * The plain reads alone, for tools that look into a database and leave it as it is. `name`: no other process calls itself so. Throws
 * `StorageRefused` where there is nothing to look at.
 */
export async function openPostgresShelf(place: Place, { name }: { name: string }): Promise<{ shelf: Shelf; close(): Promise<void> }> {
  await requireOwnConnections(place, { name });
  const { connection, close } = readersOf(place);
  const [found] = await connection.query("select to_regclass('store_schema')::text as name", []);
  if (found?.name) return { shelf: sqlShelf(connection), close };
  await close();
  throw new StorageRefused("there is no store in this database yet; waypost start --database-url with its URL makes one");
}

/** Serialization failure, deadlock, lock timeout: the fault of no command, so there is no sense in running them apart. */
const isContention = (error: unknown): boolean => ["40001", "40P01", "55P03"].includes(codeOf(error) ?? "");
/** Another node made the same row. */
const uniqueViolation = "23505";

const countedRoundTrips = 5;

/** The longest pause between two tries of the same transaction. */
const longestPause: Millis = 100;
/** So long it waits for a lock at most, however often it is tried. */
const longestLockTimeout: Millis = 2_000;

/** The log has no part for this time yet. It is made with no transaction open, as a pooler may have but one connection for us. */
class NoRoom extends Error {
  readonly made: Promise<void>;
  constructor(made: Promise<void>) {
    super("the log has no part for this time");
    this.made = made;
    // Whoever waits for it hears of it.
    made.catch(() => undefined);
  }
}

type Session = { client: Client; connection: Connection; endedBy?: unknown };

/** See `Database.transaction`. */
type Run<T> = (connection: Connection, begun: Promise<Millis | null>) => Promise<T>;

/** The connection of one node that writes. */
export class PostgresDatabase implements Database {
  readonly #options: PostgresOptions;
  readonly #seals: Seals;
  readonly logCut: LogPartitions;
  readonly recentSightings = new RecentSightings();
  others: Others | null = null;
  readonly #row: NodeRow;
  #session: Session | null = null;
  #begunAt: Millis = 0;
  /** The same by the clock of this node. */
  #begunHere: Millis = 0;
  #lockTimeout = firstLockTimeout;
  readonly #inTurn = turns();
  /** Those of the last transactions. */
  readonly #roundTrips: Millis[] = [];
  readonly #pauseFor: (time: Millis, wake: AbortSignal) => Promise<void>;

  constructor(options: PostgresOptions) {
    this.#options = options;
    this.#row = new NodeRow(options);
    this.#pauseFor = pauseOf(options);
    this.#seals = sealsOf(options.keys ?? null);
    this.logCut = new LogPartitions(options);
  }

  isConflict(error: unknown): boolean {
    if (isOutOfResources(error)) return false;
    const isRace = isContention(error) || codeOf(error) === uniqueViolation || isWithoutPart(error);
    return isRace || [LostUpdate, Interrupted, NoRoom].some((kind) => error instanceof kind);
  }

  async pause(race: number): Promise<void> {
    this.#lockTimeout = Math.min(firstLockTimeout * 2 ** race, longestLockTimeout);
    const { clock, random } = this.#options;
    await clock.sleep(clock.now() + random() * Math.min(2 ** race, longestPause), new AbortController().signal);
  }

  /** Returns the time of the database as far as this node knows it: that of its last batch, and what has passed since. */
  now(): Millis {
    return this.#begunAt + Math.max(0, this.#options.clock.now() - this.#begunHere);
  }

  tellOthers(dueAt: Millis): void {
    this.others?.tell(dueAt, this.now());
  }

  /** One after another: in the middle of one, another would be a part of it. */
  transaction<T>(run: Run<T>): Promise<T> {
    return this.#inTurn(() => this.#withRoom(run));
  }

  async #withRoom<T>(run: Run<T>): Promise<T> {
    try {
      return await this.#once(run);
    } catch (error) {
      if (!(error instanceof NoRoom)) throw error;
      await error.made;
      return this.#once(run);
    }
  }

  /** Writes to the log of the database and to a row, and waits until the commit is as durable as any: on its disk, and on its standby. */
  async tryToStore(): Promise<void> {
    const now = this.#options.clock.now();
    await this.transaction(async ({ query }) => {
      await query("select pg_logical_emit_message(true, 'waypost', 'probe')", []);
      await query("update storage_probe set probed_at = ?", [now]);
    });
  }

  sign(connection: Connection): Promise<void> {
    return this.#row.write(connection);
  }

  /** Removes the rows of nodes that have changed nothing for 30 days. */
  async removeOldNodes(): Promise<void> {
    await this.transaction(async (connection, begun) => NodeRow.removeOld(connection, (await begun) ?? 0));
  }

  async #once<T>(run: Run<T>): Promise<T> {
    const session = await this.#open();
    return whileHostAnswers(this.#inSession(session, run), { client: session.client, place: this.#options, pause: this.#pauseFor });
  }

  async #inSession<T>(session: Session, run: Run<T>): Promise<T> {
    let isCommitting = false;
    try {
      const begun = this.#begin(session);
      const running = run(session.connection, begun);
      const [beginning, ran] = await Promise.allSettled([begun, running]);
      if (beginning.status === "rejected") throw beginning.reason;
      if (ran.status === "rejected") throw ran.reason;
      const result = ran.value;
      isCommitting = true;
      await plainly(session.client, "commit");
      this.#row.committed();
      this.#lockTimeout = firstLockTimeout;
      return result;
    } catch (error) {
      if (isWithoutPart(error)) this.logCut.lookAgain();
      if (!(error instanceof Unavailable) || error instanceof Outdated) {
        await plainly(session.client, "rollback").catch(() => this.#drop(session));
        throw error;
      }
      this.#drop(session);
      if (!isCommitting || isEndedIdle(error) || isEndedIdle(session.endedBy)) throw new Interrupted(error.message, { cause: error });
      // It may have lost its standby, or be a primary no more.
      avoidHostOf(session.client, this.#options);
      throw error;
    }
  }

  async close(): Promise<void> {
    await this.#inTurn(async () => this.#session?.client.end());
  }

  async #open(): Promise<Session> {
    if (this.#session) return this.#session;
    const client = await connect(this.#options, { kind: "writer" }).catch((error: unknown) => {
      throw error instanceof Unavailable ? new Interrupted(error.message, { cause: error }) : error;
    });
    const prepares = isPrepared(this.#options);
    const session: Session = { client, connection: connectionOf((query) => client.query(query), { prepares, seals: this.#seals }) };
    client.once("end", () => this.#drop(session));
    // If the process was paused, the reason comes between two statements, and the next statement only learns that the connection is gone.
    client.once("error", (error: unknown) => (session.endedBy = error));
    this.#session = session;
    return session;
  }

  #drop(session: Session): void {
    // What comes next may be a standby that has less.
    this.recentSightings.forget();
    if (this.#session === session) this.#session = null;
    cut(session.client);
  }

  /** One slow round trip may be a pause of this process, so the fastest of five counts. */
  #noteRoundTrip(roundTrip: Millis): void {
    const isFirst = this.#roundTrips.length === 0;
    this.#roundTrips.push(roundTrip);
    if (this.#roundTrips.length > countedRoundTrips) this.#roundTrips.shift();
    const fastest = Math.min(...this.#roundTrips);
    const isSlow = this.#roundTrips.length === countedRoundTrips && fastest > slowRoundTrip;
    if (isFirst || isSlow) this.#options.onRoundTrip?.(fastest);
  }

  /** Answers the time. */
  async #begin({ client }: Session): Promise<Millis> {
    const { clock, now, onOutdated } = this.#options;
    const isUsual = this.#lockTimeout === firstLockTimeout && isPrepared(this.#options);
    const patience = isUsual ? "" : `; set local lock_timeout = ${this.#lockTimeout}`;
    const askedAt = clock.now();
    const from = this.#row.elapsed();
    const [row] = await plainly(
      client,
      `begin isolation level read committed${patience}${limitsWithin(this.#options)}; ` +
        `select floor(extract(epoch from clock_timestamp()) * 1000)::bigint as now, ${isSchemaKnown("postgres")}, ${this.#row.columns}`,
    );
    const reading = { clock: now?.() ?? Number(row?.now), from, to: this.#row.elapsed() };
    this.#begunHere = clock.now();
    this.#noteRoundTrip(Math.max(0, this.#begunHere - askedAt));
    if (isReplaced(row)) {
      onOutdated?.(replacedSchema);
      throw new Outdated(replacedSchema);
    }
    this.#begunAt = this.#row.begin(row ?? {}, reading);
    const room = this.logCut.roomAt(this.#begunAt);
    if (room) throw new NoRoom(room);
    return this.#begunAt;
  }
}
