import type { Draft, Key, Moment, Needs } from "../decision/command.ts";
import { Refusal } from "../values/errors.ts";
import { destinationNeeds, listLimiterKeysFor } from "../admission/needs.ts";
import { accept } from "../sending/createMessage.ts";
import type { OneLetter } from "../sending/createMessage.ts";
import { lazyBytes, limits } from "../values/limits.ts";
import type { Account, AccountId, Envelope, HeaderList, Letter, Millis, RunKey, RunPart, RunPost, StepHead } from "../model/message.ts";
import { joinHeaders } from "../values/headers.ts";
import { noBytes } from "../model/message.ts";
import type { ActiveRun, CallType, Run, Waited } from "../model/run.ts";
import { sizeInHistory } from "../model/run.ts";
import { toStepId, toStepKey, toWaiterId } from "../model/stepId.ts";
import { dropWaiter } from "./waiters.ts";

/** A run that goes on: its beginning, and how far it is. */
export type Going = { run: Run; active: ActiveRun };

/** The run of this name that has not ended. `key`: only if it is this one, and not a later one of the same name. */
export function goingRun(draft: Draft, account: AccountId, runId: string, key?: RunKey): Going | null {
  const active = draft.get("activeRuns", account, runId);
  const run = active && draft.get("runs", account, active.run);
  return active && run && (key === undefined || run.id === key) ? { run, active } : null;
}

/** The same for whoever wants to go on with it. Throws `Refusal`, which clients take for the end of the run. */
export function mustGoOn(draft: Draft, account: AccountId, runId: string): Going {
  const going = goingRun(draft, account, runId);
  if (going) return going;
  throw new Refusal("invalid", `workflow-runid: there is no run ${JSON.stringify(runId.slice(0, 200))} that has not ended`);
}

/** What must be seen of a run before anything is sent for it: the run, and then what its messages pass. */
export function needsOfRun(draft: Draft, account: AccountId, runId: string): { runs: Key[]; flows: Key[] } {
  const active = draft.get("activeRuns", account, runId);
  const run = active && draft.get("runs", account, active.run);
  return {
    runs: active ? [[account, active.run]] : [],
    flows: run ? listLimiterKeysFor(account, [{ queue: null, flowControl: run.settings.flowControl }]) : [],
  };
}

/** A step to be appended, and what its message has that is not the run's. */
export type NewStep = {
  callType: CallType;
  head: StepHead | null;
  body: Uint8Array;
  url: string;
  headers: HeaderList;
  delay?: Millis | null;
  notBefore?: Millis | null;
  /** What its message is, instead of a call to the workflow that carries the history. */
  kind?: RunPart["kind"];
  slot?: string;
  first?: RunPart["first"];
  /** Settings that hold instead of those of the run. */
  own?: Partial<OneLetter>;
  waited?: Waited;
};

/** Appends a step to a history, and makes the message that carries it. The caller has asked for its lines and flows. */
export function appendStep(draft: Draft, moment: Moment, account: Account, going: Going, step: NewStep): Envelope {
  const { run } = going;
  const active = draft.get("activeRuns", run.account, run.runId) ?? going.active;
  const position = active.steps;
  const size = active.size + sizeInHistory(step.body.byteLength);
  const slot = step.slot ?? toStepKey(step.callType, step.head, position);
  const kind = step.kind ?? "step";
  const message = send(draft, moment, account, run, { ...step, kind, slot, position, size: kind === "step" ? size : step.body.byteLength });
  draft.put("steps", {
    ...{ account: account.id, id: toStepId(run.id, slot), run: run.id, position, messageId: message.id, callType: step.callType },
    ...{ createdAt: moment.now, head: step.head, url: step.url, headers: step.headers, body: kind === "call" ? noBytes : step.body },
    ...(step.waited === undefined ? {} : { waited: step.waited }),
  });
  draft.put("activeRuns", { ...active, steps: position + 1, size });
  return message;
}

/** A message that carries a step. `size`: of what is sent. */
type Sent = Pick<NewStep, "body" | "url" | "headers" | "delay" | "notBefore" | "first" | "own"> &
  Pick<RunPart, "kind" | "slot" | "position" | "size">;

/** A history grows beyond its limit by what was on its way. One that is longer is sent to nobody: it would not fit into memory. */
const mostSent = 2 * limits.historyBytes;

/** Makes the message that carries a step of the history. */
export function send(draft: Draft, moment: Moment, account: Account, run: Run, sent: Sent): Envelope {
  const { kind, slot, position, size, first } = sent;
  // The answer of a third party is always sent along: published clients fail on an empty one.
  const isFetched = kind === "step" && size > (run.features.lazyFetch ? lazyBytes : mostSent);
  const part: RunPart = {
    ...{ run: run.id, runId: run.runId, createdAt: run.createdAt, kind, slot, position, size: isFetched ? 0 : size },
    ...(first === undefined ? {} : { first }),
  };
  return accept(draft, moment, account, letterOfStep(run, sent, part));
}

