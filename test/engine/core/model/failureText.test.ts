import { describe, expect, test } from "vitest";
import {
  findFailedStep,
  formatRunFailure,
  formatFailure,
  readResponseMessage,
} from "../../../../src/engine/core/model/failureText.ts";
import type { StepHead } from "../../../../src/engine/core/model/runPost.ts";
import { bytes } from "../commandRunner.ts";

describe("the reason of a failure", () => {
  const of = (body: string, error: string | null = null, status: number | null = 500) =>
    formatFailure({ body: bytes(body), error, status }, null);
  test.each([
    [of('{"message":"boom"}', "timed out"), "timed out"],
    [of('{"error":"Error","message":"boom"}'), "boom"],
    [of('{"error":"TypeError","message":"boom"}'), "TypeError: boom"],
    [of('{"error":{},"message":"boom"}'), "boom"],
    [of(' \n\t{"message":"boom"} '), "boom"],
    [of('{"message":"boom"'), "the endpoint answered with status 500"],
    [of('{"message":""}'), "the endpoint answered with status 500"],
    [of("null"), "the endpoint answered with status 500"],
    [of("[1]"), "the endpoint answered with status 500"],
    [of("nonsense", "", 404), "the endpoint answered with status 404"],
    [of(JSON.stringify({ message: "x".repeat(100_000) })), "the endpoint answered with status 500"],
  ])("is %j", (reason, expected) => {
    expect(reason).toBe(expected);
  });

  test("hides the message of the endpoint if bodies are hidden", () => {
    const hidden = { body: true, headers: false };
    const answer = { body: bytes('{"message":"secret"}'), error: null, status: 500 };
    expect(formatFailure(answer, hidden)).toBe("the endpoint answered with status 500");
    expect(formatFailure({ ...answer, error: "timed out" }, hidden)).toBe("timed out");
    expect(formatRunFailure({ error: "", status: 500, said: "secret" }, hidden)).toBe(
      "the endpoint answered with status 500",
    );
    expect(formatRunFailure({ error: "", status: 500, said: "boom" }, { body: false, headers: true })).toBe(
      "boom",
    );
  });
});

describe("the step that failed", () => {
  const head = { stepId: 2, stepName: "two", stepType: "Run", concurrent: 1 };
  test.for<
    [slot: string | undefined, head: StepHead | null, stepName: string | null, afterStep: string | null]
  >([
    ["i", null, null, null],
    ["p2", head, "two", null],
    ["f2", head, "two", null],
    ["r2", head, null, "two"],
    ["r2", null, null, null],
    ["x5", null, null, null],
    [undefined, null, null, null],
  ])("is derived from a message at %s", ([slot, head, stepName, afterStep]) => {
    expect(findFailedStep(slot, head, [["X-A", "b"]])).toEqual({ stepName, afterStep });
  });

  test.each(["Upstash-Error-Step-Name", "Svc-Error-Step-Name"])(
    "is the step that the endpoint names in %s",
    (name) => {
      for (const slot of ["i", "r2", "p2", "x5", undefined])
        expect(findFailedStep(slot, head, [[name, "boom"]])).toEqual({ stepName: "boom", afterStep: null });
      expect(findFailedStep("r2", head, [[name, ""]])).toEqual({ stepName: null, afterStep: "two" });
    },
  );
});

describe("what a destination says about a failure", () => {
  test.each([
    ['{"error":"TypeError","message":"boom"}', "TypeError: boom"],
    ['{"message":"","error":"no stock"}', "no stock"],
    ['{"error":{"code":7,"message":"no stock"}}', "no stock"],
    ['{"error":{"message":7}}', undefined],
    ['{"error":', undefined],
    ["\n deadlock detected\r\n  at line 3", "deadlock detected"],
    ["<html><h1>Bad gateway</h1></html>", undefined],
    ['"text"', undefined],
    ["[1]", undefined],
    ["null", undefined],
    ["\u0000\u0001", undefined],
    ["", undefined],
    ["x".repeat(2_000), `${"x".repeat(1_199)}…`],
    ["x".repeat(100_000), undefined],
  ])("in %j", (body, said) => {
    expect(readResponseMessage(bytes(body)).said).toBe(said);
  });
});
