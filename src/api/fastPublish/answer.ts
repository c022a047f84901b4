import type { IncomingMessage, ServerResponse } from "node:http";
import { limits } from "../../core/values/limits.ts";
import type { Bytes, Millis } from "../../core/model/message.ts";
import { noBytes } from "../../core/model/message.ts";
import type { AdmissionPolicy } from "../admission/policy.ts";
import type { Proof } from "../auth/bearer.ts";
import { addressIn } from "../http/address.ts";
import { ignoredHeader, problemHeaders } from "../http/answerHeaders.ts";
import { corsHeaders, hasOrigin } from "../http/cors.ts";
import { bytesAtOnce } from "../http/intake.ts";
import { problemBody, problemOf } from "../http/problems.ts";
import type { Target } from "../http/target.ts";
import { splitQuery, splitTarget } from "../http/target.ts";
import { inNameOf, isAudited } from "../route/actor.ts";
import type { RequestLine } from "../route/requestLog.ts";
import { shownPath } from "../route/requestLog.ts";
import type { Answer, Parts } from "../route/route.ts";
import type { Found, RouteTable } from "../route/routeTable.ts";
import type { PlainHead } from "./parse.ts";
import type { Admitted, PlainAnswer } from "./sockets.ts";

/** What the fast path works with. */
export type FastParts = {
  parts: Parts & { corsOrigins?: readonly string[]; log(status: number, line: () => RequestLine): void };
  admission: AdmissionPolicy;
  routes: RouteTable;
};

/** The parts of a request that decide whether the fast path answers it. */
type Asked = Pick<PlainHead, "method" | "target" | "rawHeaders" | "authorization" | "length">;

/**
 * Admits a request before its body is there. Returns null if the framework has to answer it, and "unknown"
 * if its token has to be looked up first. A request that is refused goes to the framework too, which says
 * why.
 */
export function admit(head: Asked, callerIp: string | null, fast: FastParts): Admitted | null | "unknown" {
  const { parts, admission, routes } = fast;
  const { authorization, rawHeaders } = head;
  if (authorization === undefined) return null;
  // The framework adds the headers by which a page may read the response.
  if (parts.corsOrigins?.length && hasOrigin(rawHeaders)) return null;
  const found = routes.find(head);
  if (found === null || !found.route.onFastPath) return null;
  try {
    const admitted = admission.admitAtOnce(authorization, found.route, head.length);
    if (admitted === null || admitted === "unknown") return admitted;
    const { proof, leave } = admitted;
    const taken: Taken = { fast, found, proof, head, callerIp, since: parts.now() };
    return { leave, answer: (body) => answerTo(taken, body.length === 0 ? noBytes : body).finally(leave) };
  } catch {
    return null;
  }
}

/** Answers a request that Node's parser has read, if it is one for the fast path. Reports whether it is. */
export function answerParsed(request: IncomingMessage, response: ServerResponse, fast: FastParts): boolean {
  const head = headOf(request);
  const admitted = head && admit(head, addressIn(request.socket.remoteAddress), fast);
  if (!admitted || admitted === "unknown") return false;
  take(request, response, admitted);
  return true;
}

function headOf({ method = "", url = "", headers, rawHeaders }: IncomingMessage): Asked | null {
  const length = bytesAtOnce(headers);
  if (length === null || headers.expect !== undefined) return null;
  return { method, target: url, rawHeaders, authorization: headers.authorization, length };
}

function take(request: IncomingMessage, response: ServerResponse, { answer, leave }: Admitted): void {
  const pieces: Buffer[] = [];
  let isWhole = false;
  // The connection may break before the body is whole.
  response.once("close", () => isWhole || leave());
  request.on("data", (piece: Buffer) => pieces.push(piece));
  request.on("end", () => {
    isWhole = true;
    answer(Buffer.concat(pieces))
      .then((given) => send(response, given))
      .catch(() => response.destroy());
  });
}

function send(response: ServerResponse, { status, headers, text, gone }: PlainAnswer): void {
  if (gone && response.destroyed) gone();
  else if (gone) response.once("close", gone);
  response.writeHead(status, { ...headers });
  response.end(text);
}

/** A request that is on its way. */
type Taken = { fast: FastParts; found: Found; proof: Proof; head: Asked; callerIp: string | null; since: Millis };

async function answerTo(taken: Taken, body: Bytes): Promise<PlainAnswer> {
  const { fast, proof, head, since } = taken;
  const { parts, admission } = fast;
  const { method } = head;
  const target = splitTarget(head.target);
  const answered = await ask(taken, target, body).then(accepted, (error: unknown) => refused(target, error));
  const { status, fault } = answered;
  const text = JSON.stringify(answered.body);
  parts.log(status, () => ({
    ...{ method, path: shownPath(target, proof.token), status, ms: parts.now() - since, account: proof.account.id },
    ...(fault === null ? {} : { fault }),
  }));
  const bytes = Buffer.byteLength(text);
  const gone = admission.responses.hold(proof.account.id, bytes);
  return { status, headers: headersFor(answered, { bytes, target, parts }), text, ...(gone && { gone }) };
}

type Sent = { bytes: number; target: Target; parts: FastParts["parts"] };

/** Returns the headers of a response in the order and the case in which the framework sends them. */
function headersFor({ headers }: Answered, { bytes, target, parts }: Sent): Record<string, string> {
  const all: Record<string, string> = {};
  for (const [name, value] of Object.entries(corsHeaders(parts.corsOrigins ?? [], target.path, undefined))) all[name.toLowerCase()] = value;
  for (const [name, value] of Object.entries(headers)) all[name.toLowerCase()] = value;
  all["content-type"] = "application/json; charset=utf-8";
  all["content-length"] = String(bytes);
  return all;
}

/** Rejects also if the request cannot be read. */
async function ask(
  { fast: { parts }, found: { route, params }, proof, head: { rawHeaders }, callerIp }: Taken,
  target: Target,
  body: Bytes,
) {
  const incoming = { target, query: splitQuery(target.query), proof, source: null, rawHeaders, origin: "", params, body, callerIp };
  return route.answer(incoming, isAudited(route) ? inNameOf(route, incoming, parts) : parts);
}

type Answered = { status: number; headers: Readonly<Record<string, string>>; body: unknown; fault: string | null };

const accepted = ({ status, body, ignored = [], headers = {} }: Answer): Answered => ({
  ...{ status, body, fault: null },
  headers: ignored.length > 0 ? { "Waypost-Ignored": ignoredHeader(ignored), ...headers } : headers,
});

function refused(target: Target, error: unknown): Answered {
  const problem = problemOf(error, limits.messageBytes);
  const { status, fault } = problem;
  return { status, fault, headers: problemHeaders(target.path, problem), body: problemBody(target.path, problem) };
}
