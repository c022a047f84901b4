import type { Client, QueryConfig } from "pg";
import type { Millis } from "../../core/values/basics.ts";
import type { DatabaseConnection } from "../sql/database.ts";
import { withUnavailableRefusal } from "../batch/groupCommit.ts";
import { createCipher } from "../layout/keyRing.ts";
import type { QueryResult } from "./connection.ts";
import type { DatabaseLocation } from "./connect.ts";
import { connect, runRead, canPrepare } from "./connect.ts";
import { createConnection } from "./connection.ts";
import { HostSilent, whileHostAnswers } from "./hostProbe.ts";
import { Unavailable } from "../layout/storageErrors.ts";
import type { StorageReads } from "../layout/storageReads.ts";
import { createSqlReads } from "../sql/reads.ts";
import { NoStore } from "../layout/storageErrors.ts";
import { assertOwnConnections } from "./pooling.ts";

const readerCount = 4;
/** A read that has waited this long for a connection is refused. */
const queueTimeout: Millis = 10_000;

/** Connections for reading. */
export type Readers = { connection: DatabaseConnection; close(): Promise<void> };

/** Waits for `time` milliseconds, or until `wake` is aborted. */
type Pause = (time: Millis, wake: AbortSignal) => Promise<void>;

/**
 * Opens up to four connections for reads, each when it is first needed. If the connection of a read is lost,
 * the read is repeated once. A read fails with `Unavailable` if it has waited 10 s for a free connection, or
 * if the database has not answered for 5 s. Without `pause`, a read waits as long as the driver does.
 */
export function openReaders(location: DatabaseLocation, pause: Pause = untilWoken): Readers {
  const pool = new ReaderPool(location, pause);
  const cipher = createCipher(location.keys ?? null);
  const { dialect, query, each } = createConnection((config) => pool.run(config), {
    prepares: canPrepare(location),
    cipher,
  });
  return {
    connection: {
      dialect,
      cipher,
      query: (sql, values) => withUnavailableRefusal(query(sql, values)),
      each: (sql, types, rows) => withUnavailableRefusal(each(sql, types, rows)),
    },
    close: () => pool.close(),
  };
}

/**
 * Opens the storage reads alone, for tools that inspect a database without changing it. `name` must be unique
 * among all processes. Throws `NoStore` if the database has no store.
 */
export async function openPostgresReads(
  location: DatabaseLocation,
  { name }: { name: string },
): Promise<{ connection: DatabaseConnection; storageReads: StorageReads; close(): Promise<void> }> {
  await assertOwnConnections(location, { name });
  const { connection, close } = openReaders(location);
  const [schemaTable] = await connection.query("select to_regclass('store_schema')::text as name", []);
  if (schemaTable?.name) return { connection, storageReads: createSqlReads(connection), close };
  await close();
  throw new NoStore('the database has no store yet; "waypost start --database-url <url>" creates one');
}

const untilWoken: Pause = (_, wake) =>
  new Promise((resolve) => wake.addEventListener("abort", () => resolve(), { once: true }));

class ReaderPool {
  readonly #location: DatabaseLocation;
  readonly #pause: Pause;
  readonly #idle: Client[] = [];
  /** Reads that wait for a connection. Each belongs to a request, so the server bounds their number. */
  readonly #waiting = new Set<() => void>();
  #free = readerCount;
  #isClosed = false;

  constructor(location: DatabaseLocation, pause: Pause) {
    this.#location = location;
    this.#pause = pause;
  }

  async run(query: QueryConfig): Promise<QueryResult> {
    await this.#waitForConnection();
    try {
      return await this.#runOnce(query).catch((error: unknown) => {
        if (error instanceof Unavailable && !(error instanceof HostSilent)) return this.#runOnce(query);
        throw error;
      });
    } finally {
      const [next] = this.#waiting;
      if (next) next();
      else this.#free++;
    }
  }

  /** Waits for a free connection. Throws `Unavailable` if there is none within 10 s. */
  async #waitForConnection(): Promise<void> {
    if (this.#free > 0) return void this.#free--;
    const taken = new AbortController();
    const turn = (): void => {
      this.#waiting.delete(turn);
      taken.abort();
    };
    this.#waiting.add(turn);
    await this.#pause(queueTimeout, taken.signal);
    this.#waiting.delete(turn);
    if (!taken.signal.aborted)
      throw new Unavailable("all connections for reading have been busy for 10 s; retry later");
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all(this.#idle.splice(0).map((client) => client.end().catch(() => undefined)));
  }

  async #runOnce(query: QueryConfig): Promise<QueryResult> {
    const client = this.#idle.pop() ?? (await this.#open());
    let isLost = false;
    try {
      const answer = runRead(client, this.#location, query);
      return await whileHostAnswers(answer, { client, location: this.#location, pause: this.#pause });
    } catch (error) {
      isLost = error instanceof Unavailable;
      throw error;
    } finally {
      if (isLost || this.#isClosed) void client.end().catch(() => undefined);
      else this.#idle.push(client);
    }
  }

  async #open(): Promise<Client> {
    const client = await connect(this.#location, { kind: "reader" });
    client.once("end", () => {
      const index = this.#idle.indexOf(client);
      if (index >= 0) this.#idle.splice(index, 1);
    });
    return client;
  }
}
