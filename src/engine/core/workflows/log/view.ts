import { readIdTime } from "../../values/ids.ts";
import { defaults } from "../../values/limits.ts";
import type { StoredMessage } from "../../model/message.ts";
import type { LogRow } from "../../model/logRow.ts";
import type { MessageId, Millis } from "../../values/basics.ts";
import type { MessageState } from "../../model/messageState.ts";
import { isInAttempt } from "../../model/messageState.ts";
import type { RunKey } from "../../model/runPost.ts";
import type { Run, Step, Waiter } from "../../model/run.ts";
import { isSleep } from "../../model/run.ts";
import { isInitial, parseStepId, readRunPart } from "../../model/stepId.ts";

/** The known rows of a run when its log is read. Rows past their retention may be missing from every list. */
export type KnownRun = {
  run: Run;
  /** In the order of the history. */
  steps: readonly Step[];
  /** The ids of steps that were loaded without their bodies, because the page has no room for more. */
  cut: ReadonlySet<string>;
  waiters: readonly Waiter[];
  /** Messages that are unfinished, or whose requests still run. */
  messages: readonly MessageState[];
  /** The log rows of the messages of the run, within the retention. */
  log: readonly LogRow[];
  /**
   * The messages that have their own settings. These are requests to third parties and, if
   * `features.captured` is false, all messages of the run.
   */
  storedMessages: readonly StoredMessage[];
  children: readonly Child[];
  lineage: RunLineage;
};

/**
 * `origin` is the run that this run resumed or restarted. `next` is the run that resumed or restarted this
 * run. Each is null if it never existed or has been removed.
 */
export type RunLineage = { origin: Run | null; next: Run | null };

/** A run that a step invoked, and its payload. `payload` is null if it is too large to be loaded. */
export type Child = { run: Run; payload: Uint8Array | null };

/**
 * The rows of one step: its plan, a request to a third party with the response, its waiter, and its result.
 */
export type StepUnit = {
  plan?: Step;
  call?: Step;
  answer?: Step;
  waiter?: Waiter;
  result?: Step;
  /** The call to the endpoint that led to the step. */
  runner: MessageId | null;
  /** When the step before was stored, if it ran on. Earlier errors of the call belong to earlier steps. */
  since: Millis;
};

/** A known run with look-ups for its rows. */
export type RunView = KnownRun & {
  now: Millis;
  listLog(messageId: MessageId): readonly LogRow[];
  /** Returns the failed attempts of a message. */
  listErrors(messageId: MessageId): readonly LogRow[];
  findState(messageId: MessageId): MessageState | undefined;
  findStoredMessage(messageId: MessageId): StoredMessage | undefined;
  findChild(run: RunKey): Child | undefined;
};

/** Returns a view of a known run at one moment. */
export function makeRunView(known: KnownRun, now: Millis): RunView {
  const log = Map.groupBy(known.log, ({ messageId }) => messageId);
  const states = new Map(known.messages.map((state) => [state.id, state]));
  const messages = new Map(known.storedMessages.map((message) => [message.id, message]));
  const children = new Map(known.children.map((child) => [child.run.id, child]));
  const listLog = (id: MessageId): readonly LogRow[] => log.get(id) ?? [];
  return {
    ...known,
    now,
    listLog,
    listErrors: (id) => listLog(id).filter((row) => row.states.includes("ERROR")),
    findState: (id) => states.get(id),
    findStoredMessage: (id) => messages.get(id),
    findChild: (key) => children.get(key),
  };
}

/** Groups the rows of a run by step, in the order in which the steps appear. */
export function groupUnits({ steps, waiters }: Pick<KnownRun, "steps" | "waiters">): StepUnit[] {
  const units = new Map<string, StepUnit>();
  let runner: MessageId | null = null;
  let lastMessage: MessageId | null = null;
  let since: Millis = 0;
  const findOrCreateUnit = (number: string): StepUnit => {
    const known = units.get(number);
    if (known) return known;
    const unit: StepUnit = { runner, since };
    units.set(number, unit);
    // The other steps of a parallel group came from the same call; only the first step shows it.
    runner = null;
    return unit;
  };
  for (const step of steps) {
    const { kind, number } = parseUnitKey(step);
    const unit = findOrCreateUnit(number);
    unit[kind] ??= step;
    if (kind !== "result") continue;
    since = step.messageId === lastMessage ? step.createdAt : 0;
    runner = lastMessage = step.messageId;
  }
  for (const waiter of waiters.toSorted((a, b) => a.createdAt - b.createdAt))
    findOrCreateUnit(readRunPart(waiter.id)).waiter = waiter;
  return [...units.values()];
}

function parseUnitKey({ id }: Step): { kind: "plan" | "result" | "call" | "answer"; number: string } {
  const { kind, number } = parseStepId(id);
  // The initial payload and unreadable steps share no number with other steps.
  if (kind === "initial" || kind === "unreadable") return { kind: "result", number: readRunPart(id) };
  return { kind, number: String(number) };
}

/** Returns the messages of a step that has no result yet. */
export const listUnitMessages = ({ plan, call, answer }: StepUnit): MessageId[] =>
  [plan, call, answer].flatMap((step) => (step ? [step.messageId] : []));

/** Reports whether a run failed with a message of this step. Such a step has no result. */
export const isFailedBy = (unit: StepUnit, messageId: MessageId): boolean =>
  !unit.result && listUnitMessages(unit).includes(messageId);

/** Returns the state in which the log shows an unfinished message. */
export const toProgressState = (state: MessageState): "STEP_PROGRESS" | "STEP_RETRY" =>
  !isInAttempt(state) && state.attempts > 0 ? "STEP_RETRY" : "STEP_PROGRESS";

/**
 * Reports whether the call to the endpoint that carries this step waits for its due time. For a run that has
 * ended, reports whether the call waited when the run ended.
 */
export function isAsleep(view: RunView, step: Step): boolean {
  if (!isInitial(step) && !isSleep(step)) return false;
  if (view.run.endedAt !== null) return wasNeverSent(view.listLog(step.messageId));
  const state = view.findState(step.messageId);
  return state !== undefined && isDelayed(state, view.now);
}

/** Reports whether a message waits for its due time and has never been sent. */
export const isDelayed = ({ state, attempts, dueAt }: MessageState, now: Millis): boolean =>
  state === "pending" && attempts === 0 && (dueAt ?? 0) > now;

const wasNeverSent = (rows: readonly LogRow[]): boolean =>
  rows.length > 0 && rows.every(({ states }) => states[0] === "CANCELLED");

/** Returns how many times a message is retried, and its retry delay. */
export function readRetries(
  { run, findStoredMessage }: RunView,
  messageId: MessageId | null,
): { retries: number; retryDelay: string | null } {
  const { retries, retryDelay } =
    (messageId === null ? undefined : findStoredMessage(messageId)) ?? run.settings;
  return { retries: retries ?? defaults.retries, retryDelay };
}

/** Reports whether a message was created for this run and not for an older run that this run resumes. */
export const isOwnMessage = ({ run }: Pick<KnownRun, "run">, messageId: MessageId): boolean =>
  readIdTime(messageId) >= run.createdAt;
