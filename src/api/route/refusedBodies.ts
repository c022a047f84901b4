import type { Socket } from "node:net";
import type { Millis } from "../../engine/core/values/basics.ts";
import type { RouteContext } from "./route.ts";

/** The bytes of a refused body that are read from a sender that has not proved an account. */
export const strangerBytes = 1024 * 1024;
/** How long a refused body is read. */
const longest: Millis = 2_000;
/** On how many connections of a port refused bodies of known senders are read at once, and of strangers. */
const maxConnections = 100;

/**
 * A connection whose refused body is read and dropped. `sender` is its known sender, or null.
 * `end` closes it.
 */
type Dropping = { socket: Socket; sender: string | null; maxBytes: number; end(): void };

/**
 * Reads the rest of refused bodies and drops it, so that a client that is still writing gets its response. If
 * the server closed the connection at once, the system would reset it, and many clients would report an error
 * instead of the response and send the whole body again.
 */
export class RefusedBodies {
  readonly #wakeAfter: RouteContext["wakeAfter"];
  readonly #known = new Slots();
  readonly #strangers = new Slots();
  #isClosed = false;

  constructor(wakeAfter: RouteContext["wakeAfter"]) {
    this.#wakeAfter = wakeAfter;
  }

  /** Closes all of these connections. From now on, no refused body is read. */
  close(): void {
    this.#isClosed = true;
    this.#known.close();
    this.#strangers.close();
  }

  /**
   * Reads and drops what arrives until the client ends the connection, up to `maxBytes`, and for 2 s at most.
   * Then calls `end`. Returns false if it does not begin, because the server stops or nothing may be read.
   */
  drop({ socket, sender, maxBytes, end }: Dropping): boolean {
    if (this.#isClosed || maxBytes <= 0) return false;
    let left = maxBytes;
    const free =
      sender === null ? this.#strangers.take(socket.remoteAddress ?? "", end) : this.#known.take(sender, end);
    const stopTimer = this.#wakeAfter(longest, end);
    socket.on("data", (bytes: Buffer) => {
      if ((left -= bytes.length) < 0) end();
    });
    socket.once("end", end);
    socket.once("close", () => {
      stopTimer();
      free();
    });
    socket.resume();
    return true;
  }
}

/**
 * The slots of connections that are read. If all are taken, the next connection gets the slot of the oldest
 * one of the sender that has the most. So no sender keeps the others out.
 */
class Slots {
  readonly #bySender = new Map<string, Set<() => void>>();
  #count = 0;

  /** Takes a slot. `end` closes its connection. Returns a function that frees the slot. */
  take(sender: string, end: () => void): () => void {
    if (this.#count >= maxConnections) this.#endOne();
    const ends = this.#bySender.get(sender) ?? new Set();
    this.#bySender.set(sender, ends.add(end));
    this.#count++;
    return () => this.#free(sender, end);
  }

  close(): void {
    for (const ends of this.#bySender.values()) for (const end of ends) end();
  }

  #free(sender: string, end: () => void): void {
    const ends = this.#bySender.get(sender);
    if (!ends?.delete(end)) return;
    this.#count--;
    if (ends.size === 0) this.#bySender.delete(sender);
  }

  #endOne(): void {
    let most: [string, Set<() => void>] | null = null;
    for (const entry of this.#bySender) if (entry[1].size > (most?.[1].size ?? 0)) most = entry;
    const [end] = most?.[1] ?? [];
    if (most === null || end === undefined) return;
    this.#free(most[0], end);
    end();
  }
}
