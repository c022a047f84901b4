import type { IncomingMessage, ServerResponse } from "node:http";
import Fastify from "fastify";
import type { FastifyInstance, FastifyReply, FastifyRequest, onSendHookHandler } from "fastify";
import { answerInTime, answerTime, bulkAnswerTime, bulkWorkTime } from "../http/answerTime.ts";
import { readRequestId, requestIdHeader } from "../http/requestId.ts";
import { limits } from "../../engine/core/values/limits.ts";
import { woken } from "../../engine/clock/clock.ts";
import type { AccountId, Brand, Millis } from "../../engine/core/values/basics.ts";
import { noBytes } from "../../engine/core/values/basics.ts";
import { second } from "../../engine/core/values/time.ts";
import type { ConsoleSessions } from "../auth/consoleSessions.ts";
import type { AdmissionParts } from "../admission/policy.ts";
import { AdmissionPolicy } from "../admission/policy.ts";
import { FastPath } from "../fastPublish/fastPath.ts";
import type { PlainService } from "../fastPublish/sockets.ts";
import { deprecationHeaders, formatIgnored, problemHeaders } from "../http/responseHeaders.ts";
import { PagedList, toJsonText } from "../http/pagedList.ts";
import { LineStream } from "../http/lineStream.ts";
import type { ResponseLimits } from "../http/responseLimits.ts";
import type { Problem } from "../http/problems.ts";
import { problemBody, toProblem } from "../http/problems.ts";
import { isLargeBodyComing } from "../http/requestBodyLimits.ts";
import { splitTarget } from "../http/target.ts";
import { withActor, isAudited } from "../route/actor.ts";
import { withEnd } from "../route/bulkStore.ts";
import { PacedSocket, afterResponses } from "../route/pipelining.ts";
import { RefusedBodies } from "../route/refusedBodies.ts";
import type { RequestCounter, RequestLine } from "../route/requestLog.ts";
import { shownPath } from "../route/requestLog.ts";
import type { RouteResponse, IncomingRequest, RouteContext, Route } from "../route/route.ts";
import { changesAnything, listMethods, readMaxBytes } from "../route/route.ts";
import { routerPath, routeTable, routingPath } from "../route/routeTable.ts";
import type { BrowserParts } from "./browser.ts";
import { readBrowser } from "./browser.ts";
import { addSessionHeaders } from "../auth/sessionHeaders.ts";
import { noteRefused } from "../route/unpublished.ts";
import { isUnchanged } from "./unchanged.ts";
import { LogTails } from "../routes/logs/logTails.ts";
import { admitRequests, readCallerIp, readCredentials, readParams } from "./admitRequests.ts";
import { direct } from "./connections.ts";
import { respondToBytes, acceptEveryRequest } from "./everyRequest.ts";
import { refuseEarly } from "./refuseEarly.ts";
import { sendLines } from "./sendLines.ts";

/** The services and options of one port. */
export type ApiOptions = Omit<RouteContext, "logTails"> &
  AdmissionParts &
  BrowserParts & {
    /** All routes. */
    routes: readonly Route[];
    /**
     * Whose X-Forwarded-For is trusted: no client's (false), every client's (true), or that of clients in
     * these networks.
     */
    trustProxy: boolean | string[];
    /** The public URL of this server. If it is empty, each request's own address is used. */
    publicUrl?: string;
    /** Origins whose pages may read responses in a browser, or `*`. Default: none. */
    corsOrigins?: readonly string[];
    /** The handlers of built files, such as those of the console. Default: none are served. */
    builtFiles?: readonly { answer(request: IncomingMessage, response: ServerResponse): boolean }[];
    /** Returns the routes of the console. */
    createConsoleRoutes?(parts: { sessions: ConsoleSessions; admission: AdmissionPolicy }): Route[];
    /** Whether this port serves only the routes for accounts and those that need no credentials. */
    servesAccountsOnly?: boolean;
    /**
     * Whether the fast path (`api/fastPublish/`) answers plain publishes before the framework sees them.
     * Default: true.
     */
    fastPath?: boolean;
    /** See `PlainService`. */
    wakeWhenIdle: PlainService["wakeWhenIdle"];
    /**
     * Called for each request once it is answered. `line` builds the log line, so it costs nothing if the
     * line is not written.
     */
    log(status: number, line: () => RequestLine): void;
  } & RequestCounter;

