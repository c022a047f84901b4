import type { DestinationResponse } from "../model/attempt.ts";
import type { Bytes } from "../values/basics.ts";
import { headerValue } from "../values/headers.ts";
import { isSuccess } from "../sending/recordOutcome.ts";
import type { Step } from "../model/run.ts";

type StepWithHead = Pick<Step, "head">;
type ProblemInput = {
  outcome: DestinationResponse;
  /** Returns the steps of the history. Called only if the problem may be in the history. */
  listSteps: () => readonly StepWithHead[];
  first?: "detect" | "rest";
};

/** Returns why a run cannot continue, so that retries would be futile; null if it can. */
export function findRunProblem({ outcome, listSteps, first }: ProblemInput): string | null {
  if (isSuccess(outcome)) return first === undefined ? null : findDetectionProblem(outcome, first);
  return outcome.status === 500 ? findHistoryMismatch(outcome.body, listSteps) : null;
}

/**
 * Returns why the first response does not come from a suitable workflow; null if it does. A response without
 * `Workflow-Sdk-Version` does not come from a workflow. A response without `Workflow-Sdk`
 * comes from a client that is too old for a plain trigger (`rest`).
 */
function findDetectionProblem({ headers }: DestinationResponse, first: "detect" | "rest"): string | null {
  if (first === "rest" && !hasProtocolHeader(headers, "Workflow-Sdk"))
    return "trigger rest api is only usable with sdk versions after v1.0.0 major version";
  if (hasProtocolHeader(headers, "Workflow-Sdk-Version")) return null;
  return (
    "detected a non-workflow destination for trigger/invoke. " +
    "make sure you are sending the request to the correct endpoint"
  );
}

const hasProtocolHeader = (headers: DestinationResponse["headers"], name: string): boolean =>
  ["Svc", "Upstash"].some((prefix) => headerValue(headers, `${prefix}-${name}`) !== undefined);

/**
 * Returns how the history differs from the code of the endpoint. This is taken from the error message of the
 * client; null if the message reports no difference.
 */
function findHistoryMismatch(body: Bytes, listSteps: ProblemInput["listSteps"]): string | null {
  const { message } = readError(body);
  if (!message.startsWith("Incompatible ")) return null;
  const [, field, ran, had] =
    /Incompatible step (name|type)\. Expected '([^']*)', got '([^']*)' from the request/.exec(message) ?? [];
  if (field === undefined || ran === undefined || had === undefined)
    return `the code does not fit the history: ${message.slice(0, 500)}`;
  const step = listSteps().find(
    ({ head }) => head && (field === "name" ? head.stepName : head.stepType) === had && head.stepId > 0,
  );
  const where = step?.head ? `step ${step.head.stepId}` : "a step";
  return `${where}: history has ${JSON.stringify(had)}, the endpoint ran ${JSON.stringify(ran)}`;
}

function readError(body: Bytes): { message: string } {
  try {
    const error: unknown = JSON.parse(new TextDecoder().decode(body));
    return typeof error === "object" && error !== null && "message" in error
      ? { message: String(error.message) }
      : { message: "" };
  } catch {
    return { message: "" };
  }
}
