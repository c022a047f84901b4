import { describe, expect, test } from "vitest";
import { findRunProblem } from "../../../../src/engine/core/workflows/problem.ts";
import { noResponse } from "../../../../src/engine/core/sending/recordOutcome.ts";
import { bytes } from "../commandRunner.ts";

type Headers = [name: string, value: string][];
const answer = (status: number, headers: Headers = [], body = "") => ({
  ...noResponse,
  status,
  headers,
  body: bytes(body),
});
const stranger =
  "detected a non-workflow destination for trigger/invoke. make sure you are sending the request to the " +
  "correct endpoint";
const tooOld = "trigger rest api is only usable with sdk versions after v1.0.0 major version";

describe("the first response of an endpoint", () => {
  test.each<[Headers, "detect" | "rest" | undefined, string | null]>([
    [[], undefined, null],
    [[], "detect", stranger],
    [[], "rest", tooOld],
    [[["Upstash-Workflow-Sdk-Version", "1"]], "detect", null],
    [[["Svc-Workflow-Sdk-Version", "1"]], "detect", null],
    [[["Upstash-Workflow-Sdk", "x"]], "rest", stranger],
    [[["Upstash-Workflow-Sdk-Version", "1"]], "rest", tooOld],
    [
      [
        ["Upstash-Workflow-Sdk", "x"],
        ["Upstash-Workflow-Sdk-Version", "1"],
      ],
      "rest",
      null,
    ],
  ])("with %j for %s does not come from a workflow: %s", (headers, first, problem) => {
    expect(
      findRunProblem({ outcome: answer(200, headers), listSteps: () => [], ...(first && { first }) }),
    ).toBe(problem);
  });
});

describe("a history that the code does not fit", () => {
  const step = (stepId: number, stepName: string) => ({
    head: { stepId, stepName, stepType: "Run", concurrent: 1 },
  });
  const steps = [{ head: null }, step(0, "b"), step(2, "b")];
  const problem = (message: string, status = 500) =>
    findRunProblem({
      outcome: answer(status, [], JSON.stringify({ message })),
      listSteps: () => steps,
      first: "detect",
    });

  test("is described by the step that differs", () => {
    const text = "Incompatible step name. Expected 'a', got 'b' from the request";
    expect(problem(text)).toBe('step 2: history has "b", the endpoint ran "a"');
    expect(problem(text.replace("name", "type"))).toBe('a step: history has "b", the endpoint ran "a"');
    expect(problem(text.replace("name", "type").replace("'b'", "'Run'"))).toBe(
      'step 2: history has "Run", the endpoint ran "a"',
    );
    expect(problem(`Incompatible ${"x".repeat(600)}`)).toBe(
      `the code does not fit the history: Incompatible ${"x".repeat(487)}`,
    );
  });

  test("is detected only with status 500 and the error of the client", () => {
    expect(problem("Incompatible steps", 501)).toBeNull();
    expect(problem("Other")).toBeNull();
    for (const body of ["", "null", "1", "{}", "{"])
      expect(findRunProblem({ outcome: answer(500, [], body), listSteps: () => [] }), body).toBeNull();
  });
});