/**
 * Returns the HTTP interface, ready to listen. When it closes, running requests end and new ones are refused.
 */
export function createApi(options: ApiOptions): FastifyInstance {
  const { maxBody = limits.messageBytes } = options;
  const refuse = (error: unknown, request: FastifyRequest, reply: FastifyReply): void => {
    const problem = toProblem(error, request.routeOptions?.bodyLimit ?? maxBody);
    noteProblem(error, request, options);
    sendProblem(request, reply, { problem, brand: options.brand });
  };
  const api = Fastify({
    http: serverOptions,
    ...timing,
    bodyLimit: maxBody,
    trustProxy: options.trustProxy,
    // A hook refuses requests instead, with an error of this API.
    return503OnClosing: false,
    genReqId: ({ rawHeaders }) => readRequestId(rawHeaders),
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
    frameworkErrors: refuse,
    clientErrorHandler: (error, socket) =>
      afterResponses(socket, () => respondToBytes(error, socket, options)),
  });
  acceptEveryBody(api);
  const admission = new AdmissionPolicy(options);
  const rows = [...listServedRoutes(options), ...listConsoleRoutes(options, admission)];
  const routes = routeTable(rows);
  const { responses: responseLimits } = admission;
  const logTails = new LogTails(options);
  const context = { ...options, logTails };
  admitRequests(api, { parts: options, admission, routes });
  api.addHook("preClose", async () => logTails.close());
  const refusedBodies = new RefusedBodies((after, wake) => options.wakeAfter(after, wake));
  api.addHook("preClose", async () => refusedBodies.close());
  direct(api.server, {
    pacing: { longWork: options.longWork, wakeAfter: options.wakeAfter, refusedBodies },
    fastPath: hasFastPath(options)
      ? new FastPath(api.server, { parts: context, admission, routes, wakeWhenIdle: options.wakeWhenIdle })
      : null,
    // Only the framework reads the address that a proxy reports.
    answerEarly: (request, response) =>
      (options.builtFiles?.some((files) => files.answer(request, response)) ?? false) ||
      (options.trustProxy === false &&
        refuseEarly(request, response, { context: options, admission, routes })),
  });
  acceptEveryRequest(api.server, options);
  for (const row of rows) addRoute(api, row, { options, context, admission });
  addResponseHooks(api, options, responseLimits);
  api.setErrorHandler(refuse);
  return api;
}

/** Adds what every response has: an ETag, a place among long responses, a log line, and metrics. */
function addResponseHooks(api: FastifyInstance, options: ApiOptions, responseLimits: ResponseLimits): void {
  // oxlint-disable-next-line max-params -- the framework calls its hooks so
  api.addHook("onSend", (request, reply, payload, done) => {
    const { proof, operatorName } = request.caller ?? {};
    if (proof?.session || operatorName !== undefined) addSessionHeaders(reply);
    const isRead = (proof || operatorName !== undefined) && isReadOnly(request.routeOptions.config.route);
    if (isRead && isUnchanged(request, reply, payload)) return done(null, null);
    if (proof && !reply.raw.destroyed && (typeof payload === "string" || Buffer.isBuffer(payload))) {
      const release = responseLimits.reserve(proof.account.id, Buffer.byteLength(payload));
      if (release) reply.raw.once("close", release);
    }
    done(null, payload);
  });
  api.addHook("onResponse", (request, reply, done) => {
    options.log(reply.statusCode, () => toRequestLine(request, reply));
    options.count?.(
      request.routeOptions.config?.route ?? null,
      reply.statusCode,
      request.beganAfter ?? reply.elapsedTime,
    );
    done();
  });
}

const isReadOnly = (row: Route | undefined): boolean => row !== undefined && !changesAnything(row);

const listConsoleRoutes = (
  { sessions, servesAccountsOnly, createConsoleRoutes }: ApiOptions,
  admission: AdmissionPolicy,
): Route[] => (sessions && !servesAccountsOnly ? (createConsoleRoutes?.({ sessions, admission }) ?? []) : []);

const listServedRoutes = ({ servesAccountsOnly, routes }: ApiOptions): readonly Route[] =>
  servesAccountsOnly
    ? routes.filter(({ access }) => access === "account" || access === "operator" || access === "open")
    : routes;

/**
 * Reports whether a port uses the fast path. Only the framework reads the address that a proxy reports, and
 * the fast path answers no route of an accounts port.
 */
