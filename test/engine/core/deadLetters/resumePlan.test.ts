import { fc } from "../../../seeds.ts";
import { describe, expect, test } from "vitest";
import { planResume } from "../../../../src/engine/core/deadLetters/resumePlan.ts";
import type { ResumePlan } from "../../../../src/engine/core/deadLetters/resumePlan.ts";
import { readRunPart } from "../../../../src/engine/core/model/stepId.ts";
import type { Step } from "../../../../src/engine/core/model/run.ts";
import type { Kind, Program } from "./resumeModel.ts";
import { ModelRun } from "./resumeModel.ts";

const step = (slot: string, position: number): Step => ({
  account: "acme",
  id: `run_1/${slot}`,
  run: "run_1",
  position,
  messageId: `m-${slot}`,
  createdAt: 0,
  head: null,
  callType: slot.startsWith("c") ? "toCallback" : slot.startsWith("f") ? "fromCallback" : "step",
  url: "https://app.example",
  headers: [],
  body: new Uint8Array(0),
});

const shown = (plan: ResumePlan): string =>
  plan
    .map(
      ({ step: { id }, resend }) =>
        `${readRunPart(id)}${resend ? "!" : ""}${resend?.notBefore === 5 ? "5" : ""}`,
    )
    .join(" ");

/**
 * Plans the resume of a run. The words of `history` are its steps. `unfinished` names the steps whose
 * messages were unfinished, with `+` if the step slept. The result marks the steps that are sent again with
 * `!`.
 */
function resumed(history: string, unfinished: string): string {
  const steps = history.split(" ").map(step);
  const names = unfinished.split(" ").filter((name) => name !== "");
  return shown(
    planResume(
      steps,
      new Map(names.map((name) => [`m-${name.replace("+", "")}`, name.endsWith("+") ? 5 : null])),
    ),
  );
}

describe("a resumed run sends again", () => {
  test.each([
    ["the initial payload, if it has no other step", "i", { unfinished: "i", expected: "i!" }],
    ["the last result", "i r1 r2", { unfinished: "r2", expected: "i r1 r2!" }],
    [
      "not the initial payload, if other steps followed it",
      "i r1 r2",
      { unfinished: "i r2+", expected: "i r1 r2!5" },
    ],
    ["not a result that the next step followed", "i r1 r2", { unfinished: "r1 r2", expected: "i r1 r2!" }],
    ["not a result that a plan followed", "i r1 p2 p3", { unfinished: "r1 p2 p3", expected: "i r1 p2! p3!" }],
    ["the plan that failed", "i p1 p2 r1", { unfinished: "p2", expected: "i p1 p2! r1" }],
    [
      "a plan that slept, after the rest of its time",
      "i p1 p2 p3 r1",
      { unfinished: "p2 p3+", expected: "i p1 p2! p3!5 r1" },
    ],
    [
      "a plan that was delivered and waited for something",
      "i p1 p2 p3 r1",
      { unfinished: "p2", expected: "i p1 p2! p3! r1" },
    ],
    [
      "not a result that waits for the others of its group",
      "i p1 p2 r1",
      { unfinished: "p2 r1", expected: "i p1 p2! r1" },
    ],
    [
      "in a complete group, the result that completed it",
      "i p1 p2 r2 r1",
      { unfinished: "r2", expected: "i p1 p2 r2 r1!" },
    ],
    [
      "no result of a group that the next step followed",
      "i p1 p2 r1 r2 r3",
      { unfinished: "r1 r3", expected: "i p1 p2 r1 r2 r3!" },
    ],
    ["the response of a third party", "i c1 f1", { unfinished: "f1", expected: "i c1 f1!" }],
    [
      "a response that was delivered and has no result",
      "i p1 p2 c2 f2 r1",
      { unfinished: "p1", expected: "i p1 p2 c2 f2! r1" },
    ],
    ["not a response that has its result", "i c1 f1 r1", { unfinished: "f1 r1", expected: "i c1 f1 r1!" }],
    [
      "the plan of a request that has no response",
      "i p1 p2 c1",
      { unfinished: "p2 c1", expected: "i p1! p2!" },
    ],
    [
      "the step before a request without a plan and a response",
      "i c1",
      { unfinished: "i c1", expected: "i!" },
    ],
    [
      "the result before such a request, behind a group",
      "i p1 p2 r1 r2 c3",
      { unfinished: "r1 c3", expected: "i p1 p2 r1 r2!" },
    ],
    [
      "the last result, if a wait or another run followed it",
      "i p1 p2 r1 r2",
      { unfinished: "r1", expected: "i p1 p2 r1 r2!" },
    ],
    [
      "the plan, but not the result of another run that was recorded later",
      "i p1 p2 r1",
      { unfinished: "p2", expected: "i p1 p2! r1" },
    ],
    [
      "the result that was recorded later, if it was the last one missing",
      "i p1 p2 r2 r1",
      { unfinished: "r2", expected: "i p1 p2 r2 r1!" },
    ],
    ["an unreadable step that was in flight", "i x1 r1", { unfinished: "x1", expected: "i x1! r1!" }],
    ["an unreadable step that is the last one", "i r1 x2", { unfinished: "", expected: "i r1 x2!" }],
  ])("%s", (_, history, { unfinished, expected }) => {
    expect(resumed(history, unfinished)).toBe(expected);
  });
});

