import { readIdTime } from "../../values/ids.ts";
import { defaults } from "../../values/limits.ts";
import type { StoredMessage, LogRow, MessageId, MessageState, Millis, RunKey } from "../../model/message.ts";
import type { Run, Step, Waiter } from "../../model/run.ts";
import { isSleep } from "../../model/run.ts";
import { isInitial, parseStepId, readRunPart } from "../../model/stepId.ts";

/** What is known of a run when its log is read. Rows that are past their time may be missing from any of the lists. */
export type KnownRun = {
  run: Run;
  /** In the order of the history. */
  steps: readonly Step[];
  /** Ids of steps that are here without their bodies, because no more of them fit. */
  cut: ReadonlySet<string>;
  waiters: readonly Waiter[];
  /** Unfinished messages. */
  messages: readonly MessageState[];
  /** What happened to the messages of the run, as far back as is kept in sight. */
  log: readonly LogRow[];
  /** Messages that say of themselves how they are sent: requests to third parties, and all of a run whose settings do not hold for them. */
  storedMessages: readonly StoredMessage[];
  children: readonly Child[];
  lineage: RunLineage;
};

/** The run that a run goes on with, or begins again, and the one that goes on with it; null where there is none any more. */
export type RunLineage = { origin: Run | null; next: Run | null };

/** A run that was invoked by a step, and what it was given. `payload` null: too large to be here. */
export type Child = { run: Run; payload: Uint8Array | null };

/** What belongs to one step: its plan, a request to a third party with its answer, what it waits for, its result. */
export type StepUnit = {
  plan?: Step;
  call?: Step;
  answer?: Step;
  waiter?: Waiter;
  result?: Step;
  /** The message that the endpoint was called with, and made the step of. */
  runner: MessageId | null;
};

/** A known run, and how to find in it what is looked for. */
export type RunView = KnownRun & {
  now: Millis;
  listLog(messageId: MessageId): readonly LogRow[];
  /** Its attempts that failed. */
  listErrors(messageId: MessageId): readonly LogRow[];
  findState(messageId: MessageId): MessageState | undefined;
  findStoredMessage(messageId: MessageId): StoredMessage | undefined;
  findChild(run: RunKey): Child | undefined;
};

/** Looks at a known run at one moment. */
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

/** Steps by what they are steps of, in the order in which they appear. */
export function groupUnits({ steps, waiters }: Pick<KnownRun, "steps" | "waiters">): StepUnit[] {
  const units = new Map<string, StepUnit>();
  let runner: MessageId | null = null;
  const findOrCreateUnit = (number: string): StepUnit => {
    const known = units.get(number);
    if (known) return known;
    const unit: StepUnit = { runner };
    units.set(number, unit);
    // The other branches of its group were made of the same call.
    runner = null;
    return unit;
  };
  for (const step of steps) {
    const { kind, number } = parseUnitKey(step);
    const unit = findOrCreateUnit(number);
    unit[kind] ??= step;
    if (kind === "result") runner = step.messageId;
  }
  for (const waiter of waiters.toSorted((a, b) => a.createdAt - b.createdAt)) findOrCreateUnit(readRunPart(waiter.id)).waiter = waiter;
  return [...units.values()];
}

function parseUnitKey({ id }: Step): { kind: "plan" | "result" | "call" | "answer"; number: string } {
  const { kind, number } = parseStepId(id);
  // The initial payload, and what could not be read: neither has a number in common with other steps.
  if (kind === "initial" || kind === "unreadable") return { kind: "result", number: readRunPart(id) };
  return { kind, number: String(number) };
}

/** The messages of a step that has no result yet. */
export const listUnitMessages = ({ plan, call, answer }: StepUnit): MessageId[] =>
  [plan, call, answer].flatMap((step) => (step ? [step.messageId] : []));

/** Whether a run failed with a message of this step, which therefore has no result. */
export const isFailedBy = (unit: StepUnit, messageId: MessageId): boolean => !unit.result && listUnitMessages(unit).includes(messageId);

/** How a message that is not finished appears. */
export const toProgressState = ({ state, attempts }: MessageState): "STEP_PROGRESS" | "STEP_RETRY" =>
  state !== "active" && attempts > 0 ? "STEP_RETRY" : "STEP_PROGRESS";

/** Whether the endpoint is not called with this step before a time that has not come, or had not when the run ended. */
export function isAsleep(view: RunView, step: Step): boolean {
  if (!isInitial(step) && !isSleep(step)) return false;
  if (view.run.endedAt !== null) return wasNeverSent(view.listLog(step.messageId));
  const state = view.findState(step.messageId);
  return state !== undefined && isDelayed(state, view.now);
}

/** Whether a message waits for its time, and has not been sent before. */
export const isDelayed = ({ state, attempts, dueAt }: MessageState, now: Millis): boolean =>
  state === "pending" && attempts === 0 && (dueAt ?? 0) > now;

const wasNeverSent = (rows: readonly LogRow[]): boolean => rows.length > 0 && rows.every(({ states }) => states[0] === "CANCELLED");

/** How often a message is sent again, and when. */
export function readRetries(
  { run, findStoredMessage }: RunView,
  messageId: MessageId | null,
): { retries: number; retryDelay: string | null } {
  const { retries, retryDelay } = (messageId === null ? undefined : findStoredMessage(messageId)) ?? run.settings;
  return { retries: retries ?? defaults.retries, retryDelay };
}

/** Whether a message was made for this run, and not for one that it goes on with. */
export const isOwnMessage = ({ run }: Pick<KnownRun, "run">, messageId: MessageId): boolean => readIdTime(messageId) >= run.createdAt;