const hasFastPath = ({ fastPath = true, trustProxy, servesAccountsOnly }: ApiOptions): boolean =>
  fastPath && trustProxy === false && !servesAccountsOnly;

const serverOptions = {
  maxHeaderSize: 64 * 1024,
  headersTimeout: 30_000,
  connectionsCheckingInterval: 30_000,
  // Otherwise Node refuses a request without Host itself, and not in JSON. The host name makes no difference
  // here.
  requireHostHeader: false,
};

/**
 * Timeouts in milliseconds. A request may take 5 minutes to arrive, so a body of 100 MB needs 3 Mbit/s. Idle
 * connections are kept longer than common proxies keep them.
 */
const timing = { requestTimeout: 300_000, keepAliveTimeout: 72_000 };

/** Reads every body as bytes. A route that needs JSON parses the body itself. */
function acceptEveryBody(api: FastifyInstance): void {
  api.removeAllContentTypeParsers();
  api.addContentTypeParser("*", { parseAs: "buffer" }, (_request, body, done) => done(null, body));
}

type RouteParts = { options: ApiOptions; context: RouteContext; admission: AdmissionPolicy };

function addRoute(api: FastifyInstance, row: Route, { options, context, admission }: RouteParts): void {
  const audited = isAudited(row);
  const responseLimits = admission.responses;
  // Only reads wait for a turn. A change is already stored when its response is ready, so it must not be
  // refused then.
  const findReader = ({ caller }: FastifyRequest): AccountId | null =>
    caller?.proof && !changesAnything(row) ? caller.proof.account.id : null;
  api.route({
    method: [...listMethods(row)],
    url: routerPath(row.path),
    bodyLimit: readMaxBytes(row, options),
    config: { route: row },
    ...(row.deprecated && { onSend: addHeaders(deprecationHeaders(row.deprecated)) }),
    handler: async (request, reply) => {
      const incoming = {
        ...toIncoming(request, options),
        ...(row.waits !== undefined && { hasLeft: beginWait(request, reply, responseLimits) }),
      };
      const reader = findReader(request);
      const admittedAfter = request.admittedAfter ?? 0;
      const make = async (isLate: () => boolean): Promise<RouteResponse> => {
        // The read has waited for its turn, and was answered meanwhile.
        if (isLate()) throw new Error("the request was answered before its turn");
        const limited = row.runsManyBatches ? limitBulkTime(context, admittedAfter) : context;
        return row.respond(incoming, audited ? withActor(row, incoming, limited) : limited);
      };
      const work = (isLate: () => boolean): Promise<RouteResponse> =>
        reader === null ? make(isLate) : responseLimits.runInTurn(reader, () => make(isLate));
      const {
        status,
        body,
        ignored = [],
        headers = {},
        cookies = [],
        onSent,
      } = await answerInTime(work, {
        wakeAfter: options.wakeAfter,
        time: (row.runsManyBatches ? bulkAnswerTime : answerTime) + (row.waits ?? 0) - admittedAfter,
        outcome: row.runsManyBatches ? "bulk" : changesAnything(row) ? "unknown" : "read",
        isInDoubt: () => context.store.isInDoubt(),
        dropLate: (late) => {
          if (late.body instanceof LineStream) late.body.destroy();
          late.onSent?.(false);
        },
      });
      const recheck = () => admission.recheck(row, readCredentials(request, row, options));
      // The token may have been revoked while the request waited.
      if (row.waits !== undefined)
        await recheck().catch((error: unknown) => {
          onSent?.(false);
          throw error;
        });
      if (onSent) reportSent(reply, { onSent, ...options });
      if (body instanceof LineStream) {
        return sendLines(request, reply.code(status).headers(headers), { ...options, body, recheck });
      }
      // Other requests may have been admitted before the first of them was answered.
      if (reader !== null) responseLimits.assertRoom(reader);
      if (ignored.length > 0) reply.header("Waypost-Ignored", formatIgnored(ignored));
      void reply.code(status).headers(headers);
      if (cookies.length > 0) reply.header("Set-Cookie", cookies);
      if (!(body instanceof PagedList) || reader === null) return reply.send(body);
      return reply
        .type("application/json; charset=utf-8")
        .send(await toJsonText(body, reader, responseLimits));
    },
  });
}

