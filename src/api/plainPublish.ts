import type { Server } from "node:http";
import { limits } from "../core/limits.ts";
import type { Millis } from "../core/message.ts";
import { ignoredHeader, problemHeaders } from "./answerHeaders.ts";
import type { Proof } from "./auth.ts";
import type { Intake } from "./intake.ts";
import { mostAtOnce } from "./intake.ts";
import type { Outflow } from "./outflow.ts";
import type { PlainHead } from "./plainRequest.ts";
import type { PlainAnswer, PlainService } from "./plainSockets.ts";
import { servePlainly } from "./plainSockets.ts";
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
  parts: Parts & Pick<PlainService, "idleAlarm"> & { log(status: number, line: () => RequestLine): void };
  /** Whose the bearer token is, when it was used a moment ago. */
  known(authorization: string): Proof | null;
  /** Resolves when it is known whose it is, if it is anybody's. Never rejects. */
  lookUp(authorization: string): Promise<unknown>;
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
 * a moment ago. They are nearly all that is asked of a busy server, and what a full parser of HTTP and a framework take for each would be
 * a quarter of the processor time of a message. All others, and whatever is unusual about one, go the usual way. Both ways end in the same
 * row of the table of routes, so they answer the same; see docs/decisions/0031 and 0037.
 */
export function servePlainPublishes(server: Server, way: Way): void {
  servePlainly(server, {
    now: () => way.parts.now(),
    idleAlarm: way.parts.idleAlarm,
    admit: (head, callerIp) => admit(head, callerIp, way),
  });
}

function admit(head: PlainHead, callerIp: string | null, way: Way): ReturnType<PlainService["admit"]> {
  const row = rowOf(head.target);
  if (row === null || head.length > mostAtOnce || head.authorization === undefined || way.isClosing()) return null;
  try {
    const proof = way.known(head.authorization);
    if (proof === null) return way.lookUp(head.authorization);
    if (proof.right !== "all") return null;
    const leave = way.intake.take(proof.account.id, head.length);
    const taken: Taken = { way, row, proof, head, callerIp, since: way.parts.now() };
    return { leave, answer: (body) => answerTo(taken, body).finally(leave) };
  } catch {
    // What is wrong with it is told on the usual way.
    return null;
  }
}

/** A request that is on its way. */
type Taken = { way: Way; row: Route; proof: Proof; head: PlainHead; callerIp: string | null; since: Millis };

async function answerTo({ way, row, proof, head, callerIp, since }: Taken, body: Buffer): Promise<PlainAnswer> {
  const { rawHeaders } = head;
  const target = splitTarget(head.target);
  const incoming = { target, query: splitQuery(target.query), proof, source: null, rawHeaders, origin: "", params: {}, body, callerIp };
  const answer = await row.answer(incoming, way.parts).then(accepted, (error: unknown) => refused(target, error));
  const { status, headers, fault } = answer;
  const text = JSON.stringify(answer.body);
  way.parts.log(status, () => ({
    ...{ method: "POST", path: shownPath(target), status, ms: way.parts.now() - since, account: proof.account.id },
    ...(fault === null ? {} : { fault }),
  }));
  const gone = way.outflow.hold(proof.account.id, Buffer.byteLength(text));
  return { status, headers, text, ...(gone && { gone }) };
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
