import type { IncomingMessage, ServerResponse } from "node:http";
import type { Bytes, Millis } from "../../core/model/message.ts";
import { noBytes } from "../../core/model/message.ts";
import type { AdmissionPolicy } from "../admission/policy.ts";
import type { Proof } from "../auth/bearer.ts";
import { findAddress } from "../http/address.ts";
import { answerInTime } from "../http/answerTime.ts";
import { readRequestId } from "../http/requestId.ts";
import { formatIgnored, problemHeaders } from "../http/responseHeaders.ts";
import { corsHeaders, hasOrigin } from "../http/cors.ts";
import { readReservedBytes } from "../http/requestBodyLimits.ts";
import { problemBody, toProblem } from "../http/problems.ts";
import type { Target } from "../http/target.ts";
import { splitQuery, splitTarget } from "../http/target.ts";
import { withActor, isAudited } from "../route/actor.ts";
import type { RequestCounter, RequestLine } from "../route/requestLog.ts";
import { shownPath } from "../route/requestLog.ts";
import type { RouteResponse, RouteContext } from "../route/route.ts";
import type { Found, RouteTable } from "../route/routeTable.ts";
import type { PlainHead } from "./parse.ts";
import type { AdmittedBody, PlainResponse } from "./sockets.ts";

/** The parts that the fast path works with. */
export type FastParts = {
  parts: RouteContext & {
    corsOrigins?: readonly string[];
    log(status: number, line: () => RequestLine): void;
  } & RequestCounter;
  admission: AdmissionPolicy;
  routes: RouteTable;
};

/** The parts of a request that decide whether the fast path answers it. */
type RequestHead = Pick<PlainHead, "method" | "target" | "rawHeaders" | "authorization" | "length">;

/**
 * Admits a request before its body has arrived. Returns null if the framework must answer it, and "unknown"
 * if its token must be looked up first. A refused request goes to the framework as well, which gives the
 * reason.
 */
export function admit(
  head: RequestHead,
  callerIp: string | null,
  fast: FastParts,
): AdmittedBody | null | "unknown" {
  const { parts, admission, routes } = fast;
  const { authorization, rawHeaders } = head;
  if (authorization === undefined) return null;
  // The framework adds the headers that let a page read the response.
  if (parts.corsOrigins?.length && hasOrigin(rawHeaders)) return null;
  const match = routes.find(head);
  if (match === null || !match.route.onFastPath) return null;
  try {
    const admitted = admission.admitAtOnce(
      { authorization, header: findIn(rawHeaders) },
      match.route,
      head.length,
    );
    if (admitted === null || admitted === "unknown") return admitted;
    const { proof, leave: release } = admitted;
    const admittedRequest: AdmittedRequest = { fast, match, proof, head, callerIp, since: parts.now() };
    return {
      release,
      respond: (body) => respondTo(admittedRequest, body.length === 0 ? noBytes : body).finally(release),
    };
  } catch {
    return null;
  }
}

/**
 * Returns a function that finds a header by its name in lower case. `rawHeaders` alternates names and values.
 */
const findIn =
  (rawHeaders: readonly string[]) =>
  (name: string): string | undefined => {
    for (let at = 0; at < rawHeaders.length; at += 2)
      if (rawHeaders[at]?.length === name.length && rawHeaders[at]?.toLowerCase() === name)
        return rawHeaders[at + 1];
    return undefined;
  };

/** Responds to a request that Node's parser has read, if the fast path can. Returns true if it does. */
export function answerParsed(request: IncomingMessage, response: ServerResponse, fast: FastParts): boolean {
  const head = readHead(request);
  const admitted = head && admit(head, findAddress(request.socket.remoteAddress), fast);
  if (!admitted || admitted === "unknown") return false;
  receiveBody(request, response, admitted);
  return true;
}

function readHead({ method = "", url = "", headers, rawHeaders }: IncomingMessage): RequestHead | null {
  const length = readReservedBytes(headers);
  if (length === null || headers.expect !== undefined) return null;
  return { method, target: url, rawHeaders, authorization: headers.authorization, length };
}

