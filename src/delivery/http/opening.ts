import { Socket } from "node:net";
import type { buildConnector } from "undici";
import type { Millis } from "../../core/model/message.ts";
import { alarm } from "../../clock/clock.ts";
import type { Sockets } from "./sockets.ts";

/** Pause before the next try if the process has no free socket: idle connections are closed within some seconds. */
const untilOthersEnd: Millis = 100;

/** All sockets that destinations may have are in use. */
const shortage = Object.assign(new Error("no more sockets"), { code: "EMFILE" });

const isShortage = (error: unknown): boolean =>
  error instanceof Error && "code" in error && (error.code === "EMFILE" || error.code === "ENFILE");

export type OpeningOptions = {
  connector: buildConnector.connector;
  target: buildConnector.Options;
  sockets: Sockets;
  /** Whether a request waits for the connection. */
  isWanted(): boolean;
  /** The socket is open, and its place among `sockets` is taken. */
  opened(socket: Socket): void;
  failed(error: unknown): void;
};

/**
 * One connection that is being opened. If the process can have no more sockets, that is tried again for as long as a request waits,
 * because it is not the fault of the destination. After `opened` or `failed`, or after it was cut, nothing more happens.
 */
export class Opening {
  readonly #options: OpeningOptions;
  #stop: (() => void) | null = null;

  constructor(options: OpeningOptions) {
    this.#options = options;
  }

  /** May call `opened` or `failed` before it returns. */
  begin(): void {
    const { connector, target, sockets, opened } = this.#options;
    this.#stop = null;
    if (!sockets.take()) return this.#failed(shortage);
    let isOver = false;
    const answered = (error: unknown, socket: Socket | null): void => {
      if (isOver) return void socket?.destroy();
      isOver = true;
      this.#stop = null;
      if (socket) return opened(socket);
      sockets.give();
      this.#failed(error);
    };
    try {
      // It returns the socket, of which its types say nothing.
      const socket: unknown = connector(target, answered);
      if (isOver || !(socket instanceof Socket)) return;
      this.#stop = () => {
        isOver = true;
        sockets.give();
        socket.destroy(new Error("given up"));
      };
    } catch (error) {
      // A connection that cannot be begun has failed like any other. An exception would keep its place, or end the process.
      answered(error, null);
    }
  }

  /** Gives it up, and returns whether that was possible. */
  cut(): boolean {
    const stop = this.#stop;
    this.#stop = null;
    stop?.();
    return stop !== null;
  }

  #failed(error: unknown): void {
    const { isWanted, failed } = this.#options;
    if (isShortage(error) && isWanted()) this.#stop = alarm(untilOthersEnd, () => this.begin());
    else failed(error);
  }
}
