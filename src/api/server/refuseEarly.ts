import type { IncomingMessage, RequestListener, Server, ServerResponse } from "node:http";
import { addressIn } from "../http/address.ts";
import { problemHeaders } from "../http/answerHeaders.ts";
import { limits } from "../../core/values/limits.ts";
import type { RefusedRequests } from "../auth/refusedRequests.ts";
import { problemBody, problemOf } from "../http/problems.ts";
import type { RequestLine } from "../route/requestLog.ts";
import { shownPath } from "../route/requestLog.ts";
import type { RouteTable } from "./routeTable.ts";
import { splitQuery, splitTarget } from "../http/target.ts";

type Early = {
  parts: { corsOrigins?: readonly string[]; log(status: number, line: () => RequestLine): void };
  refused: RefusedRequests;
  routesAt: RouteTable;
  isClosing(): boolean;
};

/**
 * Refuses requests without credentials before the framework sees them, once their address is over its limit: the framework would take most of
 * what they cost. The response is the one that the framework would give. The address is the other end of the connection, so this is not for
 * a server behind proxies.
 */
export function refuseEarly(server: Server, early: Early): void {
  const usual = server.listeners("request") as RequestListener[];
  server.removeAllListeners("request");
  server.on("request", (request: IncomingMessage, response: ServerResponse) => {
    if (!isRefused(request, response, early)) for (const listener of usual) listener.call(server, request, response);
  });
}

/** Reports whether a request was answered. */
function isRefused(request: IncomingMessage, response: ServerResponse, { parts, refused, routesAt, isClosing }: Early): boolean {
  const { method = "", url = "", headers } = request;
  if (headers.authorization !== undefined || method === "OPTIONS" || isClosing()) return false;
  // The usual way adds the headers by which a page may read the answer.
  if (headers.origin !== undefined && parts.corsOrigins?.length) return false;
  const target = splitTarget(url);
  if (splitQuery(target.query).token !== null || !routesAt(target.path).every(({ access }) => withCredentials.has(access))) return false;
  const refusal = refused.excess(addressIn(request.socket.remoteAddress));
  if (refusal === null) return false;
  const problem = problemOf(refusal, limits.messageBytes);
  const text = JSON.stringify(problemBody(target.path, problem));
  const described = { "content-type": "application/json; charset=utf-8", "content-length": Buffer.byteLength(text) };
  response.writeHead(problem.status, { ...described, ...problemHeaders(target.path, problem) }).end(text);
  parts.log(problem.status, () => ({ ...{ method, path: shownPath(target), status: problem.status }, ...{ ms: 0, account: null } }));
  return true;
}

/** The kinds of access that take a header or a query parameter as proof. */
const withCredentials: ReadonlySet<string> = new Set(["token", "account", "operator"]);
