import { Socket } from "node:net";
import type { buildConnector } from "undici";
import type { Millis } from "../../core/values/basics.ts";
import { alarm } from "../../clock/clock.ts";
import type { OpeningTiming } from "../../core/model/attempt.ts";
import { measureOpening } from "./opening.ts";
import type { SocketLimit } from "./sockets.ts";

/**
 * The pause before the next attempt if the process has no free socket. Idle connections are closed within
 * seconds.
 */
const retryPause: Millis = 100;

/** The error if all sockets for destinations are in use. */
const socketShortage = Object.assign(new Error("no more sockets"), { code: "EMFILE" });

const isSocketShortage = (error: unknown): boolean =>
  error instanceof Error && "code" in error && (error.code === "EMFILE" || error.code === "ENFILE");

/** The options of an attempt. */
export type ConnectionAttemptOptions = {
  connector: buildConnector.connector;
  target: buildConnector.Options;
  sockets: SocketLimit;
  /** Reports whether a request waits for the connection. */
  isWanted(): boolean;
  /**
   * Called when the socket is open. It has taken its slot in `sockets`. `opening`: how long it took; null if
   * that is not known.
   */
  onOpened(socket: Socket, opening: OpeningTiming | null): void;
  onFailed(error: unknown): void;
};

/**
 * Opens one connection. If the process can have no more sockets, the attempt retries for as long as a request
 * waits, because the destination is not at fault. After `onOpened`, `onFailed` or `abandon`, nothing more is
 * called.
 */
export class ConnectionAttempt {
  readonly #options: ConnectionAttemptOptions;
  #stop: (() => void) | null = null;

  constructor(options: ConnectionAttemptOptions) {
    this.#options = options;
  }

  /** Starts the attempt. May call `onOpened` or `onFailed` before it returns. */
  begin(): void {
    const { connector, target, sockets, onOpened } = this.#options;
    this.#stop = null;
    if (!sockets.take()) return this.#handleFailure(socketShortage);
    let isOver = false;
    let readOpening: () => OpeningTiming | null = () => null;
    const handleResult = (error: unknown, socket: Socket | null): void => {
      if (isOver) return void socket?.destroy();
      isOver = true;
      this.#stop = null;
      if (socket) return onOpened(socket, readOpening());
      sockets.release();
      this.#handleFailure(error);
    };
    try {
      // The connector returns the socket, although its type does not show it.
      const socket: unknown = connector(target, handleResult);
      if (isOver || !(socket instanceof Socket)) return;
      readOpening = measureOpening(socket, target.protocol === "https:");
      this.#stop = () => {
        isOver = true;
        sockets.release();
        socket.destroy(new Error("given up"));
      };
    } catch (error) {
      // A connection that cannot be started must fail like any other. An exception would keep the slot, or
      // end the process.
      handleResult(error, null);
    }
  }

  /** Gives the attempt up. Returns whether that was possible. */
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
