import type { ErrorCode } from "../../engine/core/values/errors.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import { parseBrandedHeader } from "../http/brand.ts";

/**
 * Reads a post of an endpoint for its run. The endpoint's client takes status 400 to mean that the run has
 * ended, so an active run would wait forever. A permanent error of a step is therefore refused with
 * `step-refused`, which makes the client give up the run.
 */
export async function withStepRefusal<T>(isStep: boolean, read: () => T | Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    if (isStep && error instanceof Refusal && permanentErrors.has(error.code))
      throw new Refusal("step-refused", error.message, { remedy: error.remedy });
    throw error;
  }
}

/**
 * Errors that a retry cannot fix. `too-large` is one of them because otherwise the client would retry
 * forever.
 */
const permanentErrors: ReadonlySet<ErrorCode> = new Set(["invalid", "not-found", "too-large"] as const);

const isText = (expected: string, value = ""): boolean => value.trim().toLowerCase() === expected;

/**
 * Reports whether a request with these headers is a step of a run, which continues the run or invokes another
 * one. Names and values alternate in the list.
 */
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
