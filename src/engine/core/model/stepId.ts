import type { RunKey, StepHead } from "./runPost.ts";
import type { CallType } from "./run.ts";

// The id of a row that belongs to a run is `<run>/<part>`. For a step, the part is its key: its kind and its
// number, such as `p3`. A result that is posted twice has the same key both times, so it is kept once. For a
// waiter, the part is the number of its step, because no step waits twice.

/**
 * The content of a step: the initial payload, the plan of a step, its result, a request to a third party, or
 * its response (`answer`).
 */
export type StepKind = "initial" | "plan" | "result" | "call" | "answer" | "unreadable";

/**
 * A parsed step key. `number` is the number of the step, or 0 for the initial payload. For an unreadable
 * step, it is the position in the history.
 */
export type ParsedStepKey = { kind: StepKind; number: number };

const kindLetters = {
  initial: "i",
  plan: "p",
  result: "r",
  call: "c",
  answer: "f",
  unreadable: "x",
} as const satisfies Record<StepKind, string>;
const kinds = Object.keys(kindLetters) as StepKind[];

/** Returns the key of a step. */
export const formatStepKey = ({ kind, number }: ParsedStepKey): string =>
  kind === "initial" ? kindLetters.initial : `${kindLetters[kind]}${number}`;

/**
 * Parses the key of a step. A string that is not a key counts as unreadable, because the history of a run may
 * be damaged.
 */
export function parseStepKey(key: string): ParsedStepKey {
  const kind = kinds.find((one) => kindLetters[one] === key.slice(0, 1)) ?? "unreadable";
  const number = Number(key.slice(1));
  return formatStepKey({ kind, number }) === key ? { kind, number } : { kind: "unreadable", number: 0 };
}

/** The key of the initial payload. */
export const initialStepKey = formatStepKey({ kind: "initial", number: 0 });

/** Returns the key of a posted step. The key of a step that cannot be read is its position. */
export function toStepKey(callType: CallType, head: StepHead | null, position: number): string {
  const number = head && (head.stepId || head.targetStep);
  if (!number) return formatStepKey({ kind: "unreadable", number: position });
  if (callType === "step") return formatStepKey({ kind: head.stepId > 0 ? "result" : "plan", number });
  return formatStepKey({ kind: callType === "toCallback" ? "call" : "answer", number });
}

/** Returns the id of a step. */
export const toStepId = (run: RunKey, stepKey: string): string => `${run}/${stepKey}`;

/** Returns the id of the result of a step. */
export const toResultId = (run: RunKey, { stepId }: Readonly<Record<string, unknown>>): string =>
  toStepId(run, `${kindLetters.result}${String(stepId)}`);

/** Returns the id of the waiter for a step. */
export const toWaiterId = (run: RunKey, { stepId }: Readonly<Record<string, unknown>>): string =>
  `${run}/${String(stepId)}`;

/** Returns the run that a step, a waiter or a notification belongs to, by its id. */
export const readRunKey = (id: string): RunKey => id.slice(0, id.indexOf("/"));

/**
 * Returns the part of an id that names a step, a waiter or a notification within its run. For a step, it is
 * the step key.
 */
export const readRunPart = (id: string): string => id.slice(id.indexOf("/") + 1);

/** Returns the parsed step key in the id of a step. */
export const parseStepId = (id: string): ParsedStepKey => parseStepKey(readRunPart(id));

/** Reports whether a step is the initial payload of its run. */
export const isInitial = ({ id }: { id: string }): boolean => readRunPart(id) === initialStepKey;

/**
 * Returns two texts. The ids of all rows of a run sort between them, and no other ids do. In ASCII, `0`
 * follows the slash.
 */
export const listRunBounds = (run: RunKey): { after: string; before: string } => ({
  after: `${run}/`,
  before: `${run}0`,
});
