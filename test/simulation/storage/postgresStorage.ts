import { createIdGenerator } from "../../../src/engine/core/values/ids.ts";
import type { Millis } from "../../../src/engine/core/values/basics.ts";
import type { DatabaseConnection, Deadline } from "../../../src/engine/store/sql/database.ts";
import { PostgresDatabase, createPostgresBackend } from "../../../src/engine/store/postgres/database.ts";
import { createPostgresTables } from "../../../src/engine/store/postgres/schema.ts";
import { openReaders } from "../../../src/engine/store/postgres/readers.ts";
import { beginMembership } from "../../../src/engine/store/postgres/membership.ts";
import type { PostgresOptions } from "../../../src/engine/store/postgres/connect.ts";
import { connect } from "../../../src/engine/store/postgres/connect.ts";
import { createConnection } from "../../../src/engine/store/postgres/connection.ts";
import type { Queries } from "../../../src/engine/store/catalog/queries.ts";
import type { HistoryBodies } from "../../../src/engine/store/histories/historyBodies.ts";
import type { BatchResult, MomentSource } from "../../../src/engine/store/store.ts";
import { TurnTaker } from "./turnTaker.ts";
import { FlakyProxy } from "./flakyProxy.ts";
import { RandomSource } from "../randomSource.ts";
import type { Written } from "./rowWatch.ts";
import { RowWatch } from "./rowWatch.ts";
import type { ConnectionLoss, Storage, NodeStorage } from "./storage.ts";
import { UnreportedBatch } from "./storage.ts";

/**
 * Returns the storage of a simulation on an empty PostgreSQL database. Each node has its own connections and
 * everything that a real node has: transactions, locks, retries. The simulation delivers notifications
 * between nodes, and virtual time is the time of the database.
 */
export async function postgresStorage(url: string): Promise<Storage> {
  await createPostgresTables({ url, clock: { now: () => 0, sleep: async () => undefined } });
  const client = await connect({ url }, { kind: "writer" });
  const connection = createConnection((query) => client.query(query));
  const watch = new RowWatch();
  const work = new TaskQueue();
  const random = new RandomSource(1);
  const ways = new Set<NodeStorage>();
  return {
    open: (source) => {
      const way = createNodeStorage({ url, source, watch, work });
      ways.add(way);
      return way;
    },
    tables: watch.tables,
    beginMembership: (node) => work.track(beginMembership(connection, { node }, 0)),
    changes: () => work.track(watch.changes(connection)),
    together: async (first, second) => {
      const turnTaker = new TurnTaker(random);
      work.turnTaker = turnTaker;
      await turnTaker.runInTurns(first, second).finally(() => (work.turnTaker = null));
      return turnTaker.lostRaces;
    },
    atWork: () => work.underWay(),
    close: async () => {
      await Promise.all([...ways].map((way) => way.close()));
      await client.end();
    },
  };
}

/**
 * Runs tasks one after another, in the order of the requests, so that results do not depend on how long each
 * takes.
 */
class TaskQueue {
  /** Decides between two tasks that overlap. */
  turnTaker: TurnTaker | null = null;
  #turn: Promise<unknown> = Promise.resolve();
  readonly #all = new Set<Promise<unknown>>();

  inTurn<T>(run: () => Promise<T>): Promise<T> {
    const done = this.#turn.then(run);
    this.#turn = done.catch(() => undefined);
    return this.track(done);
  }

