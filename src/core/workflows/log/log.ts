import type { MessageId, Millis } from "../../model/message.ts";
import { stepNamed } from "../../model/failureText.ts";
import type { StepItem } from "./step.ts";
import { itemOf } from "./step.ts";
import type { KnownRun, RunView, Unit } from "./view.ts";
import { isAsleep, isBrokenBy, messagesOf, progressOf, retriesOf, unitsOf, viewOf } from "./view.ts";

/** Steps of a log that belong together. `next`: the endpoint is called for a step that is not known yet. */
export type StepGroup = { type: "sequential" | "parallel"; steps: StepItem[] } | { type: "next"; steps: NextItem[] };

export type NextItem = Pick<StepItem, "state" | "retries" | "retryDelay" | "errors" | "nextDueAt"> & {
  messageId: MessageId;
  /** Where the endpoint has said at which step it failed. */
  stepName: string | null;
};

/** Whether a run, or any of its steps, is in one of these states. */
export const isIn = (states: ReadonlySet<string>, known: KnownRun, now: Millis): boolean =>
  states.has(known.run.state) || groupsOf(known, now).some(({ steps }) => steps.some(({ state }) => states.has(state)));

/** The log of a run: what it has done, in the order in which it was begun, and what it is about to do (protocol 6.17). */
export function groupsOf(known: KnownRun, now: Millis): StepGroup[] {
  const view = viewOf(known, now);
  const units = unitsOf(known);
  const next = nextOf(view, units);
  const ids = new Set(next.map(({ id }) => id));
  const groups: StepGroup[] = [];
  for (const unit of units) add(groups, itemOf(view, unit, ids));
  if (next.length > 0) groups.push({ type: "next", steps: next.map(({ id, state }) => nextItem(view, id, state)) });
  return groups;
}

/** Steps that go side by side know of each other only how many they are. */
function add(groups: StepGroup[], item: StepItem): void {
  const last = groups.at(-1);
  if (item.concurrent <= 1) groups.push({ type: "sequential", steps: [item] });
  else if (last?.type === "parallel" && last.steps[0]?.concurrent === item.concurrent && last.steps.length < item.concurrent)
    last.steps.push(item);
  else groups.push({ type: "parallel", steps: [item] });
}

type Next = { id: MessageId; state: StepItem["state"] };

/** The messages that the endpoint is called with for a step that is not known yet, or was when the run ended. */
function nextOf(view: RunView, units: readonly Unit[]): Next[] {
  const { run, steps } = view;
  if (run.state === "RUN_SUCCESS") return [];
  if (run.state === "RUN_FAILED") {
    const id = run.failure?.messageId;
    return id === undefined || units.some((unit) => isBrokenBy(unit, id)) ? [] : [{ id, state: "STEP_FAILED" }];
  }
  // Of steps side by side the last one that ends goes on with what comes behind them.
  const last = units.every(({ result }) => result) ? steps.findLast(({ callType }) => callType === "step") : undefined;
  const goesOn = last !== undefined && !isAsleep(view, last);
  if (run.state === "RUN_CANCELED") return goesOn ? [{ id: last.messageId, state: "STEP_CANCELED" }] : [];
  const ofOpenSteps = new Set(units.filter(({ result }) => !result).flatMap(messagesOf));
  const isCalled = ({ id, attempts }: KnownRun["messages"][number]): boolean =>
    !ofOpenSteps.has(id) && (goesOn && id === last.messageId ? true : attempts > 0);
  return view.messages.filter(isCalled).map((state) => ({ id: state.id, state: progressOf(state) }));
}

function nextItem(view: RunView, messageId: MessageId, state: NextItem["state"]): NextItem {
  const errors = view.errorsOf(messageId);
  return {
    ...{ messageId, state, errors, ...retriesOf(view, messageId), stepName: stepNamed(errors.at(-1)?.headers ?? []) },
    nextDueAt: state === "STEP_RETRY" ? (view.stateOf(messageId)?.dueAt ?? null) : null,
  };
}
