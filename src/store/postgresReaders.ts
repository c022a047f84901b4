import type { Client, QueryConfig } from "pg";
import type { Connection } from "./database.ts";
import { orUnavailable } from "./group.ts";
import { sealsOf } from "./keyRing.ts";
import type { Answer, Place } from "./postgresSession.ts";
import { connect, connectionOf, inTransaction, isPrepared } from "./postgresSession.ts";
import { Unavailable } from "./store.ts";

const readers = 4;

export type Readers = { connection: Connection; close(): Promise<void> };

/** A few connections for plain reads, each opened when it is first needed. A read that met a connection that was lost is put once more. */
export function readersOf(place: Place): Readers {
  const pool = new Pool(place);
  const seals = sealsOf(place.keys ?? null);
  const { dialect, query, each } = connectionOf((asked) => pool.ask(asked), { prepares: isPrepared(place), seals });
  return {
    connection: {
      ...{ dialect, seals },
      query: (sql, values) => orUnavailable(query(sql, values)),
      each: (sql, types, rows) => orUnavailable(each(sql, types, rows)),
    },
    close: () => pool.close(),
  };
}

class Pool {
  readonly #place: Place;
  readonly #idle: Client[] = [];
  /** Those who wait for a connection. They hold a request each, so there are no more of them than the server takes in. */
  readonly #waiting: (() => void)[] = [];
  #free = readers;
  #isClosed = false;

  constructor(place: Place) {
    this.#place = place;
  }

  async ask(query: QueryConfig): Promise<Answer> {
    if (this.#free === 0) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    else this.#free--;
    try {
      return await this.#once(query).catch((error: unknown) => {
        if (error instanceof Unavailable) return this.#once(query);
        throw error;
      });
    } finally {
      const next = this.#waiting.shift();
      if (next) next();
      else this.#free++;
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all(this.#idle.splice(0).map((client) => client.end().catch(() => undefined)));
  }

  async #once(query: QueryConfig): Promise<Answer> {
    const client = this.#idle.pop() ?? (await this.#open());
    let isLost = false;
    try {
      return await inTransaction(client, this.#place, query);
    } catch (error) {
      isLost = error instanceof Unavailable;
      throw error;
    } finally {
      if (isLost || this.#isClosed) void client.end().catch(() => undefined);
      else this.#idle.push(client);
    }
  }

  async #open(): Promise<Client> {
    const client = await connect(this.#place, { kind: "reader" });
    client.once("end", () => {
      const place = this.#idle.indexOf(client);
      if (place >= 0) this.#idle.splice(place, 1);
    });
    return client;
  }
}
