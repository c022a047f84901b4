import type { Client } from "pg";
import { spans } from "../../core/values/limits.ts";
import type { Millis } from "../../core/model/message.ts";
import { migrate } from "../sql/migrate.ts";
import type { Place, PostgresOptions } from "./session.ts";
import { codeOf, connect, connectionOf, isPrepared, plainly } from "./session.ts";
import { Unavailable } from "../store.ts";

/** Any numbers will do that no other program uses on this database. */
export const locks = { migration: 7_709_812_345, foundation: 7_709_812_346, partitions: 7_709_812_347, move: 7_709_812_348 };

/**
 * Whoever asks for the lock of a whole table makes all others wait behind it, until it has it. So migrations ask for so long only, and then
 * let the others pass. The nodes that are at work try their batches again, for half a minute.
 */
const lockTimeout: Millis = 2_000;
/** Between two tries. */
const pause: Millis = 1_000;
/** So often it is tried: for some ten minutes, as another node may be at it, or a backup. */
const mostTries = 200;

type Placed = Place & Pick<PostgresOptions, "clock">;

/** Brings the tables up to this version. Of several nodes that start at once, one does it and the others wait. Those at work go on meanwhile. */
export async function migratePostgres({ clock, ...place }: Placed, { moves = false } = {}): Promise<void> {
  for (let turn = 1; ; turn++) {
    try {
      return await alone(place, "migration", (client) =>
        migrate(
          connectionOf((query) => client.query(query), { prepares: isPrepared(place) }),
          "postgres",
          {
            moves,
            run: async (sql) => void (await plainly(client, sql)),
            hasOthers: async () => (await plainly(client, others)).length > 0,
            keepOthersOut: async () => void (await plainly(client, "lock table schema_version in access exclusive mode")),
          },
        ),
      );
    } catch (error) {
      if (codeOf(error) !== lockNotAvailable) throw error;
      if (turn === mostTries)
        throw new Unavailable("the tables could not be brought up to this version: others hold them locked", { cause: error });
      await clock.sleep(clock.now() + pause, new AbortController().signal);
    }
  }
}

/** Those that are at migrating wait for their turn, and look then. Who only looks will come to that. */
const others = `select 1 from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
  and application_name like 'waypost %' and application_name not in ('waypost migration', 'waypost look')`;

const lockNotAvailable = "55P03";

/**
 * Runs something while no other node does the same: within a transaction, so that it works through any pooler. One that was stopped, or
 * whose machine is gone, keeps the others waiting for the time of a lease, and not until the database misses it.
 */
export async function alone<T>(place: Place, lock: keyof typeof locks, run: (client: Client) => Promise<T>): Promise<T> {
  // Batches wait for a part of the log: where the database does not answer any more, that must come to an end.
  const client = await connect(place, { kind: lock === "partitions" ? "reader" : "migration" });
  try {
    const limits = `set local lock_timeout = ${lockTimeout}; set local idle_in_transaction_session_timeout = ${spans.lease}`;
    await plainly(client, `begin; ${limits}; select pg_advisory_xact_lock(${locks[lock]})`);
    const result = await run(client);
    await plainly(client, "commit");
    return result;
  } finally {
    await client.end();
  }
}

/** Runs what only the first of all nodes shall do: one after another, so that each sees what those before it have done. */
export async function inFoundation<T>({ clock, ...place }: Placed, run: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await alone(place, "foundation", run);
    } catch (error) {
      if (codeOf(error) !== lockNotAvailable) throw error;
      await clock.sleep(clock.now() + pause, new AbortController().signal);
    }
  }
}
