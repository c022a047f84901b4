import type { IncomingMessage, RequestListener, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { FastPath } from "../fastPublish/fastPath.ts";
import type { Begun, Pacing } from "../route/pipelining.ts";
import { PacedSocket, inTurn } from "../route/pipelining.ts";

/** The readers of a server's connections and requests, and how its connections are paced. */
export type Connections = {
  pacing: Pacing;
  /** Null if the fast path is turned off. Then Node's parser reads all connections. */
  fastPath: FastPath | null;
  /**
   * Responds to a request before the framework sees it, if it is for a file of the console or must be
   * refused. Returns true if it did.
   */
  answerEarly(request: IncomingMessage, response: ServerResponse): boolean;
};

/**
 * Decides who reads each connection of a server, and who answers each request. A connection is read by the
 * fast path, which may hand it over, or by Node's parser. A request that Node's parser has read is answered
 * in its turn. The first of these that can do so answers it: the fast path, the early answer, the framework.
 * Only this function replaces listeners of the server. It is called once.
 */
export function direct(server: Server, { pacing, fastPath, answerEarly }: Connections): void {
  const parse = soleListener<(socket: PacedSocket) => void>(server, "connection");
  const answer = soleListener<RequestListener>(server, "request");
  const readByNode = (socket: Socket, begun: Begun | null = null): PacedSocket => {
    const piecemeal = new PacedSocket(socket, pacing, begun);
    parse.call(server, piecemeal);
    return piecemeal;
  };
  const handOver = (socket: Socket, begun: Begun, isSilent: boolean): void => {
    const piecemeal = readByNode(socket, begun);
    // Nothing has arrived in time. Node's parser would have reported that if it had watched the connection.
    if (isSilent)
      server.emit(
        "clientError",
        Object.assign(new Error("Request timeout"), { code: "ERR_HTTP_REQUEST_TIMEOUT" }),
        piecemeal,
      );
  };
  server.on("connection", (socket: Socket) => {
    if (fastPath === null) readByNode(socket);
    else fastPath.read(socket, ({ isSilent, ...begun }) => handOver(socket, begun, isSilent));
  });
  const answerFirst: RequestListener = (request, response) => {
    if (fastPath?.answer(request, response) || answerEarly(request, response)) return;
    answer.call(server, request, response);
  };
  server.on("request", inTurn(answerFirst));
  if (fastPath) closeToo(server, fastPath);
}

/** Removes and returns the one listener that Node or the framework has set for an event. */
function soleListener<L>(server: Server, event: "connection" | "request"): L {
  const [listener, ...others] = server.listeners(event);
  if (!listener || others.length > 0)
    throw new Error(`the server has ${others.length} more listeners for ${event} than the one to replace`);
  server.removeAllListeners(event);
  return listener as L;
}

/** Makes the server close the connections that the fast path reads as well. */
function closeToo(server: Server, fastPath: FastPath): void {
  const closeIdle = server.closeIdleConnections.bind(server);
  const closeAll = server.closeAllConnections.bind(server);
  server.closeIdleConnections = () => {
    fastPath.closeIdle();
    closeIdle();
  };
  server.closeAllConnections = () => {
    fastPath.closeAll();
    closeAll();
  };
}
