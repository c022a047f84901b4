import { fc } from "../../../../seeds.ts";
import { describe, expect, test } from "vitest";
import type { StepHead } from "../../../../../src/engine/core/model/runPost.ts";
import type { Run, Step } from "../../../../../src/engine/core/model/run.ts";
import { listStepGroups } from "../../../../../src/engine/core/workflows/log/log.ts";
import { listRunEvents } from "../../../../../src/engine/core/workflows/log/events.ts";
import type { KnownRun } from "../../../../../src/engine/core/workflows/log/view.ts";
import { bytes, noon } from "../../commandRunner.ts";
import {
  endpoint,
  entry,
  initial,
  known,
  line,
  message,
  plan,
  posted,
  result,
  run,
  waiter,
} from "./knownRun.ts";

/** Returns the groups in short: the type, and the steps with their states. */
const inShort = (of: KnownRun): string[] =>
  listStepGroups(of, noon).map(({ type, steps }) => {
    const items = steps.map(
      (item) =>
        `${"stepId" in item ? (item.stepId ?? item.stepName) : item.messageId} ${item.state.slice(5)}`,
    );
    return `${type}: ${items.join(", ")}`;
  });

const failedWith = (messageId: string): Run => ({
  ...run,
  state: "RUN_FAILED",
  endedAt: noon,
  failure: { messageId, dlqId: "1-1", error: "", status: 500, headers: [], unfinished: [], callback: null },
});
const cancelled: Run = { ...run, state: "RUN_CANCELED", endedAt: noon };

describe("step groups", () => {
  test("that follow each other and have the same size are kept apart", () => {
    const steps = [
      initial,
      plan(1, 1, 2),
      plan(2, 2, 2),
      result(3, 2, 2),
      result(4, 1, 2),
      plan(5, 3, 2),
      plan(6, 4, 2),
      result(7, 4, 2),
    ];
    expect(inShort(known(steps))).toEqual([
      "sequential: init SUCCESS",
      "parallel: 1 SUCCESS, 2 SUCCESS",
      "parallel: 3 PROGRESS, 4 SUCCESS",
    ]);
  });

  test("end with the call after the last parallel result; other messages are shown only in retry", () => {
    const steps = [initial, plan(1, 1, 2), plan(2, 2, 2), result(3, 2, 2), result(4, 1, 2)];
    const open = [message("msg_r1"), message("msg_r2")];
    expect(inShort(known(steps, { messages: open })).at(-1)).toBe("next: msg_r1 PROGRESS");
    const retried = [message("msg_r1"), message("msg_r2", { state: "pending", attempts: 1 })];
    expect(inShort(known(steps, { messages: retried })).at(-1)).toBe("next: msg_r1 PROGRESS, msg_r2 RETRY");
    expect(inShort(known(steps)).at(-1)).toBe("parallel: 1 SUCCESS, 2 SUCCESS");
  });

  test("have no next step while a parallel step waits, and a single wait has its own group", () => {
    const planned = [initial, plan(1, 1, 2), plan(2, 2, 2), result(3, 1, 2)];
    const messages = [message("msg_r1")];
    expect(inShort(known(planned, { messages, waiters: [waiter(2, 2)] }))).toEqual([
      "sequential: init SUCCESS",
      "parallel: 1 SUCCESS, 2 PROGRESS",
    ]);
    expect(inShort(known([initial], { messages: [message("msg_i")], waiters: [waiter(1, 1)] }))).toEqual([
      "sequential: init SUCCESS",
      "sequential: 1 PROGRESS",
    ]);
  });

  test.each<[string, Partial<KnownRun>, string[]]>([
    ["a plan", { run: failedWith("msg_p2") }, ["parallel: 1 CANCELED, 2 FAILED"]],
    [
      "the message of a result",
      { run: failedWith("msg_i") },
      ["parallel: 1 CANCELED, 2 CANCELED", "next: msg_i FAILED"],
    ],
    [
      "an unknown message",
      { run: failedWith("msg_old") },
      ["parallel: 1 CANCELED, 2 CANCELED", "next: msg_old FAILED"],
    ],
    ["a cancellation", { run: cancelled }, ["parallel: 1 CANCELED, 2 CANCELED"]],
    [
      "success before its parallel steps have ended",
      { run: { ...run, state: "RUN_SUCCESS", endedAt: noon } },
      ["parallel: 1 CANCELED, 2 CANCELED"],
    ],
  ])("of a run that ended with %s show its state", (_, more, groups) => {
    expect(inShort(known([initial, plan(1, 1, 2), plan(2, 2, 2)], more)).slice(1)).toEqual(groups);
  });

  test("of a cancelled run have a next step only if the endpoint was called for one", () => {
    expect(inShort(known([initial], { run: cancelled }))).toEqual([
      "sequential: init SUCCESS",
      "next: msg_i CANCELED",
    ]);
    const nap = posted(1, { stepId: 1, stepName: "nap", stepType: "SleepFor", concurrent: 1 });
    expect(inShort(known([initial, nap], { run: cancelled, log: [line("msg_r1", ["CANCELLED"])] }))).toEqual([
      "sequential: init SUCCESS",
      "sequential: 1 CANCELED",
    ]);
    // The step was done before the run was cancelled.
    const over = [line("msg_r1", ["ACTIVE"]), line("msg_r1", ["ERROR", "CANCELLED"])];
    expect(inShort(known([initial, nap], { run: cancelled, log: over })).slice(1)).toEqual([
      "sequential: 1 SUCCESS",
      "next: msg_r1 CANCELED",
    ]);
  });

  test("show each failed attempt once, at the outcome of the failed message", () => {
    const log = ["msg_i", "msg_p2", "msg_r2", "msg_r1"].map((id) =>
      line(id, ["ERROR", "RETRY"], { error: id }),
    );
    const steps = [initial, plan(1, 1, 2), plan(2, 2, 2), result(3, 2, 2), result(4, 1, 2), result(5, 3)];
    const errorsOf = (of: KnownRun): string[][] =>
      listStepGroups(of, noon).flatMap(({ steps: items }) =>
        items.map(({ errors }) => errors.map(({ error }) => error ?? "")),
      );
    expect(errorsOf(known(steps, { log }))).toEqual([[], ["msg_i"], ["msg_p2"], ["msg_r1"]]);
    expect(errorsOf(known(steps, { log, run: failedWith("msg_r1") }))).toEqual([
      [],
      ["msg_i"],
      ["msg_p2"],
      [],
      ["msg_r1"],
    ]);
  });
});

