import Fastify from "fastify";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { limits } from "../../core/values/limits.ts";
import type { AccountId } from "../../core/model/message.ts";
import { noBytes } from "../../core/model/message.ts";
import type { AdmissionParts } from "../admission/policy.ts";
import { AdmissionPolicy } from "../admission/policy.ts";
import { FastPath } from "../fastPublish/fastPath.ts";
import type { PlainService } from "../fastPublish/sockets.ts";
import { formatIgnored, problemHeaders } from "../http/responseHeaders.ts";
import { PagedList, toJsonText } from "../http/pagedList.ts";
import type { ResponseLimits } from "../http/responseLimits.ts";
import type { Problem } from "../http/problems.ts";
import { problemBody, toProblem } from "../http/problems.ts";
import { splitTarget } from "../http/target.ts";
import { withActor, isAudited } from "../route/actor.ts";
import { afterResponses } from "../route/pipelining.ts";
import type { RequestLine } from "../route/requestLog.ts";
import { shownPath } from "../route/requestLog.ts";
import type { RouteResponse, IncomingRequest, RouteContext, Route } from "../route/route.ts";
import { changesAnything, listMethods } from "../route/route.ts";
import { routerPath, routeTable, routingPath } from "../route/routeTable.ts";
import { routes as allRoutes } from "../routes/index.ts";
import { admitRequests, readCallerIp, readParams } from "./admitRequests.ts";
import { direct } from "./connections.ts";
import { respondToBytes, acceptEveryRequest } from "./everyRequest.ts";
import { refuseEarly } from "./refuseEarly.ts";

export type ApiOptions = RouteContext &
  AdmissionParts & {
    /** Whose X-Forwarded-For is believed: nobody's, everybody's, or that of these networks. */
    trustProxy: boolean | string[];
    /** Where others reach this server. Empty: wherever a request was addressed to. */
    publicUrl?: string;
    /** Origins whose pages may read answers in a browser, or `*`. Not given: none. */
    corsOrigins?: readonly string[];
    /** Where accounts have a port of their own: only they are served, and what anybody may ask. */
    servesAccountsOnly?: boolean;
    /** Whether plain publishes are answered before the framework sees them (`api/fastPublish/`). Default: true. */
    fastPath?: boolean;
    /** See `PlainService`. */
    wakeWhenIdle: PlainService["wakeWhenIdle"];
    /** Is told of each request once it is answered. The line is made only when it is asked for. */
    log(status: number, line: () => RequestLine): void;
  };

/** The HTTP interface, ready to listen. Closing it lets running requests end, and refuses new ones. */
export function createApi(options: ApiOptions): FastifyInstance {
  const api = Fastify({
    http: serverOptions,
    ...timing,
    bodyLimit: limits.messageBytes,
    trustProxy: options.trustProxy,
    // Refused by a hook below instead, in the words of this interface.
    return503OnClosing: false,
    // See `listMethods`.
    exposeHeadRoutes: false,
    rewriteUrl: ({ url = "/", method = "", rawHeaders }) => routingPath({ method, target: url, rawHeaders }),
    // Names in a path keep their case.
    routerOptions: {
      caseSensitive: false,
      ignoreTrailingSlash: true,
      maxParamLength: serverOptions.maxHeaderSize,
      querystringParser: () => ({}),
    },
    frameworkErrors: (error, request, reply) =>
      sendProblem(request, reply, toProblem(error, request.routeOptions?.bodyLimit ?? limits.messageBytes)),
    clientErrorHandler: (error, socket) => afterResponses(socket, () => respondToBytes(error, socket, options)),
  });
  acceptEveryBody(api);
  const admission = new AdmissionPolicy(options);
  const routes = routeTable(listServedRoutes(options));
  const { responses: responseLimits } = admission;
  admitRequests(api, { parts: options, admission, routes });
  direct(api.server, {
    pacing: options,
    fastPath: hasFastPath(options)
      ? new FastPath(api.server, { parts: options, admission, routes, wakeWhenIdle: options.wakeWhenIdle })
      : null,
    // Only the framework reads what a proxy reports.
    refuseEarly: (request, response) =>
      options.trustProxy === false && refuseEarly(request, response, { context: options, admission, routes }),
  });
  acceptEveryRequest(api.server, options);
  for (const row of listServedRoutes(options)) addRoute(api, row, options, responseLimits);
  api.addHook("onSend", (request, reply, payload, done) => {
    const { proof } = request.caller ?? {};
    if (proof && !reply.raw.destroyed && (typeof payload === "string" || Buffer.isBuffer(payload))) {
      const release = responseLimits.reserve(proof.account.id, Buffer.byteLength(payload));
      if (release) reply.raw.once("close", release);
    }
    done(null, payload);
  });
  api.setErrorHandler((error, request, reply) =>
    sendProblem(request, reply, toProblem(error, request.routeOptions?.bodyLimit ?? limits.messageBytes)),
  );
  api.addHook("onResponse", (request, reply, done) => {
    options.log(reply.statusCode, () => toRequestLine(request, reply));
    done();
  });
  return api;
}

