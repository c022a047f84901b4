import Fastify from "fastify";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { limits } from "../../core/values/limits.ts";
import type { AccountId } from "../../core/model/message.ts";
import { noBytes } from "../../core/model/message.ts";
import type { AdmissionParts } from "../admission/policy.ts";
import { AdmissionPolicy } from "../admission/policy.ts";
import { FastPath } from "../fastPublish/fastPath.ts";
import type { PlainService } from "../fastPublish/sockets.ts";
import { ignoredHeader, problemHeaders } from "../http/answerHeaders.ts";
import { Listed, jsonOf } from "../http/listed.ts";
import type { Outflow } from "../http/outflow.ts";
import type { Problem } from "../http/problems.ts";
import { problemBody, problemOf } from "../http/problems.ts";
import { splitTarget } from "../http/target.ts";
import { inNameOf, isAudited } from "../route/actor.ts";
import { afterAnswers } from "../route/oneAtATime.ts";
import type { RequestLine } from "../route/requestLog.ts";
import { shownPath } from "../route/requestLog.ts";
import type { Answer, Incoming, Parts, Route } from "../route/route.ts";
import { changesAnything, methodsOf } from "../route/route.ts";
import { routerPath, routeTable, routingPath } from "../route/routeTable.ts";
import { routes as allRoutes } from "../routes/index.ts";
import { admitRequests, callerIpOf, paramsOf } from "./admitRequests.ts";
import { direct } from "./connections.ts";
import { answerBytes, takeEveryRequest } from "./everyRequest.ts";
import { refuseEarly } from "./refuseEarly.ts";

export type ApiParts = Parts &
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
    idleAlarm: PlainService["idleAlarm"];
    /** Is told of each request once it is answered. The line is made only when it is asked for. */
    log(status: number, line: () => RequestLine): void;
  };

/** The HTTP interface, ready to listen. Closing it lets running requests end, and refuses new ones. */
export function createApi(parts: ApiParts): FastifyInstance {
  const api = Fastify({
    ...{ http: serverOptions, ...timing, bodyLimit: limits.messageBytes, trustProxy: parts.trustProxy },
    // Refused by a hook below instead, in the words of this interface.
    return503OnClosing: false,
    // See `methodsOf`.
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
      sendProblem(request, reply, problemOf(error, request.routeOptions?.bodyLimit ?? limits.messageBytes)),
    clientErrorHandler: (error, socket) => afterAnswers(socket, () => answerBytes(error, socket, parts)),
  });
  takeEveryBody(api);
  const admission = new AdmissionPolicy(parts);
  const routes = routeTable(servedBy(parts));
  const { responses: outflow } = admission;
  admitRequests(api, { parts, admission, routes });
  direct(api.server, {
    pacing: parts,
    fastPath: hasFastPath(parts) ? new FastPath(api.server, { parts, admission, routes, idleAlarm: parts.idleAlarm }) : null,
    // Only the framework reads what a proxy reports.
    refuseEarly: (request, response) => parts.trustProxy === false && refuseEarly(request, response, { parts, admission, routes }),
  });
  takeEveryRequest(api.server, parts);
  for (const row of servedBy(parts)) addRoute(api, row, parts, outflow);
  api.addHook("onSend", (request, reply, payload, done) => {
    const { proof } = request.caller ?? {};
    if (proof && !reply.raw.destroyed && (typeof payload === "string" || Buffer.isBuffer(payload))) {
      const gone = outflow.hold(proof.account.id, Buffer.byteLength(payload));
      if (gone) reply.raw.once("close", gone);
    }
    done(null, payload);
  });
  api.setErrorHandler((error, request, reply) =>
    sendProblem(request, reply, problemOf(error, request.routeOptions?.bodyLimit ?? limits.messageBytes)),
  );
  api.addHook("onResponse", (request, reply, done) => {
    parts.log(reply.statusCode, () => lineOf(request, reply));
    done();
  });
  return api;
}

const servedBy = ({ servesAccountsOnly }: ApiParts): readonly Route[] =>
  servesAccountsOnly ? allRoutes.filter(({ access }) => access === "account" || access === "operator" || access === "open") : allRoutes;

/** Only the framework reads what a proxy reports, and a port of accounts has no route that the fast path answers. */
const hasFastPath = ({ fastPath = true, trustProxy, servesAccountsOnly }: ApiParts): boolean =>
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
function takeEveryBody(api: FastifyInstance): void {
  api.removeAllContentTypeParsers();
  api.addContentTypeParser("*", { parseAs: "buffer" }, (_request, body, done) => done(null, body));
}

function addRoute(api: FastifyInstance, row: Route, parts: ApiParts, outflow: Outflow): void {
  const audited = isAudited(row);
  // What changes something has been done when its answer is there.
  const readerOf = ({ caller }: FastifyRequest): AccountId | null =>
    caller?.proof && !changesAnything(row) ? caller.proof.account.id : null;
  api.route({
    method: [...methodsOf(row)],
    url: routerPath(row.path),
    bodyLimit: row.body?.mostBytes ?? 1024 * 1024,
    config: { route: row },
    handler: async (request, reply) => {
      const incoming = incomingOf(request, parts);
      const reader = readerOf(request);
      const make = (): Promise<Answer> => row.answer(incoming, audited ? inNameOf(row, incoming, parts) : parts);
      const { status, body, ignored = [], headers = {} } = await (reader === null ? make() : outflow.inTurn(reader, make));
      // Others may have been let in before the first of them had its answer.
      if (reader !== null) outflow.mustHaveRoom(reader);
      if (ignored.length > 0) reply.header("Waypost-Ignored", ignoredHeader(ignored));
      void reply.code(status).headers(headers);
      if (!(body instanceof Listed) || reader === null) return reply.send(body);
      return reply.type("application/json; charset=utf-8").send(await jsonOf(body, reader, outflow));
    },
  });
}

function incomingOf(request: FastifyRequest, { publicUrl = "" }: ApiParts): Incoming {
  const { target, split, caller, raw, body } = request;
  return {
    ...{ target, query: split, proof: caller?.proof ?? null, source: caller?.source ?? null, rawHeaders: raw.rawHeaders },
    origin: publicUrl === "" ? `${request.protocol}://${request.host}` : publicUrl,
    params: paramsOf(request),
    body: body instanceof Uint8Array ? body : noBytes,
    callerIp: callerIpOf(request),
  };
}

function sendProblem(request: FastifyRequest, reply: FastifyReply, problem: Problem): void {
  const { path } = splitTarget(request.originalUrl);
  request.fault = problem.fault;
  void reply.code(problem.status).headers(problemHeaders(path, problem)).send(problemBody(path, problem));
}

function lineOf(request: FastifyRequest, reply: FastifyReply): RequestLine {
  return {
    method: request.method,
    path: shownPath(request.target ?? splitTarget(request.originalUrl), request.caller?.proof?.token),
    status: reply.statusCode,
    ms: Math.round(reply.elapsedTime * 10) / 10,
    account: request.caller?.proof?.account.id ?? request.caller?.source?.account ?? null,
    ...(request.fault === null ? {} : { fault: request.fault }),
  };
}
