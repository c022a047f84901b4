import { STATUS_CODES } from "node:http";
import type { IncomingMessage, Server } from "node:http";
import type { Duplex } from "node:stream";
import type { Brand, Millis } from "../../engine/core/values/basics.ts";
import { PacedSocket, afterResponses } from "../route/pipelining.ts";
import type { PlainService } from "../fastPublish/sockets.ts";
import type { Problem } from "../http/problems.ts";
import { problemBody, toParseProblem } from "../http/problems.ts";

type IdleWatch = Pick<PlainService, "wakeWhenIdle"> & { brand?: Brand };

/** Accepts the requests that Node would refuse by itself or drop silently. */
export function acceptEveryRequest(server: Server, context: IdleWatch): void {
  server.maxHeadersCount = 0;
  // A sender may continue only when it is known: see `receive`.
  server.on("checkContinue", (request, response) => server.emit("request", request, response));
  // An unknown expectation may be ignored (RFC 9110, 10.1.1).
  server.on("checkExpectation", (request, response) => server.emit("request", request, response));
  server.on("connect", (_request: IncomingMessage, socket: Duplex) => {
    // Node removes its own listener from such a connection. An error without a listener would end the
    // process.
    socket.on("error", () => void socket.destroy());
    afterResponses(socket, () => respondRaw(socket, proxyProblem, context));
  });
}

const proxyProblem: Problem = {
  status: 405,
  code: "method-not-allowed",
  error: "method: CONNECT is not allowed; this server is not a proxy",
  fault: null,
};

/** Sends a refusal for bytes that Node could not parse as a request. */
export function respondToBytes(error: Error & { code?: string }, socket: Duplex, context: IdleWatch): void {
  if (error.code === "ECONNRESET" || !socket.writable) return void socket.destroy();
  respondRaw(socket, toParseProblem(error), context);
}

/**
 * How long the other side may take to receive the last answer and to close the connection. A side that never
 * closes would keep the connection open without end.
 */
const closeGrace: Millis = 2_000;

/** Bytes that are not a request have no path and no headers. */
const unknown = { target: { path: "", query: null }, rawHeaders: [] };

function respondRaw(socket: Duplex, problem: Problem, { wakeWhenIdle, brand }: IdleWatch): void {
  const body = JSON.stringify(problemBody({ ...unknown, brand }, problem));
  const head = [
    `HTTP/1.1 ${problem.status} ${STATUS_CODES[problem.status] ?? ""}`,
    "Content-Type: application/json; charset=utf-8",
    `Content-Length: ${Buffer.byteLength(body)}`,
    "Connection: close",
  ].join("\r\n");
  socket.end(`${head}\r\n\r\n${body}`);
  if (socket instanceof PacedSocket) wakeWhenIdle(socket, closeGrace, () => void socket.destroy());
}