describe("a step that an endpoint posts", () => {
  const itemOf = (said: unknown, head: Partial<StepHead> = {}) => {
    const whole = { stepId: 1, stepName: "s", stepType: "Run", concurrent: 1, ...head };
    const [, group] = listStepGroups(
      known([
        initial,
        entry("r1", 1, { head: whole, body: bytes(typeof said === "string" ? said : JSON.stringify(said)) }),
      ]),
      noon,
    );
    return group?.steps[0];
  };

  test.each([
    ["an object", { out: { a: 1 } }, '{"a":1}'],
    ["a number", { out: 5 }, "5"],
    ["null", { out: null }, "null"],
    ["nothing", {}, null],
    ["a text", { out: "t" }, "t"],
  ])("may have %s as its output", (_, said, out) => {
    expect(itemOf(said)).toMatchObject({ out });
  });

  test("may be invalid JSON, no object, or nested to any depth", () => {
    expect(itemOf("no json")).toMatchObject({ out: null, sleepFor: null, state: "STEP_SUCCESS" });
    expect(itemOf("[1,2]")).toMatchObject({ out: null });
    expect(itemOf("null")).toMatchObject({ out: null });
    const deep = `{"out":${"[".repeat(100_000)}${"]".repeat(100_000)}}`;
    expect(itemOf(deep)).toMatchObject({ out: expect.any(Uint8Array) });
  });

  test("may claim any sleep, wait or call, and only valid values are shown", () => {
    const odd = { sleepFor: {}, sleepUntil: [1], waitEventId: 7, timeout: null, waitTimeout: "true" };
    expect(itemOf(odd, { stepType: "Wait" })).toMatchObject({
      sleepFor: null,
      sleepUntil: null,
      wait: { eventId: null, timeout: null, deadline: null, timedOut: false },
    });
    const answer = entry("f1", 1, {
      callType: "fromCallback",
      body: bytes(JSON.stringify({ url: 5, status: "x", header: { A: "b", C: [1, "d"] } })),
    });
    const call = entry("c1", 1, { callType: "toCallback", url: "https://third.example" });
    const callOf = (...steps: Step[]) => {
      const item = listStepGroups(known([initial, ...steps]), noon)[1]?.steps[0];
      return item && "call" in item ? item.call : null;
    };
    expect(callOf(call, answer)).toEqual({
      url: "https://third.example",
      method: null,
      headers: [],
      body: Buffer.from(""),
      response: null,
    });
    expect(callOf(answer)).toBeNull();
  });

  test.each([-1, 0])("may be a call without a response, stored with status %i", (status) => {
    const reason = Buffer.from("connection refused").toString("base64");
    const body = bytes(JSON.stringify({ url: "https://third.example", status, header: {}, body: reason }));
    const answer = entry("f1", 1, { callType: "fromCallback", body });
    const call = entry("c1", 1, { callType: "toCallback", url: "https://third.example" });
    const item = listStepGroups(known([initial, call, answer]), noon)[1]?.steps[0];
    expect(item).toMatchObject({
      call: { response: { status: -1, body: Buffer.from("connection refused") } },
    });
  });

  test("may claim any number of parallel steps", () => {
    const huge = Number.MAX_SAFE_INTEGER;
    expect(inShort(known([initial, result(1, 1, huge), result(2, 2, huge), result(3, 3, 0)]))).toEqual([
      "sequential: init SUCCESS",
      "parallel: 1 SUCCESS, 2 SUCCESS",
      "sequential: 3 SUCCESS",
    ]);
    expect(inShort(known([initial, result(1, 1, 2), result(2, 2, 2), result(3, 3, 2)])).slice(1)).toEqual([
      "parallel: 1 SUCCESS, 2 SUCCESS",
      "parallel: 3 SUCCESS",
    ]);
  });

  test("is shown as text if it cannot be read", () => {
    const item = listStepGroups(known([initial, entry("x1", 1, { body: bytes("?") })]), noon)[1]?.steps[0];
    expect(item).toMatchObject({ stepId: null, stepName: "", out: bytes("?"), state: "STEP_SUCCESS" });
  });

  test("is shown without the parts that were cut", () => {
    const head = { stepId: 1, stepName: "s1", stepType: "Run", concurrent: 1 };
    const steps = [initial, posted(1, head, { out: "large" })];
    const item = listStepGroups(known(steps, { cut: new Set(["run_1/r1"]) }), noon)[1]?.steps[0];
    expect(item).toMatchObject({ stepId: 1, stepName: "s1", isCut: true, out: null, headers: null });
  });

  test("appears exactly once, for steps of any kind in any order", () => {
    const slot = fc.record({
      kind: fc.constantFrom("p", "r", "c", "f", "x"),
      number: fc.integer({ min: 1, max: 6 }),
      concurrent: fc.integer({ min: 0, max: 4 }),
    });
    const states = fc.constantFrom<Run>(run, cancelled, failedWith("msg_p1"), failedWith("msg_r2"), {
      ...run,
      state: "RUN_SUCCESS",
      endedAt: noon,
    });
    fc.assert(
      fc.property(
        fc.uniqueArray(slot, { selector: ({ kind, number }) => `${kind}${number}` }),
        fc.uniqueArray(fc.integer({ min: 1, max: 8 })),
        states,
        (slots, waits, of) => {
          const steps = slots.map(({ kind, number, concurrent }, at) => {
            const head = {
              stepId: kind === "p" ? 0 : number,
              targetStep: number,
              stepName: "s",
              stepType: "Run",
              concurrent,
            };
            const callType = kind === "c" ? "toCallback" : kind === "f" ? "fromCallback" : "step";
            return entry(`${kind}${number}`, at + 1, {
              callType,
              head: kind === "x" ? null : head,
              body: bytes("{}"),
            });
          });
          const groups = listStepGroups(
            known([initial, ...steps], { run: of, waiters: waits.map((id) => waiter(id, 2)) }),
            noon,
          );
          const places = new Set([
            ...slots.map(({ kind, number }) => (kind === "x" ? `x${number}` : `${number}`)),
            ...waits.map(String),
          ]);
          const items = groups
            .filter(({ type }) => type !== "next")
            .flatMap<{ state: string }>(({ steps: some }) => some);
          expect(items).toHaveLength(places.size + 1);
          expect(groups.findLastIndex(({ type }) => type === "next")).toSatisfy(
            (at: number) => at === -1 || at === groups.length - 1,
          );
          if (of.state !== "RUN_STARTED")
            expect(items.filter(({ state }) => state === "STEP_PROGRESS" || state === "STEP_RETRY")).toEqual(
              [],
            );
        },
      ),
    );
  });
});

