import { STATUS_CODES } from "node:http";
import type { IncomingMessage, Server } from "node:http";
import type { Duplex } from "node:stream";
import type { Millis } from "../../core/model/message.ts";
import { PacedSocket, afterResponses } from "../route/pipelining.ts";
import type { PlainService } from "../fastPublish/sockets.ts";
import type { Problem } from "../http/problems.ts";
import { toParseProblem } from "../http/problems.ts";

type IdleWatch = Pick<PlainService, "wakeWhenIdle">;

/** What Node would refuse by itself, or drop without a word. */
export function acceptEveryRequest(server: Server, context: IdleWatch): void {
  server.maxHeadersCount = 0;
  // Nobody is told to go on before it is known who asks: see `receive`.
  server.on("checkContinue", (request, response) => server.emit("request", request, response));
  // An expectation that is not known may be ignored (RFC 9110, 10.1.1).
  server.on("checkExpectation", (request, response) => server.emit("request", request, response));
  server.on("connect", (_request: IncomingMessage, socket: Duplex) => {
    // Node takes its own listener away from such a connection, and without any an error ends the process.
    socket.on("error", () => void socket.destroy());
    afterResponses(socket, () => respondRaw(socket, proxyProblem, context));
  });
}

const proxyProblem: Problem = { status: 405, error: "method: CONNECT is not possible; this server is no proxy", fault: null };

/** Answers bytes that Node could not make a request of. */
export function respondToBytes(error: Error & { code?: string }, socket: Duplex, context: IdleWatch): void {
  if (error.code === "ECONNRESET" || !socket.writable) return void socket.destroy();
  respondRaw(socket, toParseProblem(error), context);
}

/** So long the other side may take to hear the last answer and to close as well. Who never does would keep the connection for ever. */
const closeGrace: Millis = 2_000;

function respondRaw(socket: Duplex, { status, error }: Problem, { wakeWhenIdle }: IdleWatch): void {
  const body = JSON.stringify({ error });
  const head = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close`;
  socket.end(`${head}\r\n\r\n${body}`);
  if (socket instanceof PacedSocket) wakeWhenIdle(socket, closeGrace, () => void socket.destroy());
}
