import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { LogRow, LogState, MessageState, StepHead } from "../../../../src/core/model/message.ts";
import { noBytes } from "../../../../src/core/model/message.ts";
import type { Run, Step, Waiter } from "../../../../src/core/model/run.ts";
import { listStepGroups } from "../../../../src/core/workflows/log/log.ts";
import { listRunEvents } from "../../../../src/core/workflows/log/events.ts";
import type { KnownRun } from "../../../../src/core/workflows/log/view.ts";
import { bytes, callbackTo, noon } from "../../commandRunner.ts";

const endpoint = "https://app.example/order";

const run: Run = {
  account: "acme",
  id: "run_1",
  runId: "wfr_1",
  url: endpoint,
  createdAt: 0,
  state: "RUN_STARTED",
  endedAt: null,
  brand: "svc",
  features: { lazyFetch: true, initialBody: true, detect: true, captured: true },
  settings: { ...callbackTo(endpoint), headers: [["X-Mine", "a"]] },
  labels: [],
  redaction: null,
  callerIp: null,
  invoker: null,
  origin: null,
  steps: 0,
  failure: null,
  body: noBytes,
};

const known = (steps: readonly Step[], more: Partial<KnownRun> = {}): KnownRun => ({
  run,
  steps,
  cut: new Set(),
  waiters: [],
  messages: [],
  log: [],
  storedMessages: [],
  children: [],
  lineage: { origin: null, next: null },
  ...more,
});

const entry = (slot: string, position: number, more: Partial<Step> = {}): Step => ({
  account: "acme",
  id: `run_1/${slot}`,
  run: "run_1",
  position,
  messageId: `msg_${slot}`,
  callType: "step",
  createdAt: noon + position,
  head: null,
  url: endpoint,
  headers: [],
  body: noBytes,
  ...more,
});

const initial = entry("i", 0, { body: bytes("payload") });

/** A step as an endpoint posts it. */
function posted(position: number, head: StepHead, said: Record<string, unknown> = {}): Step {
  const slot = head.stepId > 0 ? `r${head.stepId}` : `p${head.targetStep}`;
  return entry(slot, position, { head, body: bytes(JSON.stringify({ ...head, ...said })) });
}

const result = (position: number, stepId: number, concurrent = 1, said: Record<string, unknown> = {}): Step =>
  posted(position, { stepId, stepName: `s${stepId}`, stepType: "Run", concurrent }, said);
const plan = (position: number, targetStep: number, concurrent: number): Step =>
  posted(position, { stepId: 0, targetStep, stepName: `s${targetStep}`, stepType: "Run", concurrent });

const message = (id: string, more: Partial<MessageState> = {}): MessageState => ({
  timeKeys: "",
  endpoint: "https://app.example/",
  account: "acme",
  id,
  state: "active",
  dueAt: noon,
  attempts: 0,
  lostAttempts: 0,
  leasedBy: "nod_a",
  host: "app.example",
  size: 0,
  reportsOutcome: false,
  queue: null,
  flowControlKey: null,
  slot: null,
  waitlist: null,
  run: "run_1",
  tags: [],
  ...more,
});

const line = (messageId: string, states: LogState[], more: Partial<LogRow> = {}): LogRow => ({
  account: "acme",
  id: `1-${messageId}`,
  messageId,
  time: noon,
  states,
  error: null,
  nextDueAt: null,
  status: 500,
  headers: [],
  body: noBytes,
  dlqId: null,
  tags: [],
  ...more,
});

const waiter = (stepId: number, concurrent: number): Waiter => ({
  account: "acme",
  id: `run_1/${stepId}`,
  run: "run_1",
  runId: "wfr_1",
  kind: "event",
  event: "e",
  createdAt: noon,
  dueAt: noon + 5,
  url: endpoint,
  headers: [],
  given: [],
  timeout: "5s",
  timeoutUrl: "",
  timeoutHeaders: [],
  timeoutGiven: [],
  child: null,
  step: { stepId, stepName: "w", stepType: "Wait", concurrent },
});

/** Groups in short: the type, and the steps with their states. */
const inShort = (of: KnownRun): string[] =>
  listStepGroups(of, noon).map(({ type, steps }) => {
    const items = steps.map((item) => `${"stepId" in item ? (item.stepId ?? item.stepName) : item.messageId} ${item.state.slice(5)}`);
    return `${type}: ${items.join(", ")}`;
  });

