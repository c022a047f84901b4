import type { Run, Step } from "./shapes.ts";
import { listSteps } from "./shapes.ts";

/** A step of two runs side by side. A step that only one of the runs has is null in the other. */
export type Compared = { name: string; mine: Step | null; other: Step | null; verdict: Verdict };

/** The difference: in the result, in the state, a step that one run lacks, or none. */
export type Verdict = "same" | "result" | "state" | "only-here" | "only-there";

/**
 * Returns the steps of a run beside those of another one. Steps belong together if they have the same name
 * and are the same occurrence of it. Steps that only the other run has come last.
 */
export function compareRuns(run: Run, other: Run): Compared[] {
  const known = new Map(number(listSteps(other)));
  const rows = number(listSteps(run)).map(([key, mine]): Compared => {
    const found = known.get(key) ?? null;
    known.delete(key);
    return { name: mine.stepName, mine, other: found, verdict: judge(mine, found) };
  });
  const rest = [...known.values()].map((step): Compared => ({
    name: step.stepName,
    mine: null,
    other: step,
    verdict: "only-there",
  }));
  return [...rows, ...rest];
}

/** Returns steps by their names and by how many of the same name came before. */
function number(steps: readonly Step[]): [string, Step][] {
  const counts = new Map<string, number>();
  return steps.map((step) => {
    const count = counts.get(step.stepName) ?? 0;
    counts.set(step.stepName, count + 1);
    return [`${count} ${step.stepName}`, step];
  });
}

function judge(mine: Step, other: Step | null): Verdict {
  if (!other) return "only-here";
  if (mine.state !== other.state) return "state";
  return mine.out === other.out && mine.outBase64 === other.outBase64 ? "same" : "result";
}
