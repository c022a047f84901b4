import type { IncomingMessage, ServerResponse } from "node:http";
import { type Bytes, type Millis, noBytes } from "../../engine/core/values/basics.ts";
import type { Refusal } from "../../engine/core/values/errors.ts";
import type { AdmissionPolicy, AdmittedAtOnce } from "../admission/policy.ts";
import { findAddress } from "../http/address.ts";
import type { AnswerTimes, TimedRequest } from "../http/answerTime.ts";
import { readRequestId } from "../http/requestId.ts";
import { formatIgnored, problemHeaders } from "../http/responseHeaders.ts";
import { corsHeaders, hasOrigin } from "../http/cors.ts";
import { readReservedBytes } from "../http/requestBodyLimits.ts";
import { problemBody, toProblem } from "../http/problems.ts";
import type { Target } from "../http/target.ts";
import { splitQuery, splitTarget } from "../http/target.ts";
import { withActor, isAudited } from "../route/actor.ts";
import { noteRefused } from "../route/unpublished.ts";
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
  answerTimes: AnswerTimes;
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
    return new AdmittedRequest(fast, { ...admitted, match, head, callerIp });
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

function receiveBody(request: IncomingMessage, response: ServerResponse, admitted: AdmittedBody): void {
  const pieces: Buffer[] = [];
  let isComplete = false;
  // The connection may break before the body is complete.
  response.once("close", () => isComplete || admitted.release());
  request.on("data", (piece: Buffer) => pieces.push(piece));
  request.on("end", () => {
    isComplete = true;
    admitted.respond(Buffer.concat(pieces), (plainResponse) => trySending(response, plainResponse));
  });
}

function trySending(response: ServerResponse, plainResponse: PlainResponse | null): void {
  try {
    if (plainResponse === null) response.destroy();
    else send(response, plainResponse);
  } catch {
    response.destroy();
  }
}

function send(response: ServerResponse, { status, headers, text, onSent }: PlainResponse): void {
  if (onSent && response.destroyed) onSent();
  else if (onSent) response.once("close", onSent);
  response.writeHead(status, { ...headers });
  response.end(text);
}

type AdmittedParts = AdmittedAtOnce & { match: Found; head: RequestHead; callerIp: string | null };

/**
 * A request that was admitted and is not answered yet. It is answered once: with the response of its route,
 * or with a refusal if that comes too late.
 */
class AdmittedRequest implements AdmittedBody, TimedRequest {
  endsAt = 0;
  readonly #fast: FastParts;
  readonly #admitted: AdmittedParts;
  readonly #target: Target;
  readonly #since: Millis;
  #answered: (response: PlainResponse | null) => void = () => undefined;

  constructor(fast: FastParts, admitted: AdmittedParts) {
    this.#fast = fast;
    this.#admitted = admitted;
    this.#target = splitTarget(admitted.head.target);
    this.#since = fast.parts.now();
  }

  release(): void {
    this.#admitted.leave();
  }

  respond(body: Buffer, answered: (response: PlainResponse | null) => void): void {
    this.#answered = answered;
    this.#fast.answerTimes.begin(this);
    const refuse = (error: unknown): void => this.#end(this.#refuse(error));
    try {
      this.#runRoute(body.length === 0 ? noBytes : body).then(
        (response) => this.#end(toLoggedResponse(response)),
        refuse,
      );
    } catch (error) {
      refuse(error);
    }
  }

  refuseLate(refusal: Refusal): void {
    this.#answer(this.#refuse(refusal));
  }

  #refuse(error: unknown): LoggedResponse {
    const problem = toProblem(error);
    const { status, fault } = problem;
    const { head, match, proof, callerIp } = this.#admitted;
    const { rawHeaders } = head;
    const { parts } = this.#fast;
    const { brand } = parts;
    noteRefused(parts, { error, route: match.route, proof, source: null, address: callerIp });
    return {
      status,
      fault,
      headers: problemHeaders(this.#target.path, problem),
      body: problemBody({ target: this.#target, rawHeaders, brand }, problem),
    };
  }

  #end(response: LoggedResponse): void {
    if (this.#fast.answerTimes.end(this)) this.#answer(response);
  }

  #answer(response: LoggedResponse): void {
    this.release();
    let sent: PlainResponse | null = null;
    try {
      sent = this.#toPlainResponse(response);
    } catch {
      // A response that cannot be written closes the connection.
    }
    this.#answered(sent);
  }

  #toPlainResponse(response: LoggedResponse): PlainResponse {
    const { parts, admission } = this.#fast;
    const { head, proof, match } = this.#admitted;
    const { status, fault } = response;
    const requestId = readRequestId(head.rawHeaders);
    const text = JSON.stringify(response.body);
    const ms = parts.now() - this.#since;
    parts.log(status, () => ({
      requestId,
      method: head.method,
      path: shownPath(this.#target, proof.token),
      status,
      ms,
      account: proof.account.id,
      ...(fault === null ? {} : { fault }),
    }));
    parts.count?.(match.route, status, ms);
    const bytes = Buffer.byteLength(text);
    const onSent = admission.responses.reserve(proof.account.id, bytes);
    const headers = headersFor(response, { requestId, bytes, target: this.#target, parts });
    return { status, headers, text, ...(onSent && { onSent }) };
  }

  /** Runs the route of the request. Also throws if the request cannot be read. */
  #runRoute(body: Bytes): Promise<RouteResponse> {
    const { parts } = this.#fast;
    const {
      match: { route, params },
      proof,
      head: { rawHeaders },
      callerIp,
    } = this.#admitted;
    const incoming = {
      target: this.#target,
      query: splitQuery(this.#target.query),
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
  for (const name in headers) all[name.toLowerCase()] = headers[name] ?? "";
  all["content-type"] = "application/json; charset=utf-8";
  all["content-length"] = String(bytes);
  return all;
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
