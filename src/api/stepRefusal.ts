import type { ErrorCode } from "../core/errors.ts";
import { Refusal } from "../core/errors.ts";
import { brandedName } from "./brand.ts";

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

/** Whether these headers, names and values in turn, are those of a step: of a run that goes on, or that invokes another one. */
export function areOfStep(headers: readonly string[]): boolean {
  let [hasRun, goesOn, invokes] = [false, false, false];
  for (let at = 0; at + 1 < headers.length; at += 2) {
    const name = headers[at] ?? "";
    // All others are passed over without a new text for each.
    if (!/^(svc|upstash)-workflow-/i.test(name)) continue;
    const value = headers[at + 1]?.trim().toLowerCase();
    const plain = brandedName(name.toLowerCase())?.name;
    hasRun ||= plain === "workflow-runid";
    goesOn ||= plain === "workflow-init" && value === "false";
    invokes ||= plain === "workflow-invoke" && value === "true";
  }
  return hasRun && (goesOn || invokes);
}
