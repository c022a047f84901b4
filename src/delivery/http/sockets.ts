import type { HttpConnection } from "./connection.ts";

/** The sockets of a node to all destinations together: how many there may be, and which of them are idle. */
export class SocketLimit {
  readonly #maxSockets: number;
  #count = 0;
  /** The one that has been idle for longest is first. */
  readonly #idle = new Set<HttpConnection>();

  /** `most`: how many sockets there may be, those that are being opened included. */
  constructor(maxSockets: number) {
    this.#maxSockets = maxSockets;
  }

  get count(): number {
    return this.#count;
  }

  /** Takes a place for one more socket. If there is none, the connection that has been idle for longest is closed. Returns false if none is idle. */
  take(): boolean {
    if (this.#count >= this.#maxSockets) {
      const [oldest] = this.#idle;
      oldest?.close(null);
    }
    if (this.#count >= this.#maxSockets) return false;
    this.#count++;
    return true;
  }

  /** Gives a place back: the socket is closed, or was not opened. */
  release(): void {
    this.#count--;
  }

  markIdle(connection: HttpConnection): void {
    this.#idle.add(connection);
  }

  /** The connection is in use, or gone. */
  markBusy(connection: HttpConnection): void {
    this.#idle.delete(connection);
  }
}