const failedWith = (messageId: string): Run => ({
  ...run,
  state: "RUN_FAILED",
  endedAt: noon,
  failure: { messageId, dlqId: "1-1", error: "", status: 500, headers: [], unfinished: [], callback: null },
});
const cancelled: Run = { ...run, state: "RUN_CANCELED", endedAt: noon };

describe("groups", () => {
  test("of the same size one after another are kept apart", () => {
    const steps = [initial, plan(1, 1, 2), plan(2, 2, 2), result(3, 2, 2), result(4, 1, 2), plan(5, 3, 2), plan(6, 4, 2), result(7, 4, 2)];
    expect(inShort(known(steps))).toEqual([
      "sequential: init SUCCESS",
      "parallel: 1 SUCCESS, 2 SUCCESS",
      "parallel: 3 PROGRESS, 4 SUCCESS",
    ]);
  });

  test("go on with the last result of steps side by side; the others are shown when they are tried again", () => {
    const steps = [initial, plan(1, 1, 2), plan(2, 2, 2), result(3, 2, 2), result(4, 1, 2)];
    const open = [message("msg_r1"), message("msg_r2")];
    expect(inShort(known(steps, { messages: open })).at(-1)).toBe("next: msg_r1 PROGRESS");
    const retried = [message("msg_r1"), message("msg_r2", { state: "pending", attempts: 1 })];
    expect(inShort(known(steps, { messages: retried })).at(-1)).toBe("next: msg_r1 PROGRESS, msg_r2 RETRY");
    expect(inShort(known(steps)).at(-1)).toBe("parallel: 1 SUCCESS, 2 SUCCESS");
  });

  test("with a branch that waits have no next step, and a wait by itself has a group", () => {
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
    ["a message behind a result", { run: failedWith("msg_i") }, ["parallel: 1 CANCELED, 2 CANCELED", "next: msg_i FAILED"]],
    ["nobody's message", { run: failedWith("msg_old") }, ["parallel: 1 CANCELED, 2 CANCELED", "next: msg_old FAILED"]],
    ["a request to cancel", { run: cancelled }, ["parallel: 1 CANCELED, 2 CANCELED"]],
    [
      "success before its branches were done",
      { run: { ...run, state: "RUN_SUCCESS", endedAt: noon } },
      ["parallel: 1 CANCELED, 2 CANCELED"],
    ],
  ])("of a run that ended with %s say so", (_, more, groups) => {
    expect(inShort(known([initial, plan(1, 1, 2), plan(2, 2, 2)], more)).slice(1)).toEqual(groups);
  });

  test("of a cancelled run have a next step only where the endpoint was called for one", () => {
    expect(inShort(known([initial], { run: cancelled }))).toEqual(["sequential: init SUCCESS", "next: msg_i CANCELED"]);
    const nap = posted(1, { stepId: 1, stepName: "nap", stepType: "SleepFor", concurrent: 1 });
    expect(inShort(known([initial, nap], { run: cancelled, log: [line("msg_r1", ["CANCELLED"])] }))).toEqual([
      "sequential: init SUCCESS",
      "sequential: 1 CANCELED",
    ]);
    // It was over when the run was cancelled.
    const over = [line("msg_r1", ["ACTIVE"]), line("msg_r1", ["ERROR", "CANCELLED"])];
    expect(inShort(known([initial, nap], { run: cancelled, log: over })).slice(1)).toEqual([
      "sequential: 1 SUCCESS",
      "next: msg_r1 CANCELED",
    ]);
  });

  test("show each failed attempt once, with what came of the message that failed", () => {
    const log = ["msg_i", "msg_p2", "msg_r2", "msg_r1"].map((id) => line(id, ["ERROR", "RETRY"], { error: id }));
    const steps = [initial, plan(1, 1, 2), plan(2, 2, 2), result(3, 2, 2), result(4, 1, 2), result(5, 3)];
    const errorsOf = (of: KnownRun): string[][] =>
      listStepGroups(of, noon).flatMap(({ steps: items }) => items.map(({ errors }) => errors.map(({ error }) => error ?? "")));
    expect(errorsOf(known(steps, { log }))).toEqual([[], ["msg_i"], ["msg_p2"], ["msg_r1"]]);
    expect(errorsOf(known(steps, { log, run: failedWith("msg_r1") }))).toEqual([[], ["msg_i"], ["msg_p2"], [], ["msg_r1"]]);
  });
});

