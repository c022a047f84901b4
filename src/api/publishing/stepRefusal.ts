import type { ErrorCode } from "../../core/values/errors.ts";
import { Refusal } from "../../core/values/errors.ts";
import { parseBrandedHeader } from "../http/brand.ts";

/**
 * Reads what an endpoint posts for its run. To its client a 400 says that the run has ended, and it would leave one that
 * goes on waiting for ever: so what can never be taken is refused in another way, on which the client gives up the run.
 */
export async function readStep<T>(isStep: boolean, read: () => T | Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    if (isStep && error instanceof Refusal && permanentErrors.has(error.code)) throw new Refusal("step-refused", error.message);
    throw error;
  }
}

/** On one that is too large, its client would try again and again. */
const permanentErrors: ReadonlySet<ErrorCode> = new Set(["invalid", "not-found", "too-large"] as const);

const isText = (expected: string, value = ""): boolean => value.trim().toLowerCase() === expected;

/** Whether these headers, names and values in turn, are those of a step: of a run that goes on, or that invokes another one. */
export function isStepRequest(headers: readonly string[]): boolean {
  let hasRun = false;
  let continues = false;
  let invokes = false;
  for (let at = 0; at + 1 < headers.length; at += 2) {
    const name = parseBrandedHeader(headers[at] ?? "")?.name;
    hasRun ||= name === "workflow-runid";
    continues ||= name === "workflow-init" && isText("false", headers[at + 1]);
    invokes ||= name === "workflow-invoke" && isText("true", headers[at + 1]);
  }
  return hasRun && (continues || invokes);
}
