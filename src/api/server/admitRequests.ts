import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { Millis } from "../../engine/core/values/basics.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import { limits } from "../../engine/core/values/limits.ts";
import { readAttemptToken } from "../auth/shownAttempt.ts";
import type { AdmissionPolicy, Caller, Credentials, Leave } from "../admission/policy.ts";
import { TokenRefusal } from "../auth/tokenRefusal.ts";
import type { BrowserParts } from "./browser.ts";
import { readBrowser } from "./browser.ts";
import { answerInTime } from "../http/answerTime.ts";
import { findAddress } from "../http/address.ts";
import { requestIdHeader } from "../http/requestId.ts";
import { corsHeaders, isPreflight, preflightHeaders } from "../http/cors.ts";
import { readReservedBytes } from "../http/requestBodyLimits.ts";
import type { Query, Target } from "../http/target.ts";
import { splitQuery, splitTarget } from "../http/target.ts";
import { PacedSocket, awaitsContinue } from "../route/pipelining.ts";
import { strangerBytes } from "../route/refusedBodies.ts";
import type { Route, RouteContext } from "../route/route.ts";
import { listMethods } from "../route/route.ts";
import type { RouteTable } from "../route/routeTable.ts";
import { routedPath } from "../route/routeTable.ts";

declare module "fastify" {
  interface FastifyRequest {
    target: Target;
    split: Query;
    /** Null until the sender is known. */
    caller: Caller | null;
    fault: string | null;
    /** The refusal of the token, if its account is known. */
    refusedToken: TokenRefusal | null;
    /** How long the request took until its response began. Only for a response without an end. */
    beganAfter: Millis | null;
    /** How long the request waited until it was admitted. Its body may arrive after that. */
    admittedAfter: Millis | null;
  }
  interface FastifyContextConfig {
    route?: Route;
  }
}

const decorations = [
  ...["target", "split", "caller", "fault", "refusedToken", "beganAfter", "admittedAfter"],
] as const;

type Door = {
  parts: { corsOrigins?: readonly string[] } & BrowserParts & Pick<RouteContext, "wakeAfter">;
  admission: AdmissionPolicy;
  routes: RouteTable;
};

/**
 * Makes the framework admit each request by the policy before it reads the body. A request is admitted if its
 * route exists and its sender may use it.
 */
export function admitRequests(api: FastifyInstance, { parts, admission, routes }: Door): void {
  for (const name of decorations) api.decorateRequest<unknown>(name, null);
  receive(api, admission);
  api.addHook("preClose", async () => admission.close());
  const look = (request: FastifyRequest, reply: FastifyReply): void => {
    // The framework would refuse a malformed content type. Only the destination judges it.
    request.headers["content-type"] = undefined;
    request.target = splitTarget(request.originalUrl);
    reply.header(requestIdHeader, request.id);
    void reply.headers(corsHeaders(parts.corsOrigins ?? [], request.target.path, request.headers.origin));
    admission.assertOpen();
    request.split = splitQuery(request.target.query);
  };
  // This is not an async function. Almost every token is cached, and each promise here would cost every
  // publish 1 µs.
  api.addHook("onRequest", (request, reply, proceed) => {
    const refuse = (error: unknown): void => proceed(reasonFor(error, { request, reply, admission }));
    const enter = (leave: Leave): void => {
      // The response is closed when it was sent or when the connection broke.
      if (leave) reply.raw.once("close", leave);
      request.admittedAfter = reply.elapsedTime;
      proceed();
    };
    const letIn = (caller: Caller, route: Route): void => {
      request.caller = caller;
      readMoreIfRefused(request);
      const admitted = admission.admit({
        caller,
        route,
        // A sender that left while its token was looked up would never release the room.
        bytes: () => (reply.raw.destroyed ? 0 : (readReservedBytes(request.headers) ?? 0)),
        tell: (headers) => void reply.headers(headers),
      });
      if (admitted instanceof Promise) admitted.then(enter).catch(refuse);
      else enter(admitted);
    };
    try {
      look(request, reply);
      const preflight = preflightTo(request, reply, routes);
      if (preflight) return void reply.code(204).headers(preflight).send();
      const { route } = request.routeOptions.config;
      if (request.is404 || !route) return refuseUnknown(request, reply, routes);
      const caller = admission.identify(route, readCredentials(request, route, parts));
      if (caller instanceof Promise)
        answerInTime(() => caller, { wakeAfter: parts.wakeAfter, outcome: "notStored" })
          .then((found) => letIn(found, route))
          .catch(refuse);
      else letIn(caller, route);
    } catch (error) {
      refuse(error);
    }
  });
}

