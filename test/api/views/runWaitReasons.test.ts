import { describe, expect, test } from "vitest";
import type { MessageState } from "../../../src/engine/core/model/messageState.ts";
import { noBytes } from "../../../src/engine/core/values/basics.ts";
import type { Run, Step, Waiter } from "../../../src/engine/core/model/run.ts";
import { listDoneSteps } from "../../../src/engine/core/explain/whyRunWaits.ts";
import { formatRunStatus, listShownRunReasons } from "../../../src/api/views/runWaitReasons.ts";
import type { WaitState } from "../../../src/engine/core/explain/whyWaiting.ts";
import { noon } from "../../engine/core/commandRunner.ts";
import { message } from "../../engine/core/workflows/log/knownRun.ts";

const url = "https://app.example/order";
const base = {
  account: "acme",
  id: "run_1",
  runId: "wfr_1",
  url,
  createdAt: noon,
  state: "RUN_STARTED",
  endedAt: null,
  brand: "svc",
  features: { lazyFetch: true, initialBody: true, detect: true, captured: true },
  settings: {
    method: "POST",
    headers: [],
    retries: null,
    retryDelay: null,
    timeout: null,
    flowControl: null,
    callback: null,
    failureCallback: null,
  },
  labels: [],
  redaction: null,
  callerIp: null,
  invoker: null,
  origin: null,
  steps: 0,
  failure: null,
  body: noBytes,
} as const satisfies Run;

const stepAt = (
  slot: string,
  head: Partial<NonNullable<Step["head"]>> | null,
  more: Partial<Step> = {},
): Step => ({
  account: "acme",
  id: `run_1/${slot}`,
  run: "run_1",
  position: 0,
  messageId: `msg_${slot}`,
  callType: "step",
  createdAt: noon,
  head: head && { stepId: 0, stepName: "s", stepType: "Run", concurrent: 1, ...head },
  url,
  headers: [],
  body: noBytes,
  ...more,
});

const standing = (id: string, more: Partial<MessageState> = {}): WaitState => ({
  state: message(id, { state: "pending", dueAt: noon + 60_000, leasedBy: null, ...more }),
  retries: 3,
  createdAt: noon,
  notBefore: noon,
  lastEntry: null,
  queue: null,
  key: null,
  waitingAhead: 0,
  timeout: 900_000,
  slotHolders: [],
});

const waiterOf = (more: Partial<Waiter> = {}): Waiter => ({
  account: "acme",
  id: "run_1/2",
  run: "run_1",
  runId: "wfr_1",
  kind: "event",
  event: "paid",
  createdAt: noon,
  dueAt: noon + 1000,
  url,
  headers: [],
  given: [],
  timeout: "1s",
  timeoutUrl: url,
  timeoutHeaders: [],
  timeoutGiven: [],
  child: null,
  step: { stepId: 2, stepName: "w", stepType: "Wait" },
  ...more,
});

const alone = { delayed: new Set<string>(), lineage: { origin: null, next: null } };
const at = "2026-01-01T12:00:00.000Z";
const later = "2026-01-01T12:01:00.000Z";

