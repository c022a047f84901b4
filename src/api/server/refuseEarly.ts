import type { IncomingMessage, ServerResponse } from "node:http";
import type { Brand } from "../../engine/core/values/basics.ts";
import type { AdmissionPolicy } from "../admission/policy.ts";
import { hasConsoleCookie } from "../auth/consoleRequest.ts";
import { findAddress } from "../http/address.ts";
import { readRequestId, requestIdHeader } from "../http/requestId.ts";
import { problemHeaders } from "../http/responseHeaders.ts";
import { corsHeaders } from "../http/cors.ts";
import { isLargeBodyComing } from "../http/requestBodyLimits.ts";
import { problemBody, toProblem } from "../http/problems.ts";
import type { UnpublishedCounter } from "../route/unpublishedCounter.ts";
import { noteRefused } from "../route/unpublished.ts";
import type { RequestCounter, RequestLine } from "../route/requestLog.ts";
import { shownPath } from "../route/requestLog.ts";
import type { RouteTable } from "../route/routeTable.ts";
import { splitQuery, splitTarget } from "../http/target.ts";

type EarlyRefusalContext = {
  context: {
    corsOrigins?: readonly string[];
    brand?: Brand;
    log(status: number, line: () => RequestLine): void;
  } & RequestCounter &
    UnpublishedCounter;
  admission: AdmissionPolicy;
  routes: RouteTable;
};

/**
 * Refuses a request without credentials before the framework sees it, if its address is over its limit. The
 * framework causes most of the cost of a request, and this function avoids that cost. Returns true if the
 * request was answered. The response is the same as the framework's. The address is the other end of the
 * connection, so do not use this function behind proxies.
 */
export function refuseEarly(
  request: IncomingMessage,
  response: ServerResponse,
  { context, admission, routes }: EarlyRefusalContext,
): boolean {
  const { method = "", url = "", headers } = request;
  if (headers.authorization !== undefined || method === "OPTIONS" || admission.isClosing) return false;
  if (hasConsoleCookie(headers.cookie)) return false;
  // The framework adds the headers that let a page read the response.
  if (headers.origin !== undefined && context.corsOrigins?.length) return false;
  const target = splitTarget(url);
  if (
    splitQuery(target.query).token !== null ||
    !routes.at(target.path).every(({ access, deprecated }) => withCredentials.has(access) && !deprecated)
  )
    return false;
  const refusal = admission.excess(findAddress(request.socket.remoteAddress));
  if (refusal === null) return false;
  const problem = toProblem(refusal);
  const { rawHeaders } = request;
  const text = JSON.stringify(problemBody({ target, rawHeaders, brand: context.brand }, problem));
  const described = {
    "content-type": "application/json; charset=utf-8",
    "content-length": Buffer.byteLength(text),
  };
  const requestId = readRequestId(request.rawHeaders);
  const more = {
    ...(isLargeBodyComing(request) && { connection: "close" }),
    [requestIdHeader]: requestId,
    ...corsHeaders(context.corsOrigins ?? [], target.path, undefined),
    ...problemHeaders(target.path, problem),
  };
  response.writeHead(problem.status, { ...more, ...described }).end(text);
  context.log(problem.status, () => ({
    requestId,
    method,
    path: shownPath(target),
    status: problem.status,
    ms: 0,
    account: null,
  }));
  const route = routes.at(target.path).find((one) => one.method === method) ?? null;
  context.count?.(route, problem.status, 0);
  const address = findAddress(request.socket.remoteAddress);
  noteRefused(context, { error: refusal, route, proof: null, source: null, address });
  return true;
}

/** The kinds of access that take a header or a query parameter as proof. */
const withCredentials: ReadonlySet<string> = new Set(["token", "account", "operator"]);