/** Returns the credentials that a request has for a route. */
export const readCredentials = (request: FastifyRequest, route: Route, parts: BrowserParts): Credentials => ({
  authorization: request.headers.authorization,
  parameter: request.split.token,
  params: readParams(request),
  address: readCallerIp(request),
  header: (name) => {
    const value = request.headers[name];
    return Array.isArray(value) ? value.join() : value;
  },
  browser: readBrowser(request, route, parts),
  ...(route.access === "attempt" && { attemptToken: readAttemptToken(request.raw.rawHeaders) }),
});

type Refused = { request: FastifyRequest; reply: FastifyReply; admission: AdmissionPolicy };

function reasonFor(error: unknown, { request, reply, admission }: Refused): Error {
  if (error instanceof TokenRefusal) request.refusedToken = error;
  const { reason, isExcess } = admission.reasonFor(error, {
    isProved: Boolean(request.caller?.proof ?? request.caller?.attempt),
    address: readCallerIp(request),
  });
  if (isExcess) void reply.removeHeader("Allow");
  return reason;
}

/**
 * Sends 100 Continue to a sender that waits for it, once the sender is known. Counts the bytes of large
 * bodies as they arrive.
 */
function receive(api: FastifyInstance, admission: AdmissionPolicy): void {
  // oxlint-disable-next-line max-params -- the framework calls its hooks so
  api.addHook("preParsing", (request, reply, payload, proceed) => {
    const { headers, method } = request.raw;
    if (headers.expect !== undefined && isAwaited(request)) {
      reply.raw.writeContinue();
      if (request.raw.socket instanceof PacedSocket) request.raw.socket.droppedBytes = strangerBytes;
      readMoreIfRefused(request);
    }
    // The body of a GET or a HEAD is never read.
    if (method === "GET" || method === "HEAD" || readReservedBytes(headers) !== null)
      return proceed(null, payload);
    const { body, release } = admission.receive(request.caller?.sender ?? "", payload);
    reply.raw.once("close", release);
    proceed(null, body);
  });
}

/** Reports whether the sender waits for 100 Continue and its declared body is not too large. */
function isAwaited({ raw, routeOptions }: FastifyRequest): boolean {
  const { "content-length": declared = "0" } = raw.headers;
  return awaitsContinue(raw) && Number(declared) <= (routeOptions.bodyLimit ?? limits.messageBytes);
}

/**
 * Lets up to twice the limit of the route be read and dropped if the request is refused, because its sender
 * is known. A sender that waits for 100 Continue sends no body unless it received one.
 */
function readMoreIfRefused({ raw, caller, routeOptions }: FastifyRequest): void {
  const { socket } = raw;
  const { sender = "" } = caller ?? {};
  if (!(socket instanceof PacedSocket) || socket.droppedBytes === 0 || sender === "") return;
  socket.sender = sender;
  socket.droppedBytes = 2 * (routeOptions.bodyLimit ?? limits.messageBytes);
}

/**
 * Returns the headers of the answer to a preflight request. Returns null if the request is not one, or if the
 * page may not send anything here.
 */
function preflightTo({ target, method, headers }: FastifyRequest, reply: FastifyReply, routes: RouteTable) {
  if (!isPreflight(method, headers) || !reply.hasHeader("Access-Control-Allow-Origin")) return null;
  const methods = methodsOfRows(routes.at(target.path));
  return methods.length === 0 ? null : preflightHeaders(methods, headers);
}

function refuseUnknown({ target, method }: FastifyRequest, reply: FastifyReply, routes: RouteTable): never {
  const path = routedPath(target.path, method);
  // A client that posts a wait step treats status 400 as the end of its run, so it gets another status.
  const code = /^\/v2\/wait\//i.test(target.path) ? "step-refused" : "invalid";
  if (path === "/malformed") throw new Refusal(code, "path: the percent-encoding is malformed or not UTF-8");
  const rows = routes.at(target.path);
  const allowed = methodsOfRows(rows);
  if (allowed.length === 0) throw new Refusal("not-found", nothingThere);
  reply.header("Allow", allowed.join(", "));
  const [instead] = rows.flatMap((row) => row.instead ?? []);
  throw new Refusal(
    "method-not-allowed",
    `method: ${method} is not allowed here; ${instead ?? `use ${allowed.join(" or ")}`}`,
  );
}

/** Returns the methods that these routes answer. */
const methodsOfRows = (rows: readonly Route[]): string[] => [
  ...new Set(rows.flatMap((row) => listMethods(row))),
];

const nothingThere = "path: does not exist; GET /v2/health shows whether this is the right server";

/** Returns the parameters in the path of a request. */
export const readParams = ({ params }: FastifyRequest): Record<string, string> =>
  typeof params === "object" && params !== null ? (params as Record<string, string>) : {};

/** Returns the address of the caller. The text that a proxy reports may not be an address. */
export const readCallerIp = ({ ip, raw }: FastifyRequest): string | null =>
  findAddress(ip, raw.socket.remoteAddress);
