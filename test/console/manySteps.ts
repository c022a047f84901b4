import type { Run } from "../../console/src/pages/runs/shapes.ts";

/** Returns a run with many steps, as the API shows it. The step at `failedAt` has failed. */
export function makeRun(count: number, failedAt?: number): Run {
  const start = Date.UTC(2026, 10, 25);
  const steps = Array.from({ length: count }, (_, at) => ({
    stepId: at + 1,
    stepName: `page ${at + 1}`,
    stepType: "Run",
    callType: "step",
    messageId: `msg_${at}`,
    concurrent: 1,
    out: JSON.stringify({ page: at + 1 }),
    createdAt: start + 100 * (at + 1),
    endedAt: start + 100 * (at + 1),
    state: at === failedAt ? "STEP_FAILED" : "STEP_SUCCESS",
    ...(at === failedAt && { errors: [{ error: "no response", time: start + 100 * at }] }),
  }));
  return {
    workflowRunId: "many-steps",
    workflowUrl: "http://127.0.0.1/workflows/long",
    workflowState: failedAt === undefined ? "RUN_SUCCESS" : "RUN_FAILED",
    workflowRunCreatedAt: start,
    workflowRunCompletedAt: start + 100 * (count + 1),
    steps: steps.map((step) => ({ type: "sequential", steps: [step] })),
  } as unknown as Run;
}
