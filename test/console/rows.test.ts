import { expect, test } from "vitest";
import { toLines, toRows } from "../../console/src/pages/runs/rows.ts";
import { makeRun } from "./manySteps.ts";

/** Returns the lines of a timeline as words. */
const show = (count: number, opened: readonly number[] = [], failedAt?: number): string[] =>
  toLines(toRows(makeRun(count, failedAt), 0), new Set(opened)).map((line) =>
    line.kind === "row"
      ? line.row.step.stepName
      : `${line.fold.rows[0]?.step.stepName} … ${line.fold.rows.at(-1)?.step.stepName}`,
  );

test("more than 50 neighbours that differ only in a number fold, until they are opened", () => {
  expect(show(50)).toHaveLength(50);
  expect(show(51)).toEqual(["page 1 … page 51"]);
  expect(show(51, [0])).toHaveLength(51);
});

test("a failed step never folds, and it divides its neighbours", () => {
  expect(show(200, [], 100)).toEqual(["page 1 … page 100", "page 101", "page 102 … page 200"]);
});