function letterOfStep(run: Run, step: Sent, part: RunPart): OneLetter {
  const { settings } = run;
  return {
    ...settings,
    ...{ brand: run.brand, url: step.url, group: null, endpoint: null, queue: null, scheduleId: null },
    // The body of all others is in the history.
    body: part.kind === "call" ? step.body : noBytes,
    headers: joinHeaders(
      part.kind === "result" ? settings.headers.filter(([name]) => !protocolVersion.test(name)) : settings.headers,
      step.headers,
    ),
    ...{ callback: null, failureCallback: null, delay: step.delay ?? null, notBefore: step.notBefore ?? null, deduplication: null },
    ...{ labels: run.labels, redaction: run.redaction, callerIp: run.callerIp, tells: null },
    ...(run.keepResponse ? { keepResponse: true } : {}),
    ...step.own,
    run: part,
  };
}

/** An endpoint takes a request that has it for a step, and the answer of a third party is none (protocol 6.5). */
const protocolVersion = /^(svc|upstash)-workflow-sdk-version$/i;

/** Whether an endpoint may go on with a run: what the service itself appends follows from what was posted. Throws `Refusal`. */
export function checkHistory({ active: { runId, steps, size } }: Going): void {
  const of = `of the run ${runId.slice(0, 200)}`;
  if (steps >= limits.steps) throw new Refusal("limit-exceeded", `steps: the history ${of} has ${steps}, the limit is ${limits.steps}`);
  if (size > limits.historyBytes)
    throw new Refusal("limit-exceeded", `steps: the history ${of} comes to ${size} bytes, the limit is ${limits.historyBytes}`);
}

/** Whether a step of so many bytes, which comes to a run from outside, still fits into its history. */
export const hasRoom = ({ active: { size } }: Going, bytes: number): boolean => size + sizeInHistory(bytes) <= limits.historyBytes;

/** What is said when it does not. */
export const noRoom = (going: Going, field: string): Refusal => new Refusal("limit-exceeded", `${field}: ${noRoomFor(going, "it")}`);

/** The same of what nobody is refused. */
export const noRoomFor = ({ active: { runId, size } }: Going, what: string): string =>
  `${what} does not fit into the history of the run ${runId.slice(0, 200)}, which comes to ${size} bytes; the limit is ${limits.historyBytes}`;

/** A letter that is a step of a run, or a call to a third party for one. */
export type StepLetter = Letter & { post: Extract<RunPost, { kind: "step" | "call" }> };

export const needsOfStep = (draft: Draft, account: AccountId, { post: { runId, kind, head }, url, flowControl }: StepLetter): Needs => {
  const active = draft.get("activeRuns", account, runId);
  const { runs, flows } = needsOfRun(draft, account, runId);
  const slot = toStepKey(kind === "call" ? "toCallback" : "step", head, -1);
  return {
    ...{ runs, ...destinationNeeds(account, [url]), outlines: { steps: active ? [[account, toStepId(active.run, slot)]] : [] } },
    waiters: active && head ? [[account, toWaiterId(active.run, head)]] : [],
    flows: [...flows, ...listLimiterKeysFor(account, [{ queue: null, flowControl }])],
  };
};

/**
 * Takes in what an endpoint has posted for its run. What was posted before is answered with its message and changes
 * nothing: an endpoint that did not learn that it had come through posts it again. Throws `Refusal` when the run has ended.
 */
export function postStep(draft: Draft, moment: Moment, account: Account, letter: StepLetter): Posted {
  const { post, url, method, headers, delay, notBefore, body } = letter;
  const going = mustGoOn(draft, account.id, post.runId);
  const { runId, createdAt } = going.run;
  const callType = post.kind === "call" ? "toCallback" : "step";
  const older = draft.outline("steps", account.id, toStepId(going.run.id, toStepKey(callType, post.head, -1)));
  if (older) return { messageId: older.messageId, deduplicated: false, run: { runId, createdAt } };
  checkHistory(going);
  // A step that has its result waits for nothing any more.
  if (callType === "step" && post.head) dropWaiter(draft, account.id, toWaiterId(going.run.id, post.head));
  const ofLetter = post.kind === "call" || !going.run.features.captured;
  const message = appendStep(draft, moment, account, going, {
    ...{ callType, head: post.head, body, url, headers, delay, notBefore, kind: post.kind },
    own: ofLetter ? settingsOf(letter, post.kind) : { method },
  });
  return { messageId: message.id, deduplicated: false, run: { runId, createdAt } };
}

/** A request to a third party has the settings of its post and no others: what the run is sent with is none of their business. */
function settingsOf(letter: StepLetter, kind: "step" | "call"): Partial<OneLetter> {
  const { method, headers, retries, retryDelay, timeout, flowControl, callback } = letter;
  return { method, retries, retryDelay, timeout, flowControl, ...(kind === "call" ? { headers, callback } : {}) };
}

/** What came of a post for a run: its message, and the run. */
export type Posted = { messageId: string; deduplicated: boolean; run: { runId: string; createdAt: Millis } };
