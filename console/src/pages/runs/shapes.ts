import type { Routes } from "../../api/schema.ts";
import type { StateName } from "../../parts/stateName.ts";

export type Run = Routes["GET /v2/workflows/logs"]["response"]["runs"][number];
type Group = Run["steps"][number];
type KnownStep = Extract<Group["steps"][number], { stepType: string }>;
/** A step. The next call to the endpoint, whose step is not known yet, has the type "Next". */
export type Step = Pick<KnownStep, "stepName" | "stepType" | "state" | "createdAt" | "errors"> &
  Partial<KnownStep>;
/** Steps that run at the same time, or one step. */
export type StepGroup = { isParallel: boolean; steps: readonly Step[] };

/** The state and the word of each state of a run. */
export const runStates: Record<Run["workflowState"], { state: StateName; word: string }> = {
  RUN_STARTED: { state: "delivering", word: "Running" },
  RUN_SUCCESS: { state: "delivered", word: "Success" },
  RUN_FAILED: { state: "failed", word: "Failed" },
  RUN_CANCELED: { state: "cancelled", word: "Cancelled" },
};

/** The state and the word of each state of a step. */
export const stepStates: Record<Step["state"], { state: StateName; word: string }> = {
  STEP_PROGRESS: { state: "delivering", word: "Running" },
  STEP_SUCCESS: { state: "delivered", word: "Success" },
  STEP_RETRY: { state: "retrying", word: "Retry" },
  STEP_FAILED: { state: "failed", word: "Failed" },
  STEP_CANCELED: { state: "cancelled", word: "Cancelled" },
};

/** Returns the steps of a run in groups, in their order. */
export function listGroups(run: Run): StepGroup[] {
  let latest = run.workflowRunCreatedAt;
  return run.steps.map(({ type, steps }) => {
    const known = steps.map((step): Step => {
      if ("createdAt" in step) {
        latest = Math.max(latest, step.createdAt);
        return step;
      }
      const { stepName = "next step", ...rest } = step;
      return { ...rest, stepName, stepType: "Next", createdAt: latest };
    });
    return { isParallel: type === "parallel", steps: known };
  });
}

/** Returns all steps of a run, in their order. */
export const listSteps = (run: Run): Step[] => listGroups(run).flatMap(({ steps }) => steps);

/** Returns how long a run has taken until now, or until its end. */
export const spanOf = (
  {
    workflowRunCreatedAt: from,
    workflowRunCompletedAt: to,
  }: Pick<Run, "workflowRunCreatedAt" | "workflowRunCompletedAt">,
  now: number,
): number => (to ?? now) - from;

type StepError = NonNullable<Step["errors"]>[number];

/** Returns the error of an attempt: the message in the response, or else the error that the server recorded. */
export function describeError({ error, body }: Partial<StepError> = {}): string {
  const said = readMessage(body) ?? body;
  return [said, error].find((text) => text !== undefined && text !== "") ?? "";
}

/** Returns the message of an error that a workflow responded as JSON. */
function readMessage(body: string | undefined): string | undefined {
  try {
    const parsed: unknown = JSON.parse(body ?? "");
    const message: unknown = typeof parsed === "object" && parsed && Reflect.get(parsed, "message");
    return typeof message === "string" && message !== "" ? message : undefined;
  } catch {
    return undefined;
  }
}
