import type { Client } from "pg";
import { createIdGenerator } from "../../core/values/ids.ts";
import type { Millis } from "../../core/values/basics.ts";
import type { NodeMembership } from "../../core/cluster/takeover.ts";
import type { DatabaseConnection, Database, Deadline } from "../sql/database.ts";
import { LostUpdate } from "../sql/database.ts";
import { afterNextPoll } from "../batch/coalesce.ts";
import type { StoreBackend } from "../batch/groupCommit.ts";
import { createGroupCommitStore } from "../batch/groupCommit.ts";
import { createCipher, type SecretCipher } from "../layout/keyRing.ts";
import { readHold, writeHold } from "../sql/hold.ts";
import { mergeStoreCounts } from "../sql/counts.ts";
import { isReplaced, isSchemaKnown, replacedSchema } from "../sql/schema.ts";
import { createPostgresTables } from "./schema.ts";
export { inFoundation } from "./schema.ts";
export { openPostgresReads } from "./readers.ts";
export { slowRoundTrip } from "./connect.ts";
import { LogPartitions } from "./logPartitions.ts";
import { isMissingPartition, MissingPartition } from "./partitions.ts";
import type { PeerChannel } from "./peerChannel.ts";
import { openPeerChannel } from "./peerChannel.ts";
import { PostgresMembership, readNodes } from "./membership.ts";
import { NodeRow } from "./nodeRow.ts";
import { assertOwnConnections } from "./pooling.ts";
import type { Readers } from "./readers.ts";
import { openReaders } from "./readers.ts";
import type { PostgresOptions } from "./connect.ts";
import {
  avoidHost,
  connect,
  cutConnection,
  firstLockTimeout,
  canPrepare,
  formatTransactionLimits,
  slowRoundTrip,
} from "./connect.ts";
import { writeProbe } from "./probe.ts";
import {
  isContention,
  isIdleTimeout,
  isOutOfResources,
  readSqlState,
  uniqueViolation,
} from "./databaseErrors.ts";
import { createConnection, runPlain } from "./connection.ts";
import {
  batchTimeout,
  beforeDeadline,
  formatSilenceLimit,
  lateText,
  makeLate,
  silenceForWriting,
  timeToStore,
  withDeadline,
} from "./deadline.ts";
import { whileHostAnswers } from "./hostProbe.ts";
import { createQueries } from "../catalog/queries.ts";
import { RecentHistories } from "../histories/recentHistories.ts";
import { RecentTimeIndex } from "../batch/recentTimeIndex.ts";
import { countBodyBytes } from "../../core/node/weight.ts";
import { runSqlBatch } from "../sql/transaction.ts";
import { readNextDueAt, createSqlReads } from "../sql/reads.ts";

import type { MomentSource, Store } from "../store.ts";
import { createSequencer } from "../batch/sequencer.ts";
import { Interrupted, Outdated, Unavailable } from "../layout/storageErrors.ts";

/**
 * Returns a store on PostgreSQL, which any number of equal nodes can share. One connection writes, a few
 * read, and one listens to the other nodes. The store uses the time of the database, so that nodes
 * agree. This time does not go back if the clock of the database goes back. Due times are in this time too; a
 * dispatcher knows by how much the clock of its machine differs.
 */
export async function postgresStore(options: PostgresOptions): Promise<Store> {
  const { node, clock, random } = options;
  await assertOwnConnections(options, { name: node });
  await createPostgresTables(options, { onMoved: options.onMoved });
  const readers = openReaders(options, createPause(options));
  const database = new PostgresDatabase(options);
  const membership = new PostgresMembership(options);
  const backend = createPostgresBackend(readers, database, {
    node,
    now: () => clock.now(),
    random,
    newId: createIdGenerator(random),
    maxBody: options.maxBody,
    skipsCallsOf: options.skipsCallsOf,
    // A node of another version may not know that a message carries steps that ran on.
    runsOn: () => membership.areAlike(),
  });
  // If the removal fails, the next start tries again.
  await database.removeOldNodes().catch(() => undefined);
  let store: Store | null = null;
  const takeOver = async (lost: NodeMembership): Promise<void> => {
    for (let more = true; more && store;)
      more =
        (await store.execute("takeOver", { ...lost, now: database.now(), limit: takeOverLimit })).reclaimed >
        0;
  };
  const peers = await openPeerChannel({
    ...options,
    connection: readers.connection,
    takeover: { membership, takeOver },
  });
  database.peers = peers;
  store = createGroupCommitStore({
    ...backend,
    upkeep: { membership, nodes: () => readNodes(readers.connection) },
    afterNextPoll,
    pause: (time) => createPause(options)(time, neverAborted),
    ...(options.elapsed && { elapsed: options.elapsed }),
    onOtherNodesDue: (tell) => peers.onDue(tell),
    onAccountsChanged: (tell) => peers.onAccountsChanged(tell),
    notifyAccountsChanged: () => peers.notifyAccountsChanged(),
    onLeasesEnded: (tell) => peers.onLeasesEnded(tell),
    notifyLeasesEnded: () => peers.notifyLeasesEnded(),
    close: async () => {
      await Promise.all([peers.close(), backend.close()]);
    },
  });
  return store;
}

