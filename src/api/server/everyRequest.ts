import { STATUS_CODES } from "node:http";
import type { IncomingMessage, Server } from "node:http";
import type { Duplex } from "node:stream";
import type { Millis } from "../../core/model/message.ts";
import { Piecemeal, afterAnswers } from "../route/oneAtATime.ts";
import type { PlainService } from "../fastPublish/sockets.ts";
import type { Problem } from "../http/problems.ts";
import { problemOfBytes } from "../http/problems.ts";

type Lingering = Pick<PlainService, "idleAlarm">;

/** What Node would refuse by itself, or drop without a word. */
export function takeEveryRequest(server: Server, parts: Lingering): void {
  server.maxHeadersCount = 0;
  // Nobody is told to go on before it is known who asks: see `receive`.
  server.on("checkContinue", (request, response) => server.emit("request", request, response));
  // An expectation that is not known may be ignored (RFC 9110, 10.1.1).
  server.on("checkExpectation", (request, response) => server.emit("request", request, response));
  server.on("connect", (_request: IncomingMessage, socket: Duplex) => {
    // Node takes its own listener away from such a connection, and without any an error ends the process.
    socket.on("error", () => void socket.destroy());
    afterAnswers(socket, () => answerRaw(socket, noProxy, parts));
  });
}

const noProxy: Problem = { status: 405, error: "method: CONNECT is not possible; this server is no proxy", fault: null };

/** Answers bytes that Node could not make a request of. */
export function answerBytes(error: Error & { code?: string }, socket: Duplex, parts: Lingering): void {
  if (error.code === "ECONNRESET" || !socket.writable) return void socket.destroy();
  answerRaw(socket, problemOfBytes(error), parts);
}

/** So long the other side may take to hear the last answer and to close as well. Who never does would keep the connection for ever. */
const farewell: Millis = 2_000;

function answerRaw(socket: Duplex, { status, error }: Problem, { idleAlarm }: Lingering): void {
  const body = JSON.stringify({ error });
  const head = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close`;
  socket.end(`${head}\r\n\r\n${body}`);
  if (socket instanceof Piecemeal) idleAlarm(socket, farewell, () => void socket.destroy());
}
