import type { Socket } from "node:net";
import type { Millis } from "../../core/model/message.ts";
import type { RouteContext } from "./route.ts";

/** The bytes of a refused body that are read from a sender that has not proved an account. */
export const strangerBytes = 1024 * 1024;
/** How long a refused body is read, and on how many connections of a port at once. */
const longest: Millis = 2_000;
const maxConnections = 100;

/** A connection whose refused body is read and dropped. `end` closes it. */
type Dropping = { socket: Socket; maxBytes: number; end(): void };

/**
 * Reads the rest of refused bodies and drops it, so that a client that is still writing gets its response. If
 * the server closed the connection at once, the system would reset it, and many clients would report an error
 * instead of the response and send the whole body again.
 */
export class RefusedBodies {
  readonly #wakeAfter: RouteContext["wakeAfter"];
  readonly #ends = new Set<() => void>();
  #isClosed = false;

  constructor(wakeAfter: RouteContext["wakeAfter"]) {
    this.#wakeAfter = wakeAfter;
  }

  /** Closes all of these connections. From now on, no refused body is read. */
  close(): void {
    this.#isClosed = true;
    for (const end of this.#ends) end();
  }

  /**
   * Reads and drops what arrives until the client ends the connection, up to `maxBytes`, and for 2 s at most.
   * Then calls `end`. Returns false if it does not begin, because the server stops or too many other
   * connections are being read.
   */
  drop({ socket, maxBytes, end }: Dropping): boolean {
    if (this.#isClosed || maxBytes <= 0 || this.#ends.size >= maxConnections) return false;
    let left = maxBytes;
    this.#ends.add(end);
    const stopTimer = this.#wakeAfter(longest, end);
    socket.on("data", (bytes: Buffer) => {
      if ((left -= bytes.length) < 0) end();
    });
    socket.once("end", end);
    socket.once("close", () => {
      stopTimer();
      this.#ends.delete(end);
    });
    socket.resume();
    return true;
  }
}