/** The number of messages taken over from a lost node in one batch. */
const takeOverLimit = 1_000;

const neverAborted = new AbortController().signal;

const createPause =
  ({ clock }: Pick<PostgresOptions, "clock">) =>
  (time: Millis, wake: AbortSignal): Promise<void> =>
    clock.sleep(clock.now() + time, wake);

/**
 * Returns the access of one node to a database that has its tables. It receives no notifications from the
 * other nodes.
 */
export function createPostgresBackend(
  readers: Readers,
  database: PostgresDatabase,
  momentSource: MomentSource,
): StoreBackend {
  return {
    runBatch: (calls, capacity) =>
      database
        .withDeadline(
          (deadline) => runSqlBatch({ database, momentSource, deadline }, calls, capacity),
          calls.reduce((sum, { input }) => sum + countBodyBytes(input), 0),
        )
        .catch((error: unknown) => {
          throw isContention(error)
            ? new Interrupted("the storage is locked by other transactions", { cause: error })
            : error;
        }),
    read: createQueries(createSqlReads(readers.connection)),
    nextDueAt: () => readNextDueAt(readers.connection),
    probe: (bytes) => database.probe(bytes),
    hold: {
      isOnHold: () => readHold(readers.connection),
      set: (isOnHold) => database.transaction((connection) => writeHold(connection, isOnHold)),
    },
    forgetBefore: (time) => database.logTruncation.dropBefore(time),
    close: async () => {
      await Promise.all([readers.close(), database.close()]);
    },
  };
}

const countedRoundTrips = 5;

/** The longest pause between two tries of a transaction, in milliseconds. */
const maxPause: Millis = 100;
/** The longest lock timeout. It applies after many tries of a transaction. */
const maxLockTimeout: Millis = 2_000;

type OpenWriter = { client: Client; connection: DatabaseConnection; endError?: unknown };

/** A function that runs in a transaction. See `Database.transaction`. */
type TransactionBody<T> = (connection: DatabaseConnection, startTime: Promise<Millis | null>) => Promise<T>;

/** The connection of one node that writes. */
export class PostgresDatabase implements Database {
  readonly #options: PostgresOptions;
  readonly #cipher: SecretCipher;
  readonly logTruncation: LogPartitions;
  readonly recentTimeIndex = new RecentTimeIndex();
  readonly recentHistories = new RecentHistories();
  peers: PeerChannel | null = null;
  readonly #nodeRow: NodeRow;
  #writer: OpenWriter | null = null;
  #opening: Promise<OpenWriter> | null = null;
  #startedAt: Millis = 0;
  /** `#startedAt` by the clock of this node. */
  #startedAtLocal: Millis = 0;
  #lockTimeout = firstLockTimeout;
  readonly #inSequence = createSequencer();
  /** The round trips of the last transactions, in milliseconds. */
  readonly #roundTrips: Millis[] = [];
  readonly #pause: (time: Millis, wake: AbortSignal) => Promise<void>;

