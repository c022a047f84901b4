import Fastify from "fastify";
import type { FastifyContextConfig, FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { Refusal, errorCodes } from "../../core/values/errors.ts";
import type { Burst } from "../../core/accounts/requestRate.ts";
import { tooManyRequests } from "../../core/accounts/requestRate.ts";
import { limits } from "../../core/values/limits.ts";
import type { AccountId, Source } from "../../core/model/message.ts";
import { noBytes } from "../../core/model/message.ts";
import { mustBeActive } from "../../core/accounts/plans.ts";
import type { Verb } from "../../core/model/rights.ts";
import { mustBeFree, mustHave } from "../../core/model/rights.ts";
import { inNameOf, isAudited } from "../route/actor.ts";
import { addressIn } from "../http/address.ts";
import { ignoredHeader, problemHeaders } from "../http/answerHeaders.ts";
import type { Proof } from "../auth/bearer.ts";
import { authenticator } from "../auth/bearer.ts";
import { checkOperator } from "../route/operator.ts";
import type { Way } from "../fastPublish/answer.ts";
import { makesSchedule, servePlainPublishes } from "../fastPublish/answer.ts";
import type { PlainService } from "../fastPublish/sockets.ts";
import type { Problem } from "../http/problems.ts";
import { basicAuthenticator } from "../auth/basic.ts";
import { corsHeaders, isPreflight, preflightHeaders } from "../http/cors.ts";
import { answerBytes, takeEveryRequest } from "./everyRequest.ts";
import { checkHook, hookParams } from "../publishing/hookUrl.ts";
import { headersOf } from "../auth/bursts.ts";
import type { Counted } from "../auth/counted.ts";
import { countedFrom } from "../auth/counted.ts";
import type { TriedFrom } from "../auth/lockout.ts";
import type { Sender } from "../http/intake.ts";
import { Intake, bytesAtOnce } from "../http/intake.ts";
import { Listed, jsonOf } from "../http/listed.ts";
import { Outflow } from "../http/outflow.ts";
import { sourceWith } from "../publishing/intakeUrl.ts";
import { afterAnswers, answerInTurn, readInTurn } from "../route/oneAtATime.ts";
import { problemBody, problemOf } from "../http/problems.ts";
import { refuseEarly } from "./refuseEarly.ts";
import type { RefusedRequests } from "../auth/refusedRequests.ts";
import type { RequestLine } from "../route/requestLog.ts";
import { shownPath } from "../route/requestLog.ts";
import type { Answer, Incoming, Parts, Route } from "../route/route.ts";
import { changesAnything, methodsOf, verbOf } from "../route/route.ts";
import type { RouteTable } from "./routeTable.ts";
import { routedPath, routerPath, routeTable } from "./routeTable.ts";
import { routes } from "../routes/index.ts";
import type { Query, Target } from "../http/target.ts";
import { splitQuery, splitTarget } from "../http/target.ts";

export type ApiParts = Parts & {
  /** Whose X-Forwarded-For is believed: nobody's, everybody's, or that of these networks. */
  trustProxy: boolean | string[];
  /** Where others reach this server. Empty: wherever a request was addressed to. */
  publicUrl?: string;
  /** Origins whose pages may read answers in a browser, or `*`. Not given: none. */
  corsOrigins?: readonly string[];
  /** Where accounts have a port of their own: only they are served, and what anybody may ask. */
  servesAccountsOnly?: boolean;
  /** Given to each port of a server, so that nobody has more tries by asking at another one. Not given: this one counts alone. */
  counted?: Counted;
  /** Instead of the usual room for request bodies, and for long answers of one account. */
  intakeBytes?: number;
  outflowBytes?: number;
  /** See `PlainService`. */
  idleAlarm: PlainService["idleAlarm"];
  /** Is told of each request once it is answered. The line is made only when it is asked for. */
  log(status: number, line: () => RequestLine): void;
};

declare module "fastify" {
  interface FastifyRequest {
    target: Target;
    split: Query;
    proof: Proof | null;
    source: Source | null;
    fault: string | null;
  }
}

/** The HTTP interface, ready to listen. Closing it lets running requests end, and refuses new ones. */
export function createApi(parts: ApiParts): FastifyInstance {
  const api = Fastify({
    ...{ http: serverOptions, ...timing, bodyLimit: limits.messageBytes, trustProxy: parts.trustProxy },
    // Refused by a hook below instead, in the words of this interface.
    return503OnClosing: false,
    // See `methodsOf`.
    exposeHeadRoutes: false,
    rewriteUrl: ({ url = "/", method = "", rawHeaders }) => {
      const { path } = splitTarget(url);
      return publishPath.test(path) && makesSchedule(method, url, rawHeaders) ? schedules : routedPath(path, method);
    },
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
  const gate = admit(api, parts);
  const outflow = new Outflow(parts.outflowBytes);
  // What a proxy reports is looked at by the framework.
  readInTurn(api.server, parts);
  if (parts.trustProxy === false) refuseEarly(api.server, { ...gate, parts });
  if (parts.trustProxy === false && !parts.servesAccountsOnly) servePlainPublishes(api.server, { ...gate, parts, outflow });
  answerInTurn(api.server);
  takeEveryRequest(api.server, parts);
  for (const row of servedBy(parts)) addRoute(api, row, parts, outflow);
  api.addHook("onSend", (request, reply, payload, done) => {
    if (request.proof && !reply.raw.destroyed && (typeof payload === "string" || Buffer.isBuffer(payload))) {
      const gone = outflow.hold(request.proof.account.id, Buffer.byteLength(payload));
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
  servesAccountsOnly ? routes.filter(({ access }) => access === "account" || access === "operator" || access === "open") : routes;

const serverOptions = {
  maxHeaderSize: 64 * 1024,
  headersTimeout: 30_000,
  connectionsCheckingInterval: 30_000,
  // Without it Node answers by itself, and not in JSON. The name this server is called by makes no difference here.
  requireHostHeader: false,
};

/** A request may take five minutes to arrive, so 100 MB need 3 Mbit/s. Idle connections outlive those of common proxies. */
const timing = { requestTimeout: 300_000, keepAliveTimeout: 72_000 };

/** A publish with a cron expression makes a schedule, so it goes to the route that does that. */
const publishPath = /^\/v2\/publish\//i;
const schedules = "/v2/schedules";

/** Bodies are bytes; a route that wants JSON reads it itself. */
function takeEveryBody(api: FastifyInstance): void {
  api.removeAllContentTypeParsers();
  api.addContentTypeParser("*", { parseAs: "buffer" }, (_request, body, done) => done(null, body));
}

/** The parts that decide whether a request is admitted. */
type Gate = Pick<Way, "known" | "lookUp" | "intake" | "isClosing"> & { routesAt: RouteTable; refused: RefusedRequests };

/** Before the body is read: where does it go, is there such a thing, and who asks? */
function admit(api: FastifyInstance, parts: ApiParts): Gate {
  const routesAt = routeTable(servedBy(parts));
  const { lockout, bursts, refused } = parts.counted ?? countedFrom(() => parts.now());
  const { known, lookUp, authenticate } = authenticator({ store: parts.store, now: () => parts.now(), lockout });
  const authenticateHolder = basicAuthenticator({ store: parts.store, lockout });
  let closing = false;
  for (const name of ["target", "split", "proof", "source", "fault"] as const) api.decorateRequest<unknown>(name, null);
  const intake = new Intake(parts.intakeBytes);
  receive(api, intake);
  api.addHook("preClose", async () => {
    closing = true;
  });
  const look = (request: FastifyRequest, reply: FastifyReply): void => {
    // A malformed content type is for the destination to judge.
    request.headers["content-type"] = undefined;
    request.target = splitTarget(request.originalUrl);
    void reply.headers(corsHeaders(parts.corsOrigins ?? [], request.target.path, request.headers.origin));
    if (closing) throw new Refusal("stopping", "the server is stopping; ask again");
    request.split = splitQuery(request.target.query);
  };
  // No async function: almost every token is remembered, and each promise here would cost every publish a microsecond.
  api.addHook("onRequest", (request, reply, proceed) => {
    const goOn = (): void => {
      takeRoom(intake, request, reply);
      proceed();
    };
    const letIn = (by: Proof | Source | void): void => {
      if (by && "secretHash" in by) request.source = by;
      else if (by) {
        request.proof = by;
        const { config } = request.routeOptions;
        checkRight(by, config);
        const burst = config.operation === undefined ? bursts.ask(by.account, parts.now()) : null;
        if (burst instanceof Promise) return void burst.then((told) => (takeBurst(told, by, reply), goOn())).catch(refuse);
        takeBurst(burst, by, reply);
      }
      goOn();
    };
    const from = (): TriedFrom => ({ address: callerIpOf(request) });
    const refuse = (error: unknown): void => proceed(reasonFor(error, { request, reply, refused }));
    try {
      look(request, reply);
      const preflight = preflightTo(request, reply, routesAt);
      if (preflight) return void reply.code(204).headers(preflight).send();
      if (request.is404) refuseUnknown(request, reply, routesAt);
      const { access, isUncounted } = request.routeOptions.config;
      if (access === "open") return isUncounted ? proceed() : proceed(refused.count(from().address) ?? undefined);
      if (access === "source")
        return void sourceWith(parts.store, paramsOf(request)["secret"] ?? "")
          .then(letIn)
          .catch(refuse);
      if (access === "hook")
        return void checkHook(parts.store, hookParams(paramsOf(request)))
          .then(letIn)
          .catch(refuse);
      if (access === "account") return void authenticateHolder(request.headers.authorization, from).then(letIn).catch(refuse);
      if (access === "operator") {
        checkOperator(parts, request.headers.authorization, { lockout, ...from() });
        return letIn();
      }
      const { authorization } = request.headers;
      const proof = known(authorization) ?? authenticate({ authorization, parameter: request.split.token, from });
      if (proof instanceof Promise) proof.then(letIn).catch(refuse);
      else letIn(proof);
    } catch (error) {
      refuse(error);
    }
  });
  return { known, lookUp, intake, routesAt, refused, isClosing: () => closing };
}

type Refused = { request: FastifyRequest; reply: FastifyReply; refused: RefusedRequests };

/** Returns what a request is refused with. It is counted, unless the caller has proved an account: then the limits of the account apply. */
function reasonFor(error: unknown, { request, reply, refused }: Refused): Error {
  const isCounted = error instanceof Refusal && errorCodes[error.code].status < 500 && !request.proof;
  const excess = isCounted ? refused.count(callerIpOf(request)) : null;
  if (excess) void reply.removeHeader("Allow");
  const reason = excess ?? error;
  return reason instanceof Error ? reason : new Error(String(reason));
}

/**
 * Throws `Refusal` for a token that is not good for what is asked, and for an account that may not change anything. Steps
 * of what has begun are taken from a passive account as well, and it can end its credentials.
 */
function checkRight(
  { account, right }: Proof,
  { changes, needs = "read", looksAtScope, looksAtVerb, operation, forPassive }: FastifyContextConfig,
): void {
  if (right === "read" && needs !== "read")
    throw new Refusal(
      "forbidden",
      `token: it is for reading only; this request needs the other token of the account, or one with the verb ${needs}`,
    );
  if (typeof right === "object") {
    if (!looksAtVerb) mustHave(right, needs);
    if (needs === "publish" && !looksAtScope) mustBeFree(right, "what hears of this may be anywhere");
  }
  if (changes && operation !== "step" && !forPassive) mustBeActive(account);
}

/** Throws `Refusal` when the account has asked too often in this second. */
function takeBurst(burst: Burst | null, { account }: Proof, reply: FastifyReply): void {
  if (!burst) return;
  reply.headers(headersOf(burst));
  if (!burst.taken) throw tooManyRequests(account, burst);
}

function takeRoom(intake: Intake, request: FastifyRequest, { raw }: FastifyReply): void {
  const bytes = bytesAtOnce(request.headers);
  // Whoever has gone while its token was looked up would never give it back.
  if (bytes === null || bytes === 0 || raw.destroyed) return;
  // However it ends: answered, or broken off.
  raw.once("close", intake.take(senderOf(request), bytes));
}

/** Whoever calls a webhook of a run has shown nothing but its URL, in which the account is. */
function senderOf(request: FastifyRequest): Sender {
  const { proof, source, routeOptions } = request;
  if (routeOptions.config.access === "hook") return hookParams(paramsOf(request)).userId;
  return proof?.account.id ?? source?.account ?? "";
}

/** Once it is known who asks: bids those who wait send their body, and has large ones counted. */
function receive(api: FastifyInstance, intake: Intake): void {
  api.addHook("preParsing", (request, reply, payload, proceed) => {
    const { headers, method } = request.raw;
    if (headers.expect !== undefined && isAwaited(request)) reply.raw.writeContinue();
    // The body of a GET or a HEAD is never read.
    if (method === "GET" || method === "HEAD" || bytesAtOnce(headers) !== null) return proceed(null, payload);
    const { body, give } = intake.counted(senderOf(request), payload);
    reply.raw.once("close", give);
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

declare module "fastify" {
  interface FastifyContextConfig {
    access?: Route["access"];
    isUncounted?: boolean;
    changes?: boolean;
    operation?: Route["operation"];
    forPassive?: boolean;
    needs?: Verb;
    looksAtScope?: boolean;
    looksAtVerb?: boolean;
  }
}

/** The answer to a browser that asks what a page may send. Null if it does not ask that, or the page may send nothing here. */
function preflightTo({ target, method, headers }: FastifyRequest, reply: FastifyReply, routesAt: RouteTable) {
  if (!isPreflight(method, headers) || !reply.hasHeader("Access-Control-Allow-Origin")) return null;
  const methods = methodsOfRows(routesAt(target.path));
  return methods.length === 0 ? null : preflightHeaders(methods, headers);
}

function refuseUnknown({ target, method }: FastifyRequest, reply: FastifyReply, routesAt: RouteTable): never {
  const path = routedPath(target.path, method);
  // The step of a run that waits for an event of such a name: its client would take a 400 for the end of the run.
  const code = /^\/v2\/wait\//i.test(target.path) ? "step-refused" : "invalid";
  if (path === "/malformed") throw new Refusal(code, "path: the percent-encoding is malformed, or not of UTF-8");
  const rows = routesAt(target.path);
  const allowed = methodsOfRows(rows);
  if (allowed.length === 0) throw new Refusal("not-found", nothingThere);
  reply.header("Allow", allowed.join(", "));
  const [instead] = rows.flatMap((row) => row.instead ?? []);
  throw new Refusal("method-not-allowed", `method: ${method} is not possible here; ${instead ?? `${allowed.join(" or ")} is`}`);
}

/** The methods that these routes answer. */
const methodsOfRows = (rows: readonly Route[]): string[] => [...new Set(rows.flatMap((row) => methodsOf(row)))];

const nothingThere = "path: there is nothing at this path; GET /v2/health answers if this is the right server";

function addRoute(api: FastifyInstance, row: Route, parts: ApiParts, outflow: Outflow): void {
  const audited = isAudited(row);
  // What changes something has been done when its answer is there.
  const readerOf = ({ proof }: FastifyRequest): AccountId | null => (proof && !changesAnything(row) ? proof.account.id : null);
  api.route({
    method: [...methodsOf(row)],
    url: routerPath(row.path),
    bodyLimit: row.body?.mostBytes ?? 1024 * 1024,
    config: {
      ...{ access: row.access, changes: changesAnything(row), needs: verbOf(row), looksAtScope: row.looksAtScope ?? false },
      ...{ operation: row.operation, looksAtVerb: row.looksAtVerb ?? false, isUncounted: row.tag === "Health" },
      forPassive: row.forPassive ?? false,
    },
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
  const { target, split, proof, source, raw, body } = request;
  return {
    ...{ target, query: split, proof, source, rawHeaders: raw.rawHeaders },
    origin: publicUrl === "" ? `${request.protocol}://${request.host}` : publicUrl,
    params: paramsOf(request),
    body: body instanceof Uint8Array ? body : noBytes,
    callerIp: callerIpOf(request),
  };
}

const paramsOf = ({ params }: FastifyRequest): Record<string, string> =>
  typeof params === "object" && params !== null ? (params as Record<string, string>) : {};

/** What a proxy reports may be no address at all. */
const callerIpOf = ({ ip, raw }: FastifyRequest): string | null => addressIn(ip, raw.socket.remoteAddress);

function sendProblem(request: FastifyRequest, reply: FastifyReply, problem: Problem): void {
  const { path } = splitTarget(request.originalUrl);
  request.fault = problem.fault;
  void reply.code(problem.status).headers(problemHeaders(path, problem)).send(problemBody(path, problem));
}

function lineOf(request: FastifyRequest, reply: FastifyReply): RequestLine {
  return {
    method: request.method,
    path: shownPath(request.target ?? splitTarget(request.originalUrl), request.proof?.token),
    status: reply.statusCode,
    ms: Math.round(reply.elapsedTime * 10) / 10,
    account: request.proof?.account.id ?? request.source?.account ?? null,
    ...(request.fault === null ? {} : { fault: request.fault }),
  };
}
