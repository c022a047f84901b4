import type { Run, Step } from "./shapes.ts";
import { listGroups } from "./shapes.ts";

/** A row of the timeline: a step, when it began and ended, and its place in a group of parallel steps. */
export type Row = {
  step: Step;
  /** The number of the step in the run. */
  index: number;
  from: number;
  to: number;
  isIn: boolean;
  isLast: boolean;
  isIdle: boolean;
};

/** Neighbours that differ only in a number, such as "page 1" to "page 4812", as one row. */
export type Fold = { rows: readonly Row[]; from: number; to: number };

/** A line of the timeline. */
export type Line = { kind: "row"; row: Row } | { kind: "fold"; fold: Fold };

/** More than this number of neighbours fold. */
const minFold = 50;

/** Reports whether a step only waits. */
const isIdleStep = ({ stepType }: Step): boolean => /sleep|wait/i.test(stepType);

/**
 * Returns the rows of a run, with the times that the server has for each step. A step that the endpoint runs,
 * and a wait, is stored with its result, so it began when the steps before it had ended. An unfinished step
 * ends now.
 */
export function toRows(run: Run, now: number): Row[] {
  const end = run.workflowRunCompletedAt ?? now;
  let index = 0;
  let began = run.workflowRunCreatedAt;
  return listGroups(run).flatMap(({ steps, isParallel }) => {
    const begin = began;
    for (const { createdAt, endedAt = createdAt } of steps) began = Math.max(began, endedAt);
    return steps.map((step, at): Row => {
      const { createdAt, endedAt = end } = step;
      const from = endedAt === createdAt ? Math.min(begin, createdAt) : createdAt;
      return {
        step,
        index: index++,
        from,
        to: Math.max(from, endedAt),
        isIn: isParallel,
        isLast: at === steps.length - 1,
        isIdle: isIdleStep(step),
      };
    });
  });
}

/** Returns the name of a step without its numbers, or null if the step never folds. */
const toStem = (row: Row | undefined): string | null =>
  row === undefined || row.step.state !== "STEP_SUCCESS" || row.isIn
    ? null
    : `${row.step.stepType} ${row.step.stepName.replaceAll(/\d+/g, "#")}`;

/**
 * Returns the lines of a timeline. Steps that are done and differ only in a number fold to one line, unless the
 * person has opened the line (`opened` has the index of its first step). Failed and running steps never fold.
 */
export function toLines(rows: readonly Row[], opened: ReadonlySet<number>): Line[] {
  const lines: Line[] = [];
  for (let at = 0; at < rows.length;) {
    const stem = toStem(rows[at]);
    let end = at + 1;
    while (stem !== null && toStem(rows[end]) === stem) end++;
    const part = rows.slice(at, end);
    const [first] = part;
    const last = part.at(-1);
    if (first && last && part.length > minFold && !opened.has(first.index))
      lines.push({ kind: "fold", fold: { rows: part, from: first.from, to: last.to } });
    else for (const row of part) lines.push({ kind: "row", row });
    at = end;
  }
  return lines;
}