const listServedRoutes = ({ servesAccountsOnly }: ApiOptions): readonly Route[] =>
  servesAccountsOnly ? allRoutes.filter(({ access }) => access === "account" || access === "operator" || access === "open") : allRoutes;

/** Only the framework reads what a proxy reports, and a port of accounts has no route that the fast path answers. */
const hasFastPath = ({ fastPath = true, trustProxy, servesAccountsOnly }: ApiOptions): boolean =>
  fastPath && trustProxy === false && !servesAccountsOnly;

const serverOptions = {
  maxHeaderSize: 64 * 1024,
  headersTimeout: 30_000,
  connectionsCheckingInterval: 30_000,
  // Without it Node answers by itself, and not in JSON. The name this server is called by makes no difference here.
  requireHostHeader: false,
};

/** A request may take five minutes to arrive, so 100 MB need 3 Mbit/s. Idle connections outlive those of common proxies. */
const timing = { requestTimeout: 300_000, keepAliveTimeout: 72_000 };

/** Bodies are bytes; a route that wants JSON reads it itself. */
function acceptEveryBody(api: FastifyInstance): void {
  api.removeAllContentTypeParsers();
  api.addContentTypeParser("*", { parseAs: "buffer" }, (_request, body, done) => done(null, body));
}

function addRoute(api: FastifyInstance, row: Route, options: ApiOptions, responseLimits: ResponseLimits): void {
  const audited = isAudited(row);
  // What changes something has been done when its answer is there.
  const findReader = ({ caller }: FastifyRequest): AccountId | null =>
    caller?.proof && !changesAnything(row) ? caller.proof.account.id : null;
  api.route({
    method: [...listMethods(row)],
    url: routerPath(row.path),
    bodyLimit: row.body?.maxBytes ?? 1024 * 1024,
    config: { route: row },
    handler: async (request, reply) => {
      const incoming = toIncoming(request, options);
      const reader = findReader(request);
      const make = (): Promise<RouteResponse> => row.respond(incoming, audited ? withActor(row, incoming, options) : options);
      const { status, body, ignored = [], headers = {} } = await (reader === null ? make() : responseLimits.runInTurn(reader, make));
      // Others may have been let in before the first of them had its answer.
      if (reader !== null) responseLimits.checkRoom(reader);
      if (ignored.length > 0) reply.header("Waypost-Ignored", formatIgnored(ignored));
      void reply.code(status).headers(headers);
      if (!(body instanceof PagedList) || reader === null) return reply.send(body);
      return reply.type("application/json; charset=utf-8").send(await toJsonText(body, reader, responseLimits));
    },
  });
}

function toIncoming(request: FastifyRequest, { publicUrl = "" }: ApiOptions): IncomingRequest {
  const { target, split, caller, raw, body } = request;
  return {
    target,
    query: split,
    proof: caller?.proof ?? null,
    source: caller?.source ?? null,
    rawHeaders: raw.rawHeaders,
    origin: publicUrl === "" ? `${request.protocol}://${request.host}` : publicUrl,
    params: readParams(request),
    body: body instanceof Uint8Array ? body : noBytes,
    callerIp: readCallerIp(request),
  };
}

function sendProblem(request: FastifyRequest, reply: FastifyReply, problem: Problem): void {
  const { path } = splitTarget(request.originalUrl);
  request.fault = problem.fault;
  void reply.code(problem.status).headers(problemHeaders(path, problem)).send(problemBody(path, problem));
}

function toRequestLine(request: FastifyRequest, reply: FastifyReply): RequestLine {
  return {
    method: request.method,
    path: shownPath(request.target ?? splitTarget(request.originalUrl), request.caller?.proof?.token),
    status: reply.statusCode,
    ms: Math.round(reply.elapsedTime * 10) / 10,
    account: request.caller?.proof?.account.id ?? request.caller?.source?.account ?? null,
    ...(request.fault === null ? {} : { fault: request.fault }),
  };
}
