import type { Client, QueryConfig } from "pg";
import type { Millis } from "../../core/model/message.ts";
import type { Connection } from "../sql/database.ts";
import { orUnavailable } from "../batch/groupCommit.ts";
import { sealsOf } from "../sql/keyRing.ts";
import type { Answer, Place } from "./session.ts";
import { connect, connectionOf, inTransaction, isPrepared } from "./session.ts";
import { Silent, whileHostAnswers } from "./silence.ts";
import { Unavailable } from "../store.ts";

const readers = 4;
/** A read that has no connection after this time is refused. */
const queuePatience: Millis = 10_000;

export type Readers = { connection: Connection; close(): Promise<void> };

/** `pause`: waits for this many milliseconds, or until `wake` is aborted. */
type Pause = (time: Millis, wake: AbortSignal) => Promise<void>;

/**
 * A few connections for plain reads, each opened when it is first needed. A read that meets a lost connection is sent once more. While
 * the database does not answer, a read fails with `Unavailable` after 10 s of waiting for a connection, or 8 s on one; without `pause`
 * it waits for as long as the driver does.
 */
export function readersOf(place: Place, pause: Pause = untilWoken): Readers {
  const pool = new Pool(place, pause);
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

const untilWoken: Pause = (_, wake) => new Promise((resolve) => wake.addEventListener("abort", () => resolve(), { once: true }));

class Pool {
  readonly #place: Place;
  readonly #pause: Pause;
  readonly #idle: Client[] = [];
  /** Reads that wait for a connection. Each belongs to a request, so the server bounds their number. */
  readonly #waiting = new Set<() => void>();
  #free = readers;
  #isClosed = false;

  constructor(place: Place, pause: Pause) {
    this.#place = place;
    this.#pause = pause;
  }

  async ask(query: QueryConfig): Promise<Answer> {
    await this.#takeTurn();
    try {
      return await this.#once(query).catch((error: unknown) => {
        if (error instanceof Unavailable && !(error instanceof Silent)) return this.#once(query);
        throw error;
      });
    } finally {
      const [next] = this.#waiting;
      if (next) next();
      else this.#free++;
    }
  }

  /** Waits for one of the connections to be free. Throws `Unavailable` if none is in time. */
  async #takeTurn(): Promise<void> {
    if (this.#free > 0) return void this.#free--;
    const taken = new AbortController();
    const turn = (): void => {
      this.#waiting.delete(turn);
      taken.abort();
    };
    this.#waiting.add(turn);
    await this.#pause(queuePatience, taken.signal);
    this.#waiting.delete(turn);
    if (!taken.signal.aborted) throw new Unavailable("all connections for reading have been busy for 10 s");
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all(this.#idle.splice(0).map((client) => client.end().catch(() => undefined)));
  }

  async #once(query: QueryConfig): Promise<Answer> {
    const client = this.#idle.pop() ?? (await this.#open());
    let isLost = false;
    try {
      const answer = inTransaction(client, this.#place, query);
      return await whileHostAnswers(answer, { client, place: this.#place, pause: this.#pause });
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
