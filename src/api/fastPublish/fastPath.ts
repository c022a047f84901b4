import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { FastParts } from "./answer.ts";
import { admit, answerParsed } from "./answer.ts";
import type { HandOver, PlainService } from "./sockets.ts";
import { PlainSocket } from "./sockets.ts";

/**
 * The fast path answers the requests of a few routes (`onFastPath` in the table of routes) by itself:
 * nearly all that is asked of a busy server. A full parser of HTTP and a framework would add a fifth to the
 * processor time of a message. All other requests, and whatever is unusual about one, go to Node's parser
 * and the framework. Both paths find the route in the same table, admit by the same policy and end in the
 * same row, so they answer the same (docs/decisions/0031, 0037 and 0063).
 */
export class FastPath {
  readonly #sockets = new Set<PlainSocket>();
  readonly #fast: FastParts;
  readonly #service: PlainService;

  constructor(server: Server, { wakeWhenIdle, ...fast }: FastParts & Pick<PlainService, "wakeWhenIdle">) {
    const { parts, admission } = fast;
    this.#fast = fast;
    this.#service = {
      server,
      wakeWhenIdle,
      now: () => parts.now(),
      forget: (socket) => void this.#sockets.delete(socket),
      admit: (head, callerIp) => {
        const admitted = admit(head, callerIp, fast);
        return admitted === "unknown" ? admission.lookUp(head.authorization ?? "") : admitted;
      },
    };
  }

  /**
   * Reads a connection for as long as all that comes over it is for the fast path. Then `handOver` is
   * called with what was read and not answered.
   */
  read(socket: Socket, handOver: HandOver): void {
    this.#sockets.add(new PlainSocket(socket, this.#service, handOver));
  }

  /**
   * Answers a request that Node's parser has read, on a connection that was handed over. Reports whether it
   * is one for the fast path.
   */
  answer(request: IncomingMessage, response: ServerResponse): boolean {
    return answerParsed(request, response, this.#fast);
  }

  /** Closes the connections that it reads and that wait for a request. */
  closeIdle(): void {
    for (const socket of this.#sockets) socket.closeIfIdle();
  }

  /** Closes the connections that it reads. */
  closeAll(): void {
    for (const socket of this.#sockets) socket.close();
  }
}