/**
 * Returns a signal that is aborted when the client of a response has gone, or has received it. Throws
 * `Refusal` if the account is at capacity for long responses: a response that takes messages from others
 * cannot be refused later.
 */
function beginWait(
  { caller }: FastifyRequest,
  { raw }: FastifyReply,
  responseLimits: ResponseLimits,
): AbortSignal {
  if (caller?.proof) responseLimits.assertRoom(caller.proof.account.id);
  const gone = new AbortController();
  raw.once("close", () => gone.abort(woken));
  if (raw.destroyed) gone.abort();
  if (raw.socket instanceof PacedSocket) raw.socket.watchForEnd();
  return gone.signal;
}

/**
 * How long a client may take to receive a response that somebody waits for. A long response has more time:
 * as long as it takes at the slowest rate, in bytes per second.
 */
const sendTime: Millis = 30 * second;
const slowestRate = 64 * 1024;

/** Reports whether a response was sent. Ends a response that its client does not read in time. */
function reportSent(
  reply: FastifyReply,
  { onSent, wakeAfter }: Pick<ApiOptions, "wakeAfter"> & { onSent(wasSent: boolean): void },
): void {
  const { raw } = reply;
  if (raw.destroyed) return onSent(false);
  let stop = wakeAfter(sendTime, () => {
    // The length is known once the response has begun.
    const more = (Number(reply.getHeader("content-length") ?? 0) / slowestRate) * second;
    stop = wakeAfter(more, () => void raw.destroy());
  });
  const end = (wasSent: boolean): void => {
    raw.off("close", fail);
    raw.off("finish", succeed);
    stop();
    onSent(wasSent);
  };
  const fail = (): void => end(false);
  const succeed = (): void => end(true);
  raw.once("close", fail);
  raw.once("finish", succeed);
}

/** Returns the context of a bulk action that was admitted after this time. */
function limitBulkTime(context: RouteContext, admittedAfter: Millis): RouteContext {
  const endsAt = context.elapsed() + bulkWorkTime - admittedAfter;
  return { ...context, store: withEnd(context.store, () => context.elapsed() >= endsAt) };
}

/** Returns a hook that adds headers to every response of a route, refusals included. */
const addHeaders =
  (headers: Readonly<Record<string, string>>): onSendHookHandler =>
  // oxlint-disable-next-line max-params -- the framework calls its hooks so
  (_request, reply, payload, done) => {
    void reply.headers(headers);
    done(null, payload);
  };

function toIncoming(request: FastifyRequest, options: ApiOptions): IncomingRequest {
  const { target, split, caller, raw, body } = request;
  const { publicUrl = "" } = options;
  const { route } = request.routeOptions.config;
  const browser = route?.access === "console" ? readBrowser(request, route, options) : undefined;
  return {
    ...(caller?.operatorName !== undefined && { operatorName: caller.operatorName }),
    ...(caller?.attempt && { attempt: caller.attempt }),
    ...(browser && { browser }),
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

function noteProblem(error: unknown, request: FastifyRequest, options: ApiOptions): void {
  const { proof = null, source = null } = request.caller ?? {};
  noteRefused(options, {
    ...{ route: request.routeOptions?.config?.route ?? null, proof, source },
    error: request.refusedToken ?? error,
    address: readCallerIp(request),
  });
}

function sendProblem(
  request: FastifyRequest,
  reply: FastifyReply,
  { problem, brand }: { problem: Problem; brand: Brand | undefined },
): void {
  const target = splitTarget(request.originalUrl);
  const { rawHeaders } = request.raw;
  request.fault = problem.fault;
  if (isLargeBodyComing(request.raw)) reply.header("Connection", "close");
  reply.header(requestIdHeader, request.id);
  void reply
    .code(problem.status)
    .headers(problemHeaders(target.path, problem))
    .send(problemBody({ target, rawHeaders, brand }, problem));
}

function toRequestLine(request: FastifyRequest, reply: FastifyReply): RequestLine {
  return {
    requestId: request.id,
    method: request.method,
    path: shownPath(request.target ?? splitTarget(request.originalUrl), request.caller?.proof?.token),
    status: reply.statusCode,
    ms: Math.round(reply.elapsedTime * 10) / 10,
    account: request.caller?.proof?.account.id ?? request.caller?.source?.account ?? null,
    ...(request.fault === null ? {} : { fault: request.fault }),
  };
}
