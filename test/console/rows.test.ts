import { expect, test } from "vitest";
import type { Run } from "../../console/src/pages/runs/shapes.ts";
import { toLines, toRows } from "../../console/src/pages/runs/rows.ts";
import { makeScale } from "../../console/src/pages/runs/scale.ts";
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

test("a bar begins where the steps before it ended, and a sleep has its own beginning and end", () => {
  const step = (stepType: string, createdAt: number, endedAt?: number) => ({
    type: "sequential",
    steps: [{ stepName: stepType, stepType, state: "STEP_SUCCESS", createdAt, endedAt }],
  });
  const run = {
    ...makeRun(0),
    workflowRunCreatedAt: 100,
    workflowRunCompletedAt: 900,
    steps: [
      step("Initial", 100, 100),
      step("SleepFor", 150, 400),
      step("Run", 450, 450),
      step("Call", 500, 800),
      step("Wait", 850, 850),
    ],
  } as unknown as Run;
  expect(toRows(run, 0).map(({ from, to }) => [from, to])).toEqual([
    [100, 100],
    [150, 400],
    [400, 450],
    [500, 800],
    [800, 850],
  ]);
});

test("a step that has not ended lasts until now, or until the end of its run", () => {
  const steps = [
    {
      type: "sequential",
      steps: [{ stepName: "wait", stepType: "Wait", state: "STEP_PROGRESS", createdAt: 150 }],
    },
  ];
  const run = { ...makeRun(0), workflowRunCreatedAt: 100, steps } as unknown as Run;
  expect(toRows({ ...run, workflowRunCompletedAt: undefined } as unknown as Run, 700)[0]?.to).toBe(700);
  expect(toRows({ ...run, workflowRunCompletedAt: 600 }, 700)[0]?.to).toBe(600);
});

test("a wait is drawn over the cut that it causes, and up to now if nothing follows it", () => {
  const points = [9_000, 20_000].map((time) => ({ from: time, to: time }));
  const { toX, cuts } = makeScale([{ from: 0, to: 1_000 }, ...points], false);
  expect(cuts.map(({ from, to }) => [from, to])).toEqual([
    [1_000, 9_000],
    [9_000, 20_000],
  ]);
  const [first, last] = cuts;
  expect(toX(1_000)).toBeCloseTo(first?.x ?? -1, 5);
  expect(toX(5_000)).toBeCloseTo((first?.x ?? -1) + (first?.width ?? 0) / 2, 5);
  expect(toX(20_000)).toBeGreaterThan((last?.x ?? 100) + 1);
});
