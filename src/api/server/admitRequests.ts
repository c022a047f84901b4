import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { Refusal } from "../../core/values/errors.ts";
import { limits } from "../../core/values/limits.ts";
import type { AdmissionPolicy, Caller, Leave } from "../admission/policy.ts";
import { findAddress } from "../http/address.ts";
import { corsHeaders, isPreflight, preflightHeaders } from "../http/cors.ts";
import { readReservedBytes } from "../http/requestBodyLimits.ts";
import type { Query, Target } from "../http/target.ts";
import { splitQuery, splitTarget } from "../http/target.ts";
import type { Route } from "../route/route.ts";
import { listMethods } from "../route/route.ts";
import type { RouteTable } from "../route/routeTable.ts";
import { routedPath } from "../route/routeTable.ts";

declare module "fastify" {
  interface FastifyRequest {
    target: Target;
    split: Query;
    /** Null until it is known who asks. */
    caller: Caller | null;
    fault: string | null;
  }
  interface FastifyContextConfig {
    route?: Route;
  }
}

type Door = { parts: { corsOrigins?: readonly string[] }; admission: AdmissionPolicy; routes: RouteTable };

/**
 * Has the framework admit each request by the policy before its body is read: where does it go, is there
 * such a thing, and who asks?
 */
export function admitRequests(api: FastifyInstance, { parts, admission, routes }: Door): void {
  for (const name of ["target", "split", "caller", "fault"] as const) api.decorateRequest<unknown>(name, null);
  receive(api, admission);
  api.addHook("preClose", async () => admission.close());
  const look = (request: FastifyRequest, reply: FastifyReply): void => {
    // A malformed content type is for the destination to judge.
    request.headers["content-type"] = undefined;
    request.target = splitTarget(request.originalUrl);
    void reply.headers(corsHeaders(parts.corsOrigins ?? [], request.target.path, request.headers.origin));
    admission.mustBeOpen();
    request.split = splitQuery(request.target.query);
  };
  // No async function: almost every token is remembered, and each promise here would cost every publish a
  // microsecond.
  api.addHook("onRequest", (request, reply, proceed) => {
    const refuse = (error: unknown): void => proceed(reasonFor(error, { request, reply, admission }));
    const enter = (leave: Leave): void => {
      // However it ends: answered, or broken off.
      if (leave) reply.raw.once("close", leave);
      proceed();
    };
    const letIn = (caller: Caller, route: Route): void => {
      request.caller = caller;
      const admitted = admission.admit({
        caller,
        route,
        // A sender that has gone while its token was looked up would never give the room back.
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
      const { authorization } = request.headers;
      const shown = { authorization, parameter: request.split.token, params: readParams(request), address: readCallerIp(request) };
      const caller = admission.identify(route, shown);
      if (caller instanceof Promise) caller.then((found) => letIn(found, route)).catch(refuse);
      else letIn(caller, route);
    } catch (error) {
      refuse(error);
    }
  });
}

type Refused = { request: FastifyRequest; reply: FastifyReply; admission: AdmissionPolicy };

function reasonFor(error: unknown, { request, reply, admission }: Refused): Error {
  const { reason, isExcess } = admission.reasonFor(error, { proof: request.caller?.proof ?? null, address: readCallerIp(request) });
  if (isExcess) void reply.removeHeader("Allow");
  return reason;
}

/** Bids senders that wait send their body, once it is known who asks, and has large ones counted. */
function receive(api: FastifyInstance, admission: AdmissionPolicy): void {
  api.addHook("preParsing", (request, reply, payload, proceed) => {
    const { headers, method } = request.raw;
    if (headers.expect !== undefined && isAwaited(request)) reply.raw.writeContinue();
    // The body of a GET or a HEAD is never read.
    if (method === "GET" || method === "HEAD" || readReservedBytes(headers) !== null) return proceed(null, payload);
    const { body, release } = admission.receive(request.caller?.sender ?? "", payload);
    reply.raw.once("close", release);
    proceed(null, body);
  });
}

/** Whether the sender waits to be told to go on, and what it would send is not too large anyway. */
function isAwaited({ raw, routeOptions }: FastifyRequest): boolean {
  const { expect = "", "content-length": declared = "0" } = raw.headers;
  return (
    raw.httpVersion !== "1.0" && /\b100-continue\b/i.test(expect) && Number(declared) <= (routeOptions.bodyLimit ?? limits.messageBytes)
  );
}

/**
 * The answer to a browser that asks what a page may send. Null if it does not ask that, or the page may
 * send nothing here.
 */
function preflightTo({ target, method, headers }: FastifyRequest, reply: FastifyReply, routes: RouteTable) {
  if (!isPreflight(method, headers) || !reply.hasHeader("Access-Control-Allow-Origin")) return null;
  const methods = methodsOfRows(routes.at(target.path));
  return methods.length === 0 ? null : preflightHeaders(methods, headers);
}

function refuseUnknown({ target, method }: FastifyRequest, reply: FastifyReply, routes: RouteTable): never {
  const path = routedPath(target.path, method);
  // The step of a run that waits for an event of such a name: its client would take a 400 for the end of
  // the run.
  const code = /^\/v2\/wait\//i.test(target.path) ? "step-refused" : "invalid";
  if (path === "/malformed") throw new Refusal(code, "path: the percent-encoding is malformed, or not of UTF-8");
  const rows = routes.at(target.path);
  const allowed = methodsOfRows(rows);
  if (allowed.length === 0) throw new Refusal("not-found", nothingThere);
  reply.header("Allow", allowed.join(", "));
  const [instead] = rows.flatMap((row) => row.instead ?? []);
  throw new Refusal("method-not-allowed", `method: ${method} is not possible here; ${instead ?? `${allowed.join(" or ")} is`}`);
}

/** The methods that these routes answer. */
const methodsOfRows = (rows: readonly Route[]): string[] => [...new Set(rows.flatMap((row) => listMethods(row)))];

const nothingThere = "path: there is nothing at this path; GET /v2/health answers if this is the right server";

/** The parameters in the path of a request. */
export const readParams = ({ params }: FastifyRequest): Record<string, string> =>
  typeof params === "object" && params !== null ? (params as Record<string, string>) : {};

/** What a proxy reports may be no address at all. */
export const readCallerIp = ({ ip, raw }: FastifyRequest): string | null => findAddress(ip, raw.socket.remoteAddress);
