import type { HttpConnection } from "./connection.ts";

/** The sockets of a node to all destinations: how many there may be, and which of them are idle. */
export class SocketLimit {
  readonly #maxSockets: number;
  #count = 0;
  /** Idle connections. The one that has been idle longest is first. */
  readonly #idle = new Set<HttpConnection>();

  /** `maxSockets` includes sockets that are being opened. */
  constructor(maxSockets: number) {
    this.#maxSockets = maxSockets;
  }

  /** The number of sockets, including those being opened. */
  get count(): number {
    return this.#count;
  }

  /**
   * Takes a slot for one more socket. If there is none, the connection that has been idle longest is closed.
   * Returns false if no connection is idle.
   */
  take(): boolean {
    if (this.#count >= this.#maxSockets) {
      const [oldest] = this.#idle;
      oldest?.close(null);
    }
    if (this.#count >= this.#maxSockets) return false;
    this.#count++;
    return true;
  }

  /** Releases a slot: the socket is closed, or was not opened. */
  release(): void {
    this.#count--;
  }

  /** Notes that a connection is idle, so that it may be closed for another. */
  markIdle(connection: HttpConnection): void {
    this.#idle.add(connection);
  }

  /** Notes that a connection is in use or gone. */
  markBusy(connection: HttpConnection): void {
    this.#idle.delete(connection);
  }
}
