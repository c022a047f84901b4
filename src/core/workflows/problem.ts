import type { Answer, Bytes } from "../model/message.ts";
import { headerValue } from "../values/headers.ts";
import { isSuccess } from "../sending/outcome.ts";
import type { Step } from "../model/run.ts";

type Known = Pick<Step, "head">;
type Seen = { outcome: Answer; steps: readonly Known[]; first?: "detect" | "rest" };

/** Why a run cannot go on, whatever its retries: nothing would come of them. Null: it can. */
export function problemOf({ outcome, steps, first }: Seen): string | null {
  if (isSuccess(outcome)) return first === undefined ? null : strangerOf(outcome, first);
  return outcome.status === 500 ? misfitOf(outcome.body, steps) : null;
}

/** What answers without the header of the protocol is no workflow (protocol 6.6); one without that of its client is too old for a plain trigger. */
function strangerOf({ headers }: Answer, first: "detect" | "rest"): string | null {
  if (first === "rest" && !has(headers, "Workflow-Sdk"))
    return "trigger rest api is only usable with sdk versions after v1.0.0 major version";
  if (has(headers, "Workflow-Sdk-Version")) return null;
  return "detected a non-workflow destination for trigger/invoke. make sure you are sending the request to the correct endpoint";
}

const has = (headers: Answer["headers"], name: string): boolean =>
  ["Svc", "Upstash"].some((prefix) => headerValue(headers, `${prefix}-${name}`) !== undefined);

/** A history that the code of the endpoint does not fit any more, in the words of its client. */
function misfitOf(body: Bytes, steps: readonly Known[]): string | null {
  const { message } = readError(body);
  if (!message.startsWith("Incompatible ")) return null;
  const [, what, ran, had] = /Incompatible step (name|type)\. Expected '([^']*)', got '([^']*)' from the request/.exec(message) ?? [];
  if (what === undefined || ran === undefined || had === undefined) return `the code does not fit the history: ${message.slice(0, 500)}`;
  const step = steps.find(({ head }) => head && (what === "name" ? head.stepName : head.stepType) === had && head.stepId > 0);
  const where = step?.head ? `step ${step.head.stepId}` : "a step";
  return `${where}: history has ${JSON.stringify(had)}, the endpoint ran ${JSON.stringify(ran)}`;
}

function readError(body: Bytes): { message: string } {
  try {
    const error: unknown = JSON.parse(new TextDecoder().decode(body));
    return typeof error === "object" && error !== null && "message" in error ? { message: String(error.message) } : { message: "" };
  } catch {
    return { message: "" };
  }
}