describe("an active run", () => {
  const cases: [
    what: string,
    steps: Step[],
    messages: WaitState[],
    waiters: Waiter[],
    expected: [reason: string, text: string][],
  ][] = [
    [
      "its first call",
      [stepAt("i", null)],
      [standing("msg_i")],
      [],
      [["endpoint", `the endpoint is called for the first time: due at ${later}`]],
    ],
    [
      "a retried call after a step",
      [stepAt("r1", { stepId: 1, stepName: "pay" })],
      [standing("msg_r1", { attempts: 1 })],
      [],
      [["endpoint", `the endpoint is called to continue after step 1 "pay": retry 1 of 3 at ${later}`]],
    ],
    [
      "calls that the endpoint has already continued after",
      [
        stepAt("i", null),
        stepAt("r1", { stepId: 1, stepName: "pay" }, { position: 1 }),
        stepAt("p2", { targetStep: 2, stepName: "a" }, { position: 2 }),
        stepAt("r2", { stepId: 2, stepName: "a" }, { position: 3 }),
      ],
      ["msg_i", "msg_r1", "msg_p2", "msg_r2"].map((id) => standing(id)),
      [],
      [
        ["endpoint", `the first call of the endpoint has not ended yet: due at ${later}`],
        [
          "endpoint",
          `the call of the endpoint to continue after step 1 "pay" has not ended yet: due at ${later}`,
        ],
        ["endpoint", `the endpoint is called to run step 2 "a": due at ${later}`],
        ["endpoint", `the endpoint is called to continue after step 2 "a": due at ${later}`],
      ],
    ],
    [
      "a step of a parallel group",
      [stepAt("p4", { targetStep: 4, stepName: "a" })],
      [standing("msg_p4", { state: "active", leasedBy: "nod_a" })],
      [],
      [
        [
          "endpoint",
          'the endpoint is called to run step 4 "a": being sent by node nod_a since ' +
            "2026-01-01T12:00:30.000Z; it times out at 2026-01-01T12:15:30.000Z",
        ],
      ],
    ],
    [
      "a sleep",
      [stepAt("r2", { stepId: 2, stepName: "nap", stepType: "SleepFor" })],
      [standing("msg_r2")],
      [],
      [["sleep", `step 2 "nap" sleeps until ${later}`]],
    ],
    [
      "a sleep in a parallel group",
      [stepAt("p2", { targetStep: 2, stepName: "nap", stepType: "SleepUntil" })],
      [standing("msg_p2")],
      [],
      [["sleep", `step 2 "nap" sleeps until ${later}`]],
    ],
    [
      "a retried call after a sleep",
      [stepAt("r2", { stepId: 2, stepName: "nap", stepType: "SleepFor" })],
      [standing("msg_r2", { attempts: 1 })],
      [],
      [["endpoint", `the endpoint is called to continue after step 2 "nap": retry 1 of 3 at ${later}`]],
    ],
    [
      "a third party",
      [
        stepAt(
          "c3",
          { stepId: 3, stepName: "get", stepType: "Call" },
          { callType: "toCallback", url: "https://u:secret@third.example/p?key=1" },
        ),
      ],
      [standing("msg_c3")],
      [],
      [["call", `step 3 "get" calls third.example: due at ${later}`]],
    ],
    [
      "its answer",
      [stepAt("f3", { stepId: 3, stepName: "get", stepType: "Call" }, { callType: "fromCallback" })],
      [standing("msg_f3")],
      [],
      [["endpoint", `the endpoint is sent the response to the call of step 3 "get": due at ${later}`]],
    ],
    [
      "an event",
      [],
      [],
      [waiterOf()],
      [["event", `step 2 "w" waits for the event "paid" since ${at}, until 2026-01-01T12:00:01.000Z`]],
    ],
    [
      "a webhook",
      [],
      [],
      [waiterOf({ kind: "webhook", dueAt: null })],
      [["webhook", `step 2 "w" waits for a call to the webhook "paid" since ${at}`]],
    ],
    [
      "another run",
      [],
      [],
      [
        waiterOf({
          kind: "invoke",
          event: "",
          dueAt: null,
          child: {
            run: "run_2",
            runId: "child",
            url: "https://c.example/x",
            createdAt: noon,
            messageId: "m",
          },
        }),
      ],
      [["run", `step 2 "w" waits for the end of the run "child" of c.example since ${at}`]],
    ],
    [
      "nothing",
      [stepAt("r1", { stepId: 1 })],
      [],
      [],
      [
        [
          "nothing",
          `nothing is in flight: ${url} accepted every message, but neither posted a step since ${at} ` +
            "nor finished the run",
        ],
      ],
    ],
    [
      "several reasons, messages first and waits by age",
      [stepAt("p1", { targetStep: 1 })],
      [standing("msg_p1")],
      [waiterOf({ createdAt: noon + 1, event: "b" }), waiterOf({ event: "a" })],
      [
        ["endpoint", `the endpoint is called to run step 1 "s": due at ${later}`],
        ["event", expect.stringContaining('"a"')],
        ["event", expect.stringContaining('"b"')],
      ],
    ],
  ];

  test.for(cases)("waits for %s", ([, steps, messages, waiters, expected]) => {
    const reasons = listShownRunReasons({ run: base, steps, waiters, messages, ...alone }, noon);
    expect(reasons.map(({ reason, text }) => [reason, text])).toEqual(expected);
  });

  test("has its reasons in one sentence", () => {
    const steps = [stepAt("i", null), stepAt("p1", { targetStep: 1 }), stepAt("r1", { stepId: 1 })];
    const reasons = listShownRunReasons(
      { run: base, steps, waiters: [waiterOf(), waiterOf({ id: "run_1/3" })], messages: [], ...alone },
      noon,
    );
    expect(formatRunStatus({ run: base, steps, ...alone }, reasons)).toBe(
      `running since ${at}, 1 step done; ${reasons[0]?.text ?? ""}; and 1 more`,
    );
  });
});

