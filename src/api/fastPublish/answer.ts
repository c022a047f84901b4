import type { IncomingMessage, RequestListener, Server, ServerResponse } from "node:http";
import { limits } from "../../core/values/limits.ts";
import { brandNames } from "../../core/values/brand.ts";
import type { Millis } from "../../core/model/message.ts";
import { inNameOf, isAudited } from "../route/actor.ts";
import { addressIn } from "../http/address.ts";
import { ignoredHeader, problemHeaders } from "../http/answerHeaders.ts";
import type { Proof } from "../auth/bearer.ts";
import { brandedHeader } from "../http/brand.ts";
import { hasOrigin } from "../http/cors.ts";
import type { Intake } from "../http/intake.ts";
import { bytesAtOnce, mostAtOnce } from "../http/intake.ts";
import type { Outflow } from "../http/outflow.ts";
import type { PlainHead } from "./parse.ts";
import type { Admitted, PlainAnswer, PlainService } from "./sockets.ts";
import { servePlainly } from "./sockets.ts";
import { problemBody, problemOf } from "../http/problems.ts";
import type { RequestLine } from "../route/requestLog.ts";
import { shownPath } from "../route/requestLog.ts";
import type { Answer, Parts, Route } from "../route/route.ts";
import { batch } from "../routes/messages/batch.ts";
import { publish } from "../routes/messages/publish.ts";
import { endRun } from "../routes/workflows/runs.ts";
import type { Target } from "../http/target.ts";
import { asksFor, splitQuery, splitTarget } from "../http/target.ts";

/** What a plain publish meets on its way, as any other request does. */
export type Way = {
  parts: Parts &
    Pick<PlainService, "idleAlarm"> & { corsOrigins?: readonly string[] } & { log(status: number, line: () => RequestLine): void };
  /** Whose the bearer token is, when it was used a moment ago. */
  known(authorization: string): Proof | null;
  /** Resolves when it is known whose it is, if it is anybody's. Never rejects. */
  lookUp(authorization: string): Promise<unknown>;
  intake: Intake;
  outflow: Outflow;
  isClosing(): boolean;
};

/** A row of the table of routes, and what of the path it is given. */
type Found = { row: Route; params: Record<string, string> };

/**
 * What messages are published by: one alone, or a list, as by the steps of workflow runs; and what ends a run, which comes over the same
 * connections. For all of them the same is to be looked at beforehand.
 */
function rowOf({ method, target, rawHeaders }: Pick<Asked, "method" | "target" | "rawHeaders">): Found | null {
  if (method === "DELETE") {
    const [, workflowRunId] = finishing.exec(target) ?? [];
    return workflowRunId === undefined ? null : { row: endRun, params: { workflowRunId } };
  }
  if (method !== "POST") return null;
  if (publishing.test(target)) return makesSchedule(method, target, rawHeaders) ? null : { row: publish, params: {} };
  return target.length === batch.path.length && target.toLowerCase() === batch.path ? { row: batch, params: {} } : null;
}

const publishing = /^\/v2\/publish\//i;
const finishing = /^\/v2\/workflows\/runs\/([\w.-]+)\?cancel=false$/i;

/** Reports whether a publish has a cron expression, in a header or in its query: then it makes a schedule. Looked at for every publish. */
export function makesSchedule(method: string, target: string, rawHeaders: readonly string[]): boolean {
  if (method !== "POST") return false;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const { length } = rawHeaders[at] ?? "";
    if (crons.has(length) && brandedHeader(rawHeaders[at] ?? "")?.name === "cron") return true;
  }
  // Any character of the name may be percent-encoded.
  return /\?.*(?:cron|%)/is.test(target) && asksFor(splitTarget(target).query, "cron");
}

/** Lengths of the names of such a header. Most other names differ in length. */
const crons: ReadonlySet<number> = new Set(Object.values(brandNames).map(({ prefix }) => `${prefix}-Cron`.length));

/**
 * Has a server answer plain publishes by itself: those with a small body whose length is said, and the token of an account that was used
 * a moment ago. They are nearly all that is asked of a busy server, and what a full parser of HTTP and a framework take for each would be
 * a fifth of the processor time of a message. All others, and whatever is unusual about one, go the usual way. All ways end in the same
 * row of the table of routes, so they answer the same; see docs/decisions/0031 and 0037.
 */