const kinds = fc.constantFrom<Kind>("run", "sleep", "wait", "call", "invoke");
const programs: fc.Arbitrary<Program> = fc.array(fc.array(kinds, { minLength: 1, maxLength: 3 }), {
  minLength: 1,
  maxLength: 4,
});
const choices = fc.infiniteStream(fc.nat({ max: 1_000 }));

/** Does one of the things that may happen next. Returns false if nothing can. */
function happen(run: ModelRun, pick: (below: number) => number, { losing }: { losing: boolean }): boolean {
  const outside = [...run.calls, ...run.waiting];
  const all = run.sent.length + outside.length;
  if (all === 0) return false;
  const which = pick(all);
  const number = outside[which - run.sent.length];
  if (number === undefined) run.deliver(which, { answered: !losing || pick(3) > 0 });
  else run.answer(number);
  return true;
}

/** Lets a run fail with one of its messages, and resumes it. Checks what is true for every history. */
function failAndResume(
  run: ModelRun,
  program: Program,
  of: { failing: number; late: number; name: string },
): ModelRun {
  const unfinished = run.unfinished(of.failing);
  // An invoked run may end later; its result is recorded only then.
  for (const number of run.waiting.filter((number) => program.flat()[number - 1] === "invoke").slice(of.late))
    run.answer(number);
  const next = new ModelRun(program, of.name, planResume(run.steps, unfinished));
  expect(next.steps.map(({ position }) => position)).toEqual(next.steps.map((_, at) => at));
  expect(next.sent.length).toBeGreaterThan(0);
  expect(next.sent.every(({ step }) => step.callType !== "toCallback")).toBe(true);
  const slots = slotsOf(next);
  for (const slot of slotsOf(run)) if (!slot.startsWith("c")) expect(slots).toContain(slot);
  return next;
}

const slotsOf = (run: ModelRun): string[] => run.steps.map(({ id }) => readRunPart(id));

/** Checks that no step that the run started with was run again. */
function expectKept(run: ModelRun, had: readonly string[]): void {
  for (const number of run.ran) {
    expect(had).not.toContain(`r${number}`);
    // A step that has the response of a third party does not call it again.
    expect(had).not.toContain(`f${number}`);
  }
}

describe("a workflow that fails at any point and is resumed", () => {
  test("finishes, runs no step with a result again, and keeps a history without gaps", () => {
    let failed = 0;
    fc.assert(
      fc.property(programs, choices, fc.integer({ min: 1, max: 3 }), (program, stream, failures) => {
        const pick = (below: number): number => Number(stream.next().value) % below;
        const count = program.flat().length;
        let run = new ModelRun(program, "run0");
        let had: string[] = [];
        for (let failure = 1; failure <= failures && !run.finished; failure++) {
          for (let events = pick(4 * count); events > 0 && !run.finished; events--)
            happen(run, pick, { losing: true });
          // Only a message to the endpoint can make a run fail.
          if (run.finished || run.sent.length === 0) break;
          expectKept(run, had);
          run = failAndResume(run, program, {
            failing: pick(run.sent.length),
            late: pick(3),
            name: `run${failure}`,
          });
          had = slotsOf(run);
          failed++;
        }
        for (let events = 0; !run.finished; events++) {
          expect(happen(run, pick, { losing: false })).toBe(true);
          expect(events).toBeLessThan(20 * count + 20);
        }
        expectKept(run, had);
        for (let number = 1; number <= count; number++) expect(run.hasResult(number)).toBe(true);
      }),
      { numRuns: 1_000 },
    );
    expect(failed).toBeGreaterThan(500);
  });
});
