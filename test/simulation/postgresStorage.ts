import { idMaker } from "../../src/core/values/ids.ts";
import type { Millis } from "../../src/core/model/message.ts";
import type { Connection } from "../../src/store/sql/database.ts";
import { PostgresDatabase, postgresParts } from "../../src/store/postgres/database.ts";
import { createPostgresTables } from "../../src/store/postgres/schema.ts";
import { readersOf } from "../../src/store/postgres/readers.ts";
import { beginSession } from "../../src/store/postgres/hold.ts";
import type { PostgresOptions } from "../../src/store/postgres/session.ts";
import { connect, connectionOf } from "../../src/store/postgres/session.ts";
import type { Queries } from "../../src/store/queries/index.ts";
import type { BatchResult, Source } from "../../src/store/store.ts";
import { Baton } from "./baton.ts";
import { Cable } from "./cable.ts";
import { Chance } from "./chance.ts";
import type { Written } from "./rowWatch.ts";
import { RowWatch } from "./rowWatch.ts";
import type { Loss, Storage, Way } from "./storage.ts";
import { Unheard } from "./storage.ts";

/**
 * A real PostgreSQL database that is empty. Each node has connections of its own to it, and all that a node of a server has besides: transactions,
 * locks, tries. Nodes are told of each other by the simulation, whose time is the time of the database.
 */
export async function postgresStorage(url: string): Promise<Storage> {
  await createPostgresTables({ url, clock: { now: () => 0, sleep: async () => undefined } });
  const client = await connect({ url }, { kind: "writer" });
  const connection = connectionOf((query) => client.query(query));
  const watch = new RowWatch();
  const work = new Work();
  const chance = new Chance(1);
  const ways = new Set<Way>();
  return {
    open: (source) => {
      const way = wayOf({ url, source, watch, work });
      ways.add(way);
      return way;
    },
    tables: watch.tables,
    beginSession: (node) => work.track(beginSession(connection, node, 0)),
    changes: () => work.track(watch.changes(connection)),
    together: async (first, second) => {
      const baton = new Baton(chance);
      work.baton = baton;
      await baton.carry(first, second).finally(() => (work.baton = null));
      return baton.lostRaces;
    },
    atWork: () => work.underWay(),
    close: async () => {
      await Promise.all([...ways].map((way) => way.close()));
      await client.end();
    },
  };
}

/** One thing after another, in the order in which it was asked for, so that what comes of it does not depend on how long each takes. */
class Work {
  /** Of two that are at work together. */
  baton: Baton | null = null;
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

/** Shorter pauses are between tries; longer ones wait for a host that does not answer. */
const silence: Millis = 1_000;

/** The real parts over a cable that can be cut. */
function wayOf({ url, source, watch, work }: { url: string; source: Source; watch: RowWatch; work: Work }): Way {
  const cable = new Cable(url);
  const place = {
    get url() {
      return cable.url;
    },
  };
  // Pauses between two tries do not matter here: there is at most one other, and it is waited for. The watch for a silent host only ends.
  const sleep = (until: Millis, wake: AbortSignal): Promise<void> =>
    new Promise((resolve) => {
      if (until - source.now() < silence) return resolve();
      return wake.addEventListener("abort", () => resolve(), { once: true });
    });
  const clock = { now: source.now, sleep };
  const database = new WatchedDatabase(Object.assign(place, { node: source.node, random: () => 0, clock, now: source.now }), {
    watch,
    cable,
  });
  const parts = postgresParts(readersOf(place), database, sparing(source, cable));
  const inTurn = <T>(run: () => Promise<T>): Promise<T> =>
    work.inTurn(async () => {
      await cable.ready;
      return run();
    });
  const reads = Object.entries(parts.read) as [string, (...of: unknown[]) => Promise<unknown>][];
  const end = (): Promise<void> =>
    inTurn(async () => {
      await parts.close();
      await cable.close();
    });
  let ending: Promise<void> | null = null;
  return {
    runBatch: (calls, hands, loss) => {
      const { baton } = work;
      const run = async (): Promise<BatchResult> => {
        database.baton = baton;
        cable.isStored = false;
        cable.cut = loss ?? null;
        try {
          return await parts.runBatch(calls, hands);
        } catch (error) {
          throw cable.isStored ? new Unheard(database.stored()) : error;
        } finally {
          cable.cut = null;
          database.baton = null;
          // The next node must not pass over rows that a connection which was cut has locked for a moment longer.
          if (!baton) await cable.released();
        }
      };
      return baton ? work.track(cable.ready.then(run)) : inTurn(run);
    },
    read: Object.fromEntries(reads.map(([name, run]) => [name, (...of: unknown[]) => inTurn(() => run(...of))])) as unknown as Queries,
    nextDueAt: () => inTurn(() => parts.nextDueAt()),
    forgetBefore: (time) => inTurn(async () => parts.forgetBefore?.(time)),
    hangUp: () => void inTurn(() => cable.hangUp()),
    close: () => (ending ??= end()),
  };
}

/** What is tried in vain takes nothing from the chance of the world, which goes on as if nothing had to be tried twice. */
function sparing(source: Source, cable: Cable): Source {
  const vain = new Chance(1);
  const random = (): number => vain.next();
  const newId = idMaker(random);
  const isInVain = (): boolean => cable.cut !== null && cable.cut.at !== "stored";
  return {
    ...source,
    random: () => (isInVain() ? random() : source.random()),
    newId: (kind, now) => (isInVain() ? newId(kind, now) : source.newId(kind, now)),
  };
}

/** Notes what each transaction has written, and what came of the last one. */
class WatchedDatabase extends PostgresDatabase {
  /** Another one may come in between. */
  baton: Baton | null = null;
  readonly #watch: RowWatch;
  readonly #cable: Cable;
  #last: { made: unknown; written: Written[] } = { made: null, written: [] };

  constructor(options: PostgresOptions, { watch, cable }: { watch: RowWatch; cable: Cable }) {
    super(options);
    this.#watch = watch;
    this.#cable = cable;
  }

  override async transaction<T>(run: (connection: Connection, begun: Promise<number | null>) => Promise<T>): Promise<T> {
    const watched = async (connection: Connection, begun: Promise<number | null>): Promise<T> => {
      const written: Written[] = [];
      const noting = this.#watch.noting(connection, written);
      const made = await run(this.baton?.between(noting) ?? noting, begun);
      this.#last = { made, written };
      await this.baton?.moment();
      if (typeof this.#cable.cut?.at === "number") await cutBeforeEnd(connection, this.#cable, this.#cable.cut);
      return made;
    };
    let isStored = false;
    try {
      const made = await super.transaction(watched);
      isStored = true;
      return made;
    } finally {
      // Also where nobody heard of it.
      if (isStored || this.#cable.isStored) this.#watch.add(this.#last.written);
    }
  }

  override async pause(race: number): Promise<void> {
    await super.pause(race);
    await this.baton?.loseRace();
  }

  /** What nobody heard of, although it was stored. */
  stored(): BatchResult {
    return (this.#last.made as { result: BatchResult }).result;
  }
}

/** It had fewer statements than that. */
async function cutBeforeEnd(connection: Connection, cable: Cable, cut: Loss): Promise<void> {
  cable.cut = { ...cut, at: 0 };
  await connection.query("select 1", []);
}