describe("what endpoints post", () => {
  const itemOf = (said: unknown, head: Partial<StepHead> = {}) => {
    const whole = { stepId: 1, stepName: "s", stepType: "Run", concurrent: 1, ...head };
    const [, group] = listStepGroups(
      known([initial, entry("r1", 1, { head: whole, body: bytes(typeof said === "string" ? said : JSON.stringify(said)) })]),
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
  ])("may have %s for its output", (_, said, out) => {
    expect(itemOf(said)).toMatchObject({ out });
  });

  test("may be no JSON, no object, or nested as deep as it likes", () => {
    expect(itemOf("no json")).toMatchObject({ out: null, sleepFor: null, state: "STEP_SUCCESS" });
    expect(itemOf("[1,2]")).toMatchObject({ out: null });
    expect(itemOf("null")).toMatchObject({ out: null });
    const deep = `{"out":${"[".repeat(100_000)}${"]".repeat(100_000)}}`;
    expect(itemOf(deep)).toMatchObject({ out: expect.any(Uint8Array) });
  });

  test("may say that it sleeps, waits or was called in any way, and is believed only what can be", () => {
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

  test("may be as many side by side as it says, and more", () => {
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

  test("shows as a text where it cannot be read", () => {
    const item = listStepGroups(known([initial, entry("x1", 1, { body: bytes("?") })]), noon)[1]?.steps[0];
    expect(item).toMatchObject({ stepId: null, stepName: "", out: bytes("?"), state: "STEP_SUCCESS" });
  });

  test("is shown without what was cut", () => {
    const steps = [initial, result(1, 1, 1, { out: "large" })];
    const item = listStepGroups(known(steps, { cut: new Set(["run_1/r1"]) }), noon)[1]?.steps[0];
    expect(item).toMatchObject({ stepId: 1, stepName: "s1", isCut: true, out: null, headers: null });
  });

  test("of any kind in any order makes each step appear once, and nothing else", () => {
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
            const head = { stepId: kind === "p" ? 0 : number, targetStep: number, stepName: "s", stepType: "Run", concurrent };
            const callType = kind === "c" ? "toCallback" : kind === "f" ? "fromCallback" : "step";
            return entry(`${kind}${number}`, at + 1, { callType, head: kind === "x" ? null : head, body: bytes("{}") });
          });
          const groups = listStepGroups(known([initial, ...steps], { run: of, waiters: waits.map((id) => waiter(id, 2)) }), noon);
          const places = new Set([...slots.map(({ kind, number }) => (kind === "x" ? `x${number}` : `${number}`)), ...waits.map(String)]);
          const items = groups.filter(({ type }) => type !== "next").flatMap<{ state: string }>(({ steps: some }) => some);
          expect(items).toHaveLength(places.size + 1);
          expect(groups.findLastIndex(({ type }) => type === "next")).toSatisfy((at: number) => at === -1 || at === groups.length - 1);
          if (of.state !== "RUN_STARTED")
            expect(items.filter(({ state }) => state === "STEP_PROGRESS" || state === "STEP_RETRY")).toEqual([]);
        },
      ),
    );
  });
});

test("a history of ten thousand steps is one log", () => {
  const steps = [initial, ...Array.from({ length: 10_000 }, (_, at) => result(at + 1, at + 1, 10_000))];
  const log = steps.map(({ messageId }) => line(messageId, ["DELIVERED"], { id: `1-${messageId}` }));
  const groups = listStepGroups(known(steps, { log }), noon);
  expect(groups.map(({ type, steps: items }) => [type, items.length])).toEqual([
    ["sequential", 1],
    ["parallel", 10_000],
  ]);
  // One when the run starts, and three for each message: taken in, sent, delivered.
  expect(listRunEvents(known(steps, { log }), noon)).toHaveLength(1 + 3 * 10_001);
});

test("events are those of the run itself, in the order of time, and never told twice", () => {
  const child = { run: "run_2", runId: "c", url: endpoint, createdAt: noon + 3, messageId: "msg_r1" };
  const late = { ...result(1, 1), createdAt: noon + 9, waited: { createdAt: noon + 3, dueAt: null, child } };
  const log = [line("msg_i", ["DELIVERED"], { time: noon + 5 }), line("msg_r1", ["DELIVERED"], { time: noon + 7 })];
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
