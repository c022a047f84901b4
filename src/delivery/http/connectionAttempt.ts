import { Socket } from "node:net";
import type { buildConnector } from "undici";
import type { Millis } from "../../core/model/message.ts";
import { alarm } from "../../clock/clock.ts";
import type { SocketLimit } from "./sockets.ts";

/** Pause before the next try if the process has no free socket: idle connections are closed within some seconds. */
const retryPause: Millis = 100;

/** All sockets that destinations may have are in use. */
const socketShortage = Object.assign(new Error("no more sockets"), { code: "EMFILE" });

const isSocketShortage = (error: unknown): boolean =>
  error instanceof Error && "code" in error && (error.code === "EMFILE" || error.code === "ENFILE");

export type ConnectionAttemptOptions = {
  connector: buildConnector.connector;
  target: buildConnector.Options;
  sockets: SocketLimit;
  /** Whether a request waits for the connection. */
  isWanted(): boolean;
  /** The socket is open, and its place among `sockets` is taken. */
  onOpened(socket: Socket): void;
  onFailed(error: unknown): void;
};

/**
 * One connection that is being opened. If the process can have no more sockets, that is tried again for as long as a request waits,
 * because it is not the fault of the destination. After `opened` or `failed`, or after it was cut, nothing more happens.
 */
export class ConnectionAttempt {
  readonly #options: ConnectionAttemptOptions;
  #stop: (() => void) | null = null;

  constructor(options: ConnectionAttemptOptions) {
    this.#options = options;
  }

  /** May call `opened` or `failed` before it returns. */
  begin(): void {
    const { connector, target, sockets, onOpened } = this.#options;
    this.#stop = null;
    if (!sockets.take()) return this.#handleFailure(socketShortage);
    let isOver = false;
    const handleResult = (error: unknown, socket: Socket | null): void => {
      if (isOver) return void socket?.destroy();
      isOver = true;
      this.#stop = null;
      if (socket) return onOpened(socket);
      sockets.release();
      this.#handleFailure(error);
    };
    try {
      // It returns the socket, of which its types say nothing.
      const socket: unknown = connector(target, handleResult);
      if (isOver || !(socket instanceof Socket)) return;
      this.#stop = () => {
        isOver = true;
        sockets.release();
        socket.destroy(new Error("given up"));
      };
    } catch (error) {
      // A connection that cannot be begun has failed like any other. An exception would keep its place, or end the process.
      handleResult(error, null);
    }
  }

  /** Gives it up, and returns whether that was possible. */
  abandon(): boolean {
    const stop = this.#stop;
    this.#stop = null;
    stop?.();
    return stop !== null;
  }

  #handleFailure(error: unknown): void {
    const { isWanted, onFailed } = this.#options;
    if (isSocketShortage(error) && isWanted()) this.#stop = alarm(retryPause, () => this.begin());
    else onFailed(error);
  }
}
