import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Millis } from "../../engine/core/values/basics.ts";
import { second } from "../../engine/core/values/time.ts";
import { AnswerTimes, waitAtMost } from "../http/answerTime.ts";
import type { FastParts } from "./answer.ts";
import { admit, answerParsed } from "./answer.ts";
import type { HandOver, PlainService } from "./sockets.ts";
import { PlainSocket } from "./sockets.ts";

/**
 * How long a request waits here for the look-up of its token. After that, the framework waits for the same
 * look-up and answers in time.
 */
const maxLookUp: Millis = second / 2;

/**
 * Responds itself to the requests of a few routes (`onFastPath` in the route table). On a busy server, nearly
 * all requests are for these routes. A full HTTP parser and a framework would add a fifth to the processor
 * time of a message. Node's parser and the framework handle all other requests, and those with anything
 * unusual. Both paths use the same route table, the same admission policy and the same route, so their
 * responses are equal (docs/decisions/0063).
 */
export class FastPath {
  readonly #sockets = new Set<PlainSocket>();
  readonly #fast: FastParts;
  readonly #service: PlainService;

  constructor(
    server: Server,
    { wakeWhenIdle, ...options }: Omit<FastParts, "answerTimes"> & Pick<PlainService, "wakeWhenIdle">,
  ) {
    const { parts, admission } = options;
    const fast = { ...options, answerTimes: new AnswerTimes(parts) };
    this.#fast = fast;
    this.#service = {
      server,
      wakeWhenIdle,
      now: () => parts.now(),
      forget: (socket) => void this.#sockets.delete(socket),
      admit: (head, callerIp) => {
        const admitted = admit(head, callerIp, fast);
        return admitted === "unknown"
          ? waitAtMost(maxLookUp, admission.lookUp(head.authorization ?? ""), parts.wakeAfter)
          : admitted;
      },
    };
  }

  /**
   * Reads a connection while the fast path can answer all of its requests. Then calls `handOver` with the
   * bytes that were read and not answered.
   */
  read(socket: Socket, handOver: HandOver): void {
    this.#sockets.add(new PlainSocket(socket, this.#service, handOver));
  }

  /**
   * Responds to a request that Node's parser has read, on a connection that was handed over. Returns true if
   * the fast path responds to it.
   */
  answer(request: IncomingMessage, response: ServerResponse): boolean {
    return answerParsed(request, response, this.#fast);
  }

  /** Closes the connections that the fast path reads and that wait for a request. */
  closeIdle(): void {
    for (const socket of this.#sockets) socket.closeIfIdle();
  }

  /** Closes all connections that the fast path reads. */
  closeAll(): void {
    for (const socket of this.#sockets) socket.close();
  }
}