test("a sleep is done when its time has come, and other steps are done regardless of it", () => {
  const steps = [
    stepAt("i", null),
    stepAt("r1", { stepId: 1, stepName: "nap", stepType: "SleepFor" }),
    stepAt("r2", { stepId: 2, stepName: "later" }),
    stepAt("p3", { targetStep: 3 }),
  ];
  const ids = (asleep: string[]) => listDoneSteps({ steps, delayed: new Set(asleep) }).map(({ id }) => id);
  expect(ids([])).toEqual(["run_1/r1", "run_1/r2"]);
  expect(ids(["msg_r1", "msg_r2"])).toEqual(["run_1/r2"]);
});

test("the status of a run names the runs before and after it", () => {
  const lineage = { origin: { ...base, runId: "first" }, next: null };
  expect(formatRunStatus({ run: { ...base, state: "RUN_SUCCESS" }, steps: [], ...alone, lineage }, [])).toBe(
    "ended, resumes first, no step done",
  );
  const failure = {
    messageId: "m",
    dlqId: "d",
    error: "boom",
    status: 500,
    headers: [],
    unfinished: [],
    callback: null,
  };
  const run: Run = { ...base, state: "RUN_FAILED", failure, continuedBy: { key: "run_2", runId: "second" } };
  expect(formatRunStatus({ run, steps: [], ...alone }, [])).toMatch(/: boom; resumed as second$/);
});

describe("a run that has ended", () => {
  const failure = {
    messageId: "msg_r1",
    dlqId: "d",
    error: "",
    status: 500,
    headers: [],
    unfinished: [],
    callback: null,
  };
  const steps = [stepAt("i", null), stepAt("r1", { stepId: 1, stepName: "pay" })];

  test("quotes the name of a step as it is", () => {
    const named = [stepAt("i", null), stepAt("r1", { stepId: 1, stepName: "invoice is sent" })];
    const run: Run = { ...base, state: "RUN_FAILED", failure };
    expect(formatRunStatus({ run, steps: named, ...alone }, [])).toContain('after step 1 "invoice is sent"');
  });

  test.each<[Partial<Run>, string]>([
    [{ state: "RUN_SUCCESS" }, `ended at ${later}, 1 step done`],
    [{ state: "RUN_CANCELED" }, `was cancelled at ${later}, 1 step done`],
    [
      { state: "RUN_FAILED", failure },
      `failed at ${later}, 1 step done, when the endpoint was called to continue after step 1 "pay": the ` +
        "endpoint answered with status 500",
    ],
    [
      {
        state: "RUN_FAILED",
        failure: {
          ...failure,
          messageId: "msg_i",
          error: "no answer",
          callback: { state: "CALLBACK_FAIL", messageId: "m", url },
        },
      },
      `failed at ${later}, 1 step done, when the endpoint was called for the first time: no answer; its ` +
        "failure callback is in state CALLBACK_FAIL",
    ],
    [
      {
        state: "RUN_FAILED",
        failure: {
          ...failure,
          messageId: "msg_i",
          error: "no answer",
          callback: {
            ...{ state: "CALLBACK_SUCCESS", messageId: "m", url },
            responseHeaders: [["upstash-workflow-failure-callback-notfound", "true"]],
          },
        },
      },
      `failed at ${later}, 1 step done, when the endpoint was called for the first time: no answer`,
    ],
    [
      {
        state: "RUN_FAILED",
        failure: { ...failure, said: "always 17", headers: [["Upstash-Error-Step-Name", "boom"]] },
      },
      `failed at ${later}, 1 step done, at step "boom": always 17`,
    ],
    [
      {
        state: "RUN_FAILED",
        failure: { ...failure, said: "secret" },
        redaction: { body: true, headers: false },
      },
      `failed at ${later}, 1 step done, when the endpoint was called to continue after step 1 "pay": the ` +
        "endpoint answered with status 500",
    ],
  ])("%o waits for nothing, and its status names how it ended", (more, text) => {
    const run: Run = { ...base, endedAt: noon + 60_000, ...more };
    expect(
      listShownRunReasons({ run, steps, waiters: [], messages: [standing("msg_r1")], ...alone }, noon),
    ).toEqual([]);
    expect(formatRunStatus({ run, steps, ...alone }, [])).toBe(text);
  });
});
