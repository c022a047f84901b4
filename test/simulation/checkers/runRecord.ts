import type { Run, Step } from "../../../src/engine/core/model/run.ts";
import type { AssertHolds } from "./observedBatch.ts";
import type { HistoryStep } from "../actors/programs.ts";

/** The checker's record of one run. */
export class RunRecord {
  run: Run;
  readonly history: Step[] = [];
  readonly slots = new Map<string, Step>();
  /** Unfinished messages. */
  readonly messages = new Set<string>();
  readonly waiters = new Set<string>();
  /** Stored notifications by id, each with the result of the step that will take it. */
  readonly notifications = new Map<string, string>();
  /** Steps that already had results when the original run failed. */
  inherited: ReadonlySet<string> = new Set();
  deadLetters = 0;
  failureCallbacks = 0;
  ended = false;

  constructor(run: Run) {
    this.run = run;
  }

  get results(): string[] {
    return [...this.slots.keys()].filter((slot) => slot.startsWith("r"));
  }
}

/** Returns the step key of a step id. */
export const parseStepKey = (id: string): string => id.slice(id.indexOf("/") + 1);

/** Returns the text of a body in UTF-8. */
export const decodeText = (body: Uint8Array): string => new TextDecoder().decode(body);
/** Parses the step that a row stores. */
export const parseStep = (step: Step): HistoryStep => JSON.parse(decodeText(step.body)) as HistoryStep;

/** Reports whether a step is a result, and not a plan. */
export const isResult = (step: Step): boolean => parseStepKey(step.id).startsWith("r");

/**
 * Reports whether a key is that of a plan without a result that comes before the result of step `stepId`. No
 * workflow plans a step so early: the plan was posted for another run with the same run id. Its call does not
 * carry the result, so that the endpoint runs step `stepId` again.
 */
export function isMisplacedPlan({ slots, inherited }: RunRecord, stepKey: string, stepId: number): boolean {
  const plan = slots.get(stepKey);
  const result = slots.get(`r${stepId}`);
  if (!plan || !result || !stepKey.startsWith("p")) return false;
  return !inherited.has(`r${stepKey.slice(1)}`) && plan.position < result.position;
}

/** All records by run, and the function that reports a broken invariant. */
export type RunRecords = { records: ReadonlyMap<string, RunRecord>; demand: AssertHolds };