test("a history of 10,000 steps gives one log", () => {
  const steps = [initial, ...Array.from({ length: 10_000 }, (_, at) => result(at + 1, at + 1, 10_000))];
  const log = steps.map(({ messageId }) => line(messageId, ["DELIVERED"], { id: `1-${messageId}` }));
  const groups = listStepGroups(known(steps, { log }), noon);
  expect(groups.map(({ type, steps: items }) => [type, items.length])).toEqual([
    ["sequential", 1],
    ["parallel", 10_000],
  ]);
  // One event for the start of the run, and three for each message: created, active, delivered.
  expect(listRunEvents(known(steps, { log }), noon)).toHaveLength(1 + 3 * 10_001);
});

test("events are those of the run itself, in the order of time, and each is listed once", () => {
  const child = { run: "run_2", runId: "c", url: endpoint, createdAt: noon + 3, messageId: "msg_r1" };
  const late = { ...result(1, 1), createdAt: noon + 9, waited: { createdAt: noon + 3, dueAt: null, child } };
  const log = [
    line("msg_i", ["DELIVERED"], { time: noon + 5 }),
    line("msg_r1", ["DELIVERED"], { time: noon + 7 }),
  ];
  const of = known([initial, late], { run: { ...failedWith("msg_i"), endedAt: noon + 6 }, log });
  expect(listRunEvents(of, noon).map(({ state, messageId }) => `${state} ${messageId ?? ""}`)).toEqual([
    "RUN_STARTED ",
    "CREATED msg_i",
    "ACTIVE msg_i",
    "INVOKED msg_r1",
    "DELIVERED msg_i",
    "RUN_FAILED ",
  ]);
});
