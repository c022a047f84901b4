import type { Client } from "pg";
import { spans } from "../../core/values/limits.ts";
import type { Millis } from "../../core/values/basics.ts";
import { createTables, type TableCreation } from "../sql/schema.ts";
import type { DatabaseLocation, PostgresOptions } from "./connect.ts";
import { readSqlState } from "./databaseErrors.ts";
import { connect, canPrepare } from "./connect.ts";
import { createConnection, runPlain } from "./connection.ts";
import { Unavailable } from "../layout/storageErrors.ts";

/** The keys of advisory locks: arbitrary numbers that no other program uses on this database. */
export const locks = {
  schema: 7_709_812_345,
  foundation: 7_709_812_346,
  partitions: 7_709_812_347,
  move: 7_709_812_348,
};

/** The lock timeout of one try. While a try waits, other sessions wait behind it. */
const lockTimeout: Millis = 2_000;
/** The pause between two tries. */
const pause: Millis = 1_000;
/** Tries for about ten minutes, because another node may be creating the tables. */
const maxTries = 200;

type Placed = DatabaseLocation & Pick<PostgresOptions, "clock">;

/**
 * Creates the tables if there are none. If several nodes start at the same time, one creates them and the
 * others wait.
 */
export async function createPostgresTables(
  { clock, ...place }: Placed,
  creation: Pick<TableCreation, "isMoveTarget" | "onMoved"> = {},
): Promise<void> {
  for (let turn = 1; ; turn++) {
    try {
      return await alone(place, "schema", (client) =>
        createTables(
          createConnection((query) => client.query(query), { prepares: canPrepare(place) }),
          "postgres",
          {
            name: "the database",
            place: "an empty database",
            ...creation,
            run: async (sql) => void (await runPlain(client, sql)),
            hasTable: async (name) =>
              (await runPlain(client, `select to_regclass('${name}')::text as name`))[0]?.name !== null,
          },
        ),
      );
    } catch (error) {
      if (readSqlState(error) !== lockNotAvailable) throw error;
      if (turn === maxTries)
        throw new Unavailable(
          "the tables could not be created: other sessions hold locks on them; end these and restart",
          { cause: error },
        );
      await clock.sleep(clock.now() + pause, new AbortController().signal);
    }
  }
}

const lockNotAvailable = "55P03";

/**
 * Runs `run` while no other node runs it under the same lock. The lock belongs to a transaction, so that it
 * works through any pooler. A stopped node or a lost machine blocks the others only for the time of a lease,
 * and not until the database notices the loss.
 */
export async function alone<T>(
  place: DatabaseLocation,
  lock: keyof typeof locks,
  run: (client: Client) => Promise<T>,
): Promise<T> {
  // Batches wait for a partition of the log, so its creation needs a time limit in case the database does not
  // answer.
  const client = await connect(place, { kind: lock === "partitions" ? "reader" : "migration" });
  try {
    const limits =
      `set local lock_timeout = ${lockTimeout}; ` +
      `set local idle_in_transaction_session_timeout = ${spans.lease}`;
    await runPlain(client, `begin; ${limits}; select pg_advisory_xact_lock(${locks[lock]})`);
    const result = await run(client);
    await runPlain(client, "commit");
    return result;
  } finally {
    await client.end();
  }
}

/**
 * Runs `run` on one node at a time. Each node sees what earlier nodes have created, such as the first
 * account, so only the first node creates it.
 */
export async function inFoundation<T>({ clock, ...place }: Placed, run: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await alone(place, "foundation", run);
    } catch (error) {
      if (readSqlState(error) !== lockNotAvailable) throw error;
      await clock.sleep(clock.now() + pause, new AbortController().signal);
    }
  }
}
