import type { Run, Step } from "./shapes.ts";
import { listGroups } from "./shapes.ts";

/** An error that an endpoint responded: its name, its message, and the lines of its stack. */
export type ShownError = { name: string; message: string; stack: readonly string[] };

/** The lines of a stack that are shown. */
const maxStack = 8;

/** Returns the error in a response, as clients of workflows send it. Null if the response is not one. */
export function readError(body: string | undefined): ShownError | null {
  try {
    const parsed: unknown = JSON.parse(body ?? "");
    if (typeof parsed !== "object" || parsed === null) return null;
    const read = (name: string): string => {
      const value: unknown = Reflect.get(parsed, name);
      return typeof value === "string" ? value : "";
    };
    const message = read("message");
    if (message === "") return null;
    const stack = read("stack")
      .split("\n")
      .map((line) => line.trim())
      .filter((line) => line.startsWith("at "));
    return { name: read("error") || "Error", message, stack: stack.slice(0, maxStack) };
  } catch {
    return null;
  }
}

/**
 * Returns the steps whose results a step was given last: those of the group before it. The endpoint also has
 * the results of all steps before.
 */
export function findGiven(run: Run, step: Pick<Step, "stepId" | "stepType" | "messageId">): readonly Step[] {
  const groups = listGroups(run);
  const at = groups.findIndex(({ steps }) =>
    steps.some((one) => one.stepId === step.stepId && one.messageId === step.messageId),
  );
  const before = groups.slice(0, Math.max(0, at)).findLast(({ steps }) => steps.some(hasResult));
  return before?.steps.filter(hasResult) ?? [];
}

const hasResult = ({ out, outBase64 }: Step): boolean => out !== undefined || outBase64 !== undefined;
