import type { MessageId, Millis } from "../../values/basics.ts";
import { isUnfinished } from "../../model/messageState.ts";
import { readFailedStepName } from "../../model/failureText.ts";
import type { StepItem } from "./step.ts";
import { makeStepItem } from "./step.ts";
import type { KnownRun, RunView, StepUnit } from "./view.ts";
import {
  isAsleep,
  isFailedBy,
  listUnitMessages,
  toProgressState,
  readRetries,
  groupUnits,
  makeRunView,
} from "./view.ts";

/** Steps of a log that belong together. `next` is a call to the endpoint for a step that is not known yet. */
export type StepGroup =
  | { type: "sequential" | "parallel"; steps: StepItem[] }
  | { type: "next"; steps: NextItem[] };

/** A call to the endpoint for a step that is not known yet. */
export type NextItem = Pick<StepItem, "state" | "retries" | "retryDelay" | "errors" | "nextDueAt"> & {
  messageId: MessageId;
  /** The step at which the endpoint reported its failure; null if it named none. */
  stepName: string | null;
};

/** Reports whether a run, or any of its steps, is in one of these states. */
export const hasAnyState = (states: ReadonlySet<string>, known: KnownRun, now: Millis): boolean =>
  states.has(known.run.state) ||
  listStepGroups(known, now).some(({ steps }) => steps.some(({ state }) => states.has(state)));

/**
 * Returns the log of a run: its steps in the order in which they began, and the calls for its
 * next steps.
 */
export function listStepGroups(known: KnownRun, now: Millis): StepGroup[] {
  const view = makeRunView(known, now);
  const units = groupUnits(known);
  const next = listNextMessages(view, units);
  const ids = new Set(next.map(({ id }) => id));
  const groups: StepGroup[] = [];
  for (const unit of units) addToGroups(groups, makeStepItem(view, unit, ids));
  if (next.length > 0)
    groups.push({ type: "next", steps: next.map(({ id, state }) => makeNextItem(view, id, state)) });
  return groups;
}

/**
 * Adds a step to its group. A parallel step names only the size of its group. Neighbouring steps that name
 * the same size therefore form a group until it is full.
 */
function addToGroups(groups: StepGroup[], item: StepItem): void {
  const last = groups.at(-1);
  if (item.concurrent <= 1) groups.push({ type: "sequential", steps: [item] });
  else if (
    last?.type === "parallel" &&
    last.steps[0]?.concurrent === item.concurrent &&
    last.steps.length < item.concurrent
  )
    last.steps.push(item);
  else groups.push({ type: "parallel", steps: [item] });
}

type Next = { id: MessageId; state: StepItem["state"] };

/**
 * Returns the messages that call the endpoint for a step that is not known yet. For a run that has ended,
 * returns the messages that did so when it ended.
 */
function listNextMessages(view: RunView, units: readonly StepUnit[]): Next[] {
  const { run, steps } = view;
  if (run.state === "RUN_SUCCESS") return [];
  if (run.state === "RUN_FAILED") {
    const id = run.failure?.messageId;
    return id === undefined || units.some((unit) => isFailedBy(unit, id))
      ? []
      : [{ id, state: "STEP_FAILED" }];
  }
  // If steps run in parallel, the message of the step that ends last continues the run.
  const last = units.every(({ result }) => result)
    ? steps.findLast(({ callType }) => callType === "step")
    : undefined;
  const isContinuing = last !== undefined && !isAsleep(view, last);
  if (run.state === "RUN_CANCELED")
    return isContinuing ? [{ id: last.messageId, state: "STEP_CANCELED" }] : [];
  const openMessageIds = new Set(units.filter(({ result }) => !result).flatMap(listUnitMessages));
  const isCalled = (state: KnownRun["messages"][number]): boolean =>
    isUnfinished(state) &&
    !openMessageIds.has(state.id) &&
    (isContinuing && state.id === last.messageId ? true : state.attempts > 0);
  return view.messages.filter(isCalled).map((state) => ({ id: state.id, state: toProgressState(state) }));
}

function makeNextItem(view: RunView, messageId: MessageId, state: NextItem["state"]): NextItem {
  const errors = view.listErrors(messageId);
  return {
    messageId,
    state,
    errors,
    ...readRetries(view, messageId),
    stepName: readFailedStepName(errors.at(-1)?.headers ?? []),
    nextDueAt: state === "STEP_RETRY" ? (view.findState(messageId)?.dueAt ?? null) : null,
  };
}
