import type { IncomingMessage, RequestListener, Server, ServerResponse } from "node:http";
import { limits } from "../core/limits.ts";
import type { Millis } from "../core/message.ts";
import { noBytes } from "../core/message.ts";
import { addressIn } from "./address.ts";
import { ignoredHeader, problemHeaders } from "./answerHeaders.ts";
import type { Proof } from "./auth.ts";
import type { Intake } from "./intake.ts";
import { bytesAtOnce } from "./intake.ts";
import type { Outflow } from "./outflow.ts";
import { problemBody, problemOf } from "./refusals.ts";
import type { RequestLine } from "./requestLog.ts";
import { shownPath } from "./requestLog.ts";
import type { Answer, Parts, Route } from "./route.ts";
import { batch } from "./routes/batch.ts";
import { publish } from "./routes/publish.ts";
import type { Target } from "./target.ts";
import { splitQuery, splitTarget } from "./target.ts";

/** What a plain publish meets on its way, as any other request does. */
export type Way = {
  parts: Parts & { log(status: number, line: () => RequestLine): void };
  /** Whose the bearer token is, when it was used a moment ago. */
  known(authorization: string | undefined): Proof | null;
  intake: Intake;
  outflow: Outflow;
  isClosing(): boolean;
};

/** What is published by: one message, or a list, as by the steps of workflow runs. For both rows the same is to be looked at beforehand. */
function rowOf(url: string): Route | null {
  if (url.startsWith("/v2/publish/")) return publish;
  return url === batch.path ? batch : null;
}

/**
 * Has a server answer plain publishes by itself: those with a small body whose length is said, and the token of an account that was used
 * a moment ago. They are nearly all that is asked of a busy server, and a framework would take a tenth of the processor time of a message
 * for each. All others, and whatever is unusual about one, go the usual way. Both ways end in the same row of the table of routes, so they
 * answer the same; see docs/decisions/0031.
 */
export function servePlainPublishes(server: Server, way: Way): void {
  const usual = server.listeners("request") as RequestListener[];
  server.removeAllListeners("request");
  server.on("request", (request, response) => {
    const row = request.method === "POST" ? rowOf(request.url ?? "") : null;
    const proof = row !== null && isPlain(request) && !way.isClosing() ? proofOf(request, way) : null;
    if (row !== null && proof?.right === "all") return take(request, response, { way, row, proof });
    for (const listener of usual) listener.call(server, request, response);
  });
}

const isPlain = ({ headers }: IncomingMessage): boolean => headers.expect === undefined && bytesAtOnce(headers) !== null;

/** What is wrong with a token is told on the usual way. */
function proofOf({ headers }: IncomingMessage, { known }: Way): Proof | null {
  try {
    return known(headers.authorization);
  } catch {
    return null;
  }
}

/** A request that is on its way. */
type Taken = { way: Way; row: Route; proof: Proof };

function take(request: IncomingMessage, response: ServerResponse, taken: Taken): void {
  const { way, proof } = taken;
  const since = way.parts.now();
  const target = splitTarget(request.url ?? "");
  const send = (answer: Sent): void => sendAnswer(response, { ...answer, ...taken, target, since });
  try {
    const bytes = bytesAtOnce(request.headers) ?? 0;
    // However it ends: answered, or broken off.
    response.once("close", way.intake.take(proof.account.id, bytes));
  } catch (error) {
    return send(refused(target, error));
  }
  const chunks: Buffer[] = [];
  request.on("data", (chunk: Buffer) => chunks.push(chunk));
  request.on("end", () => {
    const body = chunks.length === 1 ? (chunks[0] ?? noBytes) : Buffer.concat(chunks);
    answerTo(request, { target, body }, taken)
      .then(accepted, (error: unknown) => refused(target, error))
      .then(send)
      .catch(() => response.destroy());
  });
}

async function answerTo(
  { rawHeaders, socket }: IncomingMessage,
  { target, body }: { target: Target; body: Uint8Array },
  { way, row, proof }: Taken,
): Promise<Answer> {
  const incoming = { target, query: splitQuery(target.query), proof, source: null, rawHeaders, origin: "", params: {}, body };
  return row.answer({ ...incoming, callerIp: addressIn(socket.remoteAddress) }, way.parts);
}

type Sent = { status: number; headers: Readonly<Record<string, string>>; body: unknown; fault: string | null };

const accepted = ({ status, body, ignored = [], headers = {} }: Answer): Sent => ({
  ...{ status, body, fault: null },
  headers: ignored.length > 0 ? { ...headers, "Waypost-Ignored": ignoredHeader(ignored) } : headers,
});

function refused(target: Target, error: unknown): Sent {
  const problem = problemOf(error, limits.messageBytes);
  const { status, fault } = problem;
  return { status, fault, headers: problemHeaders(target.path, problem), body: problemBody(target.path, problem) };
}

type Answering = Sent & Taken & { target: Target; since: Millis };

function sendAnswer(response: ServerResponse, { status, headers, body, fault, target, since, way, proof }: Answering): void {
  const text = JSON.stringify(body);
  const length = Buffer.byteLength(text);
  way.outflow.hold(proof.account.id, length, response);
  response.writeHead(status, { "content-type": "application/json; charset=utf-8", "content-length": length, ...headers });
  response.end(text);
  way.parts.log(status, () => ({
    ...{ method: "POST", path: shownPath(target), status, ms: way.parts.now() - since, account: proof.account.id },
    ...(fault === null ? {} : { fault }),
  }));
}