function receiveBody(
  request: IncomingMessage,
  response: ServerResponse,
  { respond, release }: AdmittedBody,
): void {
  const pieces: Buffer[] = [];
  let isComplete = false;
  // The connection may break before the body is complete.
  response.once("close", () => isComplete || release());
  request.on("data", (piece: Buffer) => pieces.push(piece));
  request.on("end", () => {
    isComplete = true;
    respond(Buffer.concat(pieces))
      .then((plainResponse) => send(response, plainResponse))
      .catch(() => response.destroy());
  });
}

function send(response: ServerResponse, { status, headers, text, onSent }: PlainResponse): void {
  if (onSent && response.destroyed) onSent();
  else if (onSent) response.once("close", onSent);
  response.writeHead(status, { ...headers });
  response.end(text);
}

/** A request that was admitted and is not answered yet. */
type AdmittedRequest = {
  fast: FastParts;
  match: Found;
  proof: Proof;
  head: RequestHead;
  callerIp: string | null;
  since: Millis;
};

async function respondTo(admittedRequest: AdmittedRequest, body: Bytes): Promise<PlainResponse> {
  const { fast, proof, head, since } = admittedRequest;
  const { parts, admission } = fast;
  const { method } = head;
  const requestId = readRequestId(head.rawHeaders);
  const target = splitTarget(head.target);
  const answered = await answerInTime(() => runRoute(admittedRequest, target, body), {
    wakeAfter: parts.wakeAfter,
    outcome: "unknown",
  }).then(toLoggedResponse, (error: unknown) => toRefusalResponse(target, error));
  const { status, fault } = answered;
  const text = JSON.stringify(answered.body);
  parts.log(status, () => ({
    requestId,
    method,
    path: shownPath(target, proof.token),
    status,
    ms: parts.now() - since,
    account: proof.account.id,
    ...(fault === null ? {} : { fault }),
  }));
  parts.count?.(admittedRequest.match.route, status, parts.now() - since);
  const bytes = Buffer.byteLength(text);
  const onSent = admission.responses.reserve(proof.account.id, bytes);
  return {
    status,
    headers: headersFor(answered, { requestId, bytes, target, parts }),
    text,
    ...(onSent && { onSent }),
  };
}

type Sent = { requestId: string; bytes: number; target: Target; parts: FastParts["parts"] };

/** Returns the headers of a response in the order and the case in which the framework sends them. */
function headersFor(
  { headers }: LoggedResponse,
  { requestId, bytes, target, parts }: Sent,
): Record<string, string> {
  const all: Record<string, string> = { "x-request-id": requestId };
  if (parts.corsOrigins?.length)
    for (const [name, value] of Object.entries(corsHeaders(parts.corsOrigins, target.path, undefined)))
      all[name.toLowerCase()] = value;
  for (const [name, value] of Object.entries(headers)) all[name.toLowerCase()] = value;
  all["content-type"] = "application/json; charset=utf-8";
  all["content-length"] = String(bytes);
  return all;
}

/** Runs the route of a request. Also rejects if the request cannot be read. */
async function runRoute(
  { fast: { parts }, match: { route, params }, proof, head: { rawHeaders }, callerIp }: AdmittedRequest,
  target: Target,
  body: Bytes,
) {
  const incoming = {
    target,
    query: splitQuery(target.query),
    proof,
    source: null,
    rawHeaders,
    origin: "",
    params,
    body,
    callerIp,
  };
  return route.respond(incoming, isAudited(route) ? withActor(route, incoming, parts) : parts);
}

type LoggedResponse = {
  status: number;
  headers: Readonly<Record<string, string>>;
  body: unknown;
  fault: string | null;
};

const toLoggedResponse = ({ status, body, ignored = [], headers = {} }: RouteResponse): LoggedResponse => ({
  status,
  body,
  fault: null,
  headers: ignored.length > 0 ? { "Waypost-Ignored": formatIgnored(ignored), ...headers } : headers,
});

function toRefusalResponse(target: Target, error: unknown): LoggedResponse {
  const problem = toProblem(error);
  const { status, fault } = problem;
  return {
    status,
    fault,
    headers: problemHeaders(target.path, problem),
    body: problemBody(target.path, problem),
  };
}