export function servePlainPublishes(server: Server, way: Way): void {
  servePlainly(server, {
    now: () => way.parts.now(),
    idleAlarm: way.parts.idleAlarm,
    admit: (head, callerIp) => {
      const admitted = admit(head, callerIp, way);
      return admitted === "unknown" ? way.lookUp(head.authorization ?? "") : admitted;
    },
  });
  serveParsed(server, way);
}

/** The same for what Node's parser has read, on connections that something else was asked on before. */
function serveParsed(server: Server, way: Way): void {
  const usual = server.listeners("request") as RequestListener[];
  server.removeAllListeners("request");
  server.on("request", (request, response) => {
    const head = headOf(request);
    const admitted = head && admit(head, addressIn(request.socket.remoteAddress), way);
    if (admitted && admitted !== "unknown") return take(request, response, admitted);
    for (const listener of usual) listener.call(server, request, response);
  });
}

/** What it takes to let a request in. */
type Asked = Pick<PlainHead, "method" | "target" | "rawHeaders" | "authorization" | "length">;

function headOf({ method = "", url = "", headers, rawHeaders }: IncomingMessage): Asked | null {
  const length = bytesAtOnce(headers);
  if (length === null || headers.expect !== undefined) return null;
  return { method, target: url, rawHeaders, authorization: headers.authorization, length };
}

function take(request: IncomingMessage, response: ServerResponse, { answer, leave }: Admitted): void {
  const pieces: Buffer[] = [];
  let isWhole = false;
  // It may be broken off before.
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
  const length = Buffer.byteLength(text);
  response.writeHead(status, { "content-type": "application/json; charset=utf-8", "content-length": length, ...headers });
  response.end(text);
}

/** Null: it goes the usual way. `unknown`: whose the token is was not asked lately. */
function admit(head: Asked, callerIp: string | null, way: Way): Admitted | null | "unknown" {
  const found = rowOf(head);
  if (found === null || head.length > mostAtOnce || head.authorization === undefined || way.isClosing()) return null;
  // The usual way adds the headers by which a page may read the answer.
  if (way.parts.corsOrigins?.length && hasOrigin(head.rawHeaders)) return null;
  try {
    const proof = way.known(head.authorization);
    if (proof === null) return "unknown";
    if (proof.right !== "all") return null;
    const leave = way.intake.take(proof.account.id, head.length);
    const taken: Taken = { way, found, proof, head, callerIp, since: way.parts.now() };
    return { leave, answer: (body) => answerTo(taken, body).finally(leave) };
  } catch {
    // What is wrong with it is told on the usual way.
    return null;
  }
}

/** A request that is on its way. */
type Taken = { way: Way; found: Found; proof: Proof; head: Asked; callerIp: string | null; since: Millis };

async function answerTo(taken: Taken, body: Buffer): Promise<PlainAnswer> {
  const { way, proof, head, since } = taken;
  const { method } = head;
  const target = splitTarget(head.target);
  const answer = await ask(taken, target, body).then(accepted, (error: unknown) => refused(target, error));
  const { status, headers, fault } = answer;
  const text = JSON.stringify(answer.body);
  way.parts.log(status, () => ({
    ...{ method, path: shownPath(target, proof.token), status, ms: way.parts.now() - since, account: proof.account.id },
    ...(fault === null ? {} : { fault }),
  }));
  const gone = way.outflow.hold(proof.account.id, Buffer.byteLength(text));
  return { status, headers, text, ...(gone && { gone }) };
}

/** Rejects also where the request cannot be read. */
async function ask(
  { way, found: { row, params }, proof, head: { rawHeaders }, callerIp }: Taken,
  target: Target,
  body: Buffer,
): Promise<Answer> {
  const incoming = { target, query: splitQuery(target.query), proof, source: null, rawHeaders, origin: "", params, body, callerIp };
  return row.answer(incoming, isAudited(row) ? inNameOf(row, incoming, way.parts) : way.parts);
}

type Answered = { status: number; headers: Readonly<Record<string, string>>; body: unknown; fault: string | null };

const accepted = ({ status, body, ignored = [], headers = {} }: Answer): Answered => ({
  ...{ status, body, fault: null },
  headers: ignored.length > 0 ? { ...headers, "Waypost-Ignored": ignoredHeader(ignored) } : headers,
});

function refused(target: Target, error: unknown): Answered {
  const problem = problemOf(error, limits.messageBytes);
  const { status, fault } = problem;
  return { status, fault, headers: problemHeaders(target.path, problem), body: problemBody(target.path, problem) };
}
