import type { Connection } from "./connection.ts";

/** The sockets of a node to all destinations together: how many there may be, and which of them are idle. */
export class Sockets {
  readonly #most: number;
  #count = 0;
  /** The one that has been idle for longest is first. */
  readonly #idle = new Set<Connection>();

  /** `most`: how many sockets there may be, those that are being opened included. */
  constructor(most: number) {
    this.#most = most;
  }

  get count(): number {
    return this.#count;
  }

  /** Takes a place for one more socket. If there is none, the connection that has been idle for longest is closed. Returns false if none is idle. */
  take(): boolean {
    if (this.#count >= this.#most) {
      const [oldest] = this.#idle;
      oldest?.close(null);
    }
    if (this.#count >= this.#most) return false;
    this.#count++;
    return true;
  }

  /** Gives a place back: the socket is closed, or was not opened. */
  give(): void {
    this.#count--;
  }

  idle(connection: Connection): void {
    this.#idle.add(connection);
  }

  /** The connection is in use, or gone. */
  busy(connection: Connection): void {
    this.#idle.delete(connection);
  }
}