  constructor(options: PostgresOptions) {
    this.#options = options;
    this.#nodeRow = new NodeRow(options, (loss) => {
      this.#forgetRows();
      options.onLoss?.(loss);
    });
    this.#pause = createPause(options);
    this.#cipher = createCipher(options.keys ?? null);
    this.logTruncation = new LogPartitions(options);
  }

  isConflict(error: unknown): boolean {
    if (isOutOfResources(error)) return false;
    const isRace =
      isContention(error) || readSqlState(error) === uniqueViolation || isMissingPartition(error);
    return isRace || [LostUpdate, Interrupted, MissingPartition].some((kind) => error instanceof kind);
  }

  async pause(race: number): Promise<void> {
    this.#lockTimeout = Math.min(firstLockTimeout * 2 ** race, maxLockTimeout);
    const { clock, random } = this.#options;
    await clock.sleep(clock.now() + random() * Math.min(2 ** race, maxPause), new AbortController().signal);
  }

  /**
   * Returns the database's time as far as this node knows it: the time of its last batch plus the time that
   * has passed since.
   */
  now(): Millis {
    return this.#startedAt + Math.max(0, this.#options.clock.now() - this.#startedAtLocal);
  }

  notifyDue(dueAt: Millis): void {
    this.peers?.notifyDue(dueAt, this.now());
  }

  /**
   * Runs transactions one after another. On one connection, a second transaction would become part of the
   * first.
   */
  transaction<T>(run: TransactionBody<T>, deadline?: Deadline): Promise<T> {
    const inTurn = (end: Deadline): Promise<T> => this.#inSequence(() => this.#withPartition(run, end));
    return deadline === undefined ? this.withDeadline(inTurn) : inTurn(deadline);
  }

  /** Runs a function with the deadline of a batch that stores bodies of this many bytes. */
  withDeadline<T>(run: (deadline: Deadline) => Promise<T>, bytes = 0): Promise<T> {
    const time = this.#batchTimeout + timeToStore(bytes, this.#batchTimeout);
    return withDeadline(run, { time, bytes, pause: this.#pause });
  }

  get #batchTimeout(): Millis {
    return this.#options.batchTimeout ?? batchTimeout;
  }

  async #withPartition<T>(run: TransactionBody<T>, deadline: Deadline): Promise<T> {
    try {
      return await this.#runOnce(run, deadline);
    } catch (error) {
      if (!(error instanceof MissingPartition)) throw error;
      await beforeDeadline(deadline.signal, error.created);
      return this.#runOnce(run, deadline);
    }
  }

  /**
   * Stores a change without effect, which needs this much room. The commit is as durable as any other: on the
   * disk of the database and of its standby.
   */
  async probe(bytes: number): Promise<void> {
    const { clock, node } = this.#options;
    const now = clock.now();
    const write: TransactionBody<void> = (connection) => writeProbe(connection, { node, now, bytes });
    await this.withDeadline((deadline) => this.transaction(write, deadline), bytes);
  }

  async allowSilence(connection: DatabaseConnection, bytes: number): Promise<void> {
    const silence = silenceForWriting(bytes, this.#batchTimeout);
    const sql = "select set_config('idle_in_transaction_session_timeout', ?, true)";
    if (silence !== null) await connection.query(sql, [String(silence)]);
  }

  touchNodeRow(connection: DatabaseConnection): Promise<void> {
    return this.#nodeRow.write(connection);
  }

  /** Removes the rows of nodes that have changed nothing for 30 days, and merges the counts of all nodes. */
  async removeOldNodes(): Promise<void> {
    await this.transaction(async (connection, startTime) => {
      await NodeRow.removeOld(connection, (await startTime) ?? 0);
      await mergeStoreCounts(connection);
    });
  }

  async #runOnce<T>(run: TransactionBody<T>, deadline: Deadline): Promise<T> {
    const { signal } = deadline;
    const writer = await beforeDeadline(signal, this.#open());
    const { client } = writer;
    const cut = (): void => cutConnection(client);
    signal.addEventListener("abort", cut, { once: true });
    try {
      return await whileHostAnswers(this.#inTransaction(writer, run, deadline), {
        client,
        location: this.#options,
        pause: this.#pause,
      });
    } finally {
      signal.removeEventListener("abort", cut);
    }
  }

  async #inTransaction<T>(writer: OpenWriter, run: TransactionBody<T>, deadline: Deadline): Promise<T> {
    let isCommitting = false;
    try {
      const startTime = this.#begin(writer, deadline);
      const running = run(writer.connection, startTime);
      const [beginResult, runResult] = await Promise.allSettled([startTime, running]);
      if (beginResult.status === "rejected") throw beginResult.reason;
      if (runResult.status === "rejected") throw runResult.reason;
      const result = runResult.value;
      if (deadline.signal.aborted) throw makeLate();
      isCommitting = true;
      await runPlain(writer.client, "commit");
      this.#nodeRow.committed();
      this.#lockTimeout = firstLockTimeout;
      return result;
    } catch (error) {
      if (isMissingPartition(error)) this.logTruncation.forgetCovered();
      if (!(error instanceof Unavailable) || error instanceof Outdated) {
        await runPlain(writer.client, "rollback").catch(() => this.#drop(writer));
        throw error;
      }
      this.#drop(writer);
      if (!isCommitting || isIdleTimeout(error) || isIdleTimeout(writer.endError))
        throw deadline.signal.aborted ? makeLate(error) : new Interrupted(error.message, { cause: error });
      // The host may have lost its standby, or may no longer be the primary.
      avoidHost(writer.client, this.#options);
      throw deadline.signal.aborted ? new Unavailable(lateText, { cause: error }) : error;
    }
  }

  async close(): Promise<void> {
    await this.#inSequence(async () => this.#writer?.client.end());
  }

  /** Returns the connection. A transaction whose deadline has passed leaves the opening to the next one. */
  #open(): Promise<OpenWriter> {
    if (this.#writer) return Promise.resolve(this.#writer);
    this.#opening ??= this.#openWriter().finally(() => (this.#opening = null));
    return this.#opening;
  }

  async #openWriter(): Promise<OpenWriter> {
    const client = await connect(this.#options, { kind: "writer" }).catch((error: unknown) => {
      throw error instanceof Unavailable ? new Interrupted(error.message, { cause: error }) : error;
    });
    const prepares = canPrepare(this.#options);
    const writer: OpenWriter = {
      client,
      connection: createConnection((query) => client.query(query), { prepares, cipher: this.#cipher }),
    };
    client.once("end", () => this.#drop(writer));
    // If the process was paused, the database may end the connection between two statements. The reason
    // arrives here, and the error of the next statement does not contain it.
    client.once("error", (error: unknown) => (writer.endError = error));
    this.#writer = writer;
    return writer;
  }

  #drop(writer: OpenWriter): void {
    // The next connection may lead to a former standby that has lost rows.
    this.#forgetRows();
    if (this.#writer === writer) this.#writer = null;
    cutConnection(writer.client);
  }

  #forgetRows(): void {
    this.recentTimeIndex.forget();
    this.recentHistories.forget();
  }

  /**
   * Measures the latency by the fastest of five round trips, because a single slow round trip may be a pause
   * of this process.
   */
  #noteRoundTrip(roundTrip: Millis): void {
    const isFirst = this.#roundTrips.length === 0;
    this.#roundTrips.push(roundTrip);
    if (this.#roundTrips.length > countedRoundTrips) this.#roundTrips.shift();
    const fastest = Math.min(...this.#roundTrips);
    const isSlow = this.#roundTrips.length === countedRoundTrips && fastest > slowRoundTrip;
    if (isFirst || isSlow) this.#options.onRoundTrip?.(fastest);
  }

  /** Begins a transaction and returns its time. */
  async #begin({ client }: OpenWriter, deadline: Deadline): Promise<Millis> {
    const { clock, now, onOutdated } = this.#options;
    const isUsual = this.#lockTimeout === firstLockTimeout && canPrepare(this.#options);
    const lockTimeoutSetting = isUsual ? "" : `; set local lock_timeout = ${this.#lockTimeout}`;
    const limits = formatTransactionLimits(this.#options) + formatSilenceLimit(deadline, this.#batchTimeout);
    const askedAt = clock.now();
    const readFrom = this.#nodeRow.elapsed();
    const [row] = await runPlain(
      client,
      `begin isolation level read committed${lockTimeoutSetting}${limits}; ` +
        "select floor(extract(epoch from clock_timestamp()) * 1000)::bigint as now, " +
        `${isSchemaKnown("postgres")}, ${this.#nodeRow.columns}`,
    );
    const reading = { clock: now?.() ?? Number(row?.now), from: readFrom, to: this.#nodeRow.elapsed() };
    this.#startedAtLocal = clock.now();
    this.#noteRoundTrip(Math.max(0, this.#startedAtLocal - askedAt));
    if (isReplaced(row)) {
      onOutdated?.(replacedSchema);
      throw new Outdated(replacedSchema);
    }
    this.#startedAt = this.#nodeRow.begin(row ?? {}, reading);
    const creating = this.logTruncation.ensurePartition(this.#startedAt);
    if (creating) throw new MissingPartition(creating);
    return this.#startedAt;
  }
}