  track<T>(work: Promise<T>): Promise<T> {
    const ended: Promise<unknown> = work.catch(() => undefined).then(() => this.#all.delete(ended));
    this.#all.add(ended);
    return work;
  }

  underWay(): Promise<unknown> | null {
    return this.#all.size === 0 ? null : Promise.all(this.#all);
  }
}

/** Shorter pauses are between retries; longer ones wait for a host that does not respond. */
const longPause: Millis = 1_000;

/** Returns the real parts of a node, behind a proxy that can cut connections. */
function createNodeStorage({
  url,
  source,
  watch,
  work,
}: {
  url: string;
  source: MomentSource;
  watch: RowWatch;
  work: TaskQueue;
}): NodeStorage {
  const proxy = new FlakyProxy(url);
  const place = {
    get url() {
      return proxy.url;
    },
  };
  // Pauses between retries do not matter here: at most one other task exists, and it is waited for. The watch
  // for a silent host only ends.
  const sleep = (until: Millis, wake: AbortSignal): Promise<void> =>
    new Promise((resolve) => {
      if (until - source.now() < longPause) return resolve();
      return wake.addEventListener("abort", () => resolve(), { once: true });
    });
  const clock = { now: source.now, sleep };
  const database = new WatchedDatabase(
    Object.assign(place, { node: source.node, random: () => 0, clock, now: source.now }),
    {
      watch,
      proxy,
    },
  );
  const parts = createPostgresBackend(openReaders(place), database, createRetrySource(source, proxy));
  const inTurn = <T>(run: () => Promise<T>): Promise<T> =>
    work.inTurn(async () => {
      await proxy.ready;
      return run();
    });
  const reads = Object.entries(parts.read) as [string, (...of: unknown[]) => Promise<unknown>][];
  const end = (): Promise<void> =>
    inTurn(async () => {
      await parts.close();
      await proxy.close();
    });
  let ending: Promise<void> | null = null;
  return {
    runBatch: (calls, capacity, loss) => {
      const { turnTaker } = work;
      const run = async (): Promise<BatchResult> => {
        database.turnTaker = turnTaker;
        proxy.isStored = false;
        proxy.cut = loss ?? null;
        try {
          return await parts.runBatch(calls, capacity);
        } catch (error) {
          throw proxy.isStored ? new UnreportedBatch(database.stored()) : error;
        } finally {
          proxy.cut = null;
          database.turnTaker = null;
          // The next node must not skip rows that a cut connection has locked for a moment longer.
          if (!turnTaker) await proxy.released();
        }
      };
      return turnTaker ? work.track(proxy.ready.then(run)) : inTurn(run);
    },
    read: Object.fromEntries(
      reads.map(([name, run]) => [name, (...of: unknown[]) => inTurn(() => run(...of))]),
    ) as unknown as Queries,
    nextDueAt: () => inTurn(() => parts.nextDueAt()),
    forgetBefore: (time) => inTurn(async () => parts.forgetBefore?.(time)),
    rowsMet: () => database.met,
    hangUp: () => void inTurn(() => proxy.closeConnections()),
    close: () => (ending ??= end()),
  };
}

/**
 * Returns a source of moments that does not use the randomness of the simulation for attempts that fail, so
 * that retries do not change the simulation.
 */
function createRetrySource(source: MomentSource, proxy: FlakyProxy): MomentSource {
  const vain = new RandomSource(1);
  const random = (): number => vain.next();
  const newId = createIdGenerator(random);
  const isInVain = (): boolean => proxy.cut !== null && proxy.cut.at !== "stored";
  return {
    ...source,
    random: () => (isInVain() ? random() : source.random()),
    newId: (kind, now) => (isInVain() ? newId(kind, now) : source.newId(kind, now)),
  };
}

/** Records what each transaction writes, and the result of the last one. */
class WatchedDatabase extends PostgresDatabase {
  /** Lets another task run in between. */
  turnTaker: TurnTaker | null = null;
  readonly #watch: RowWatch;
  readonly #proxy: FlakyProxy;
  #last: { made: unknown; written: Written[] } = { made: null, written: [] };
  /** The number of transactions that were committed when the last one of this node began. */
  #beganAfter = 0;
  /** The rows that other nodes wrote while the last transaction of this node ran. */
  met: ReadonlySet<string> = new Set();

  constructor(options: PostgresOptions, { watch, proxy }: { watch: RowWatch; proxy: FlakyProxy }) {
    super(options);
    this.#watch = watch;
    this.#proxy = proxy;
  }

  override async transaction<T>(
    run: (connection: DatabaseConnection, started: Promise<number | null>) => Promise<T>,
    deadline?: Deadline,
  ): Promise<T> {
    const watched = async (connection: DatabaseConnection, started: Promise<number | null>): Promise<T> => {
      const written: Written[] = [];
      this.#beganAfter = this.#watch.commits;
      const noting = this.#watch.recordWrites(connection, written);
      const made = await run(this.turnTaker?.wrapConnection(noting) ?? noting, started);
      this.#last = { made, written };
      await this.turnTaker?.offerTurn();
      if (typeof this.#proxy.cut?.at === "number")
        await cutBeforeEnd(connection, this.#proxy, this.#proxy.cut);
      return made;
    };
    let isStored = false;
    try {
      const made = await super.transaction(watched, deadline);
      isStored = true;
      return made;
    } finally {
      this.met = this.#watch.listWrittenAfter(this.#beganAfter);
      // Also if the response was lost.
      if (isStored || this.#proxy.isStored) this.#watch.add(this.#last.written);
    }
  }

  override async pause(race: number): Promise<void> {
    await super.pause(race);
    await this.turnTaker?.loseRace();
  }

  /** Returns the result that was stored although its response was lost. */
  stored(): BatchResult {
    return (this.#last.made as { histories: HistoryBodies }).histories.finish();
  }
}

/** Cuts the connection at the end, because the transaction had fewer statements. */
async function cutBeforeEnd(
  connection: DatabaseConnection,
  proxy: FlakyProxy,
  cut: ConnectionLoss,
): Promise<void> {
  proxy.cut = { ...cut, at: 0 };
  await connection.query("select 1", []);
}
