import type { ErrorCode } from "../../core/values/errors.ts";
import { Refusal } from "../../core/values/errors.ts";
import { brandedHeader } from "../http/brand.ts";

/**
 * Reads what an endpoint posts for its run. To its client a 400 says that the run has ended, and it would leave one that
 * goes on waiting for ever: so what can never be taken is refused in another way, on which the client gives up the run.
 */
export async function readingStep<T>(isStep: boolean, read: () => T | Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    if (isStep && error instanceof Refusal && neverTaken.has(error.code)) throw new Refusal("step-refused", error.message);
    throw error;
  }
}

/** On one that is too large, its client would try again and again. */
const neverTaken: ReadonlySet<ErrorCode> = new Set(["invalid", "not-found", "too-large"] as const);

const says = (what: string, value = ""): boolean => value.trim().toLowerCase() === what;

/** Whether these headers, names and values in turn, are those of a step: of a run that goes on, or that invokes another one. */
export function areOfStep(headers: readonly string[]): boolean {
  let [hasRun, goesOn, invokes] = [false, false, false];
  for (let at = 0; at + 1 < headers.length; at += 2) {
    const plain = brandedHeader(headers[at] ?? "")?.name;
    hasRun ||= plain === "workflow-runid";
    goesOn ||= plain === "workflow-init" && says("false", headers[at + 1]);
    invokes ||= plain === "workflow-invoke" && says("true", headers[at + 1]);
  }
  return hasRun && (goesOn || invokes);
}
