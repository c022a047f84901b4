import type { LogRow, LogState } from "../../../../../src/engine/core/model/logRow.ts";
import type { MessageState } from "../../../../../src/engine/core/model/messageState.ts";
import type { StepHead } from "../../../../../src/engine/core/model/runPost.ts";
import { noBytes } from "../../../../../src/engine/core/values/basics.ts";
import type { Run, Step, Waiter } from "../../../../../src/engine/core/model/run.ts";
import type { KnownRun } from "../../../../../src/engine/core/workflows/log/view.ts";
import { bytes, callbackTo, noon } from "../../commandRunner.ts";

/** The endpoint of the run. */
export const endpoint = "https://app.example/order";

/** An active run. */
export const run: Run = {
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

/** Returns the rows of the run from which its log is made. */
export const known = (steps: readonly Step[], more: Partial<KnownRun> = {}): KnownRun => ({
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

/** Returns a step in the history of the run. */
export const entry = (slot: string, position: number, more: Partial<Step> = {}): Step => ({
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

/** The initial step of the run. */
export const initial = entry("i", 0, { body: bytes("payload") });

/** Returns a step as an endpoint posts it. */
export function posted(position: number, head: StepHead, said: Record<string, unknown> = {}): Step {
  const slot = head.stepId > 0 ? `r${head.stepId}` : `p${head.targetStep}`;
  return entry(slot, position, { head, body: bytes(JSON.stringify({ ...head, ...said })) });
}

/** Returns the result of a step, named `s` and its number. */
export const result = (position: number, stepId: number, concurrent = 1): Step =>
  posted(position, { stepId, stepName: `s${stepId}`, stepType: "Run", concurrent });

/** Returns the plan of a step. */
export const plan = (position: number, targetStep: number, concurrent: number): Step =>
  posted(position, { stepId: 0, targetStep, stepName: `s${targetStep}`, stepType: "Run", concurrent });

/** Returns the state of a message in flight. */
export const message = (id: string, more: Partial<MessageState> = {}): MessageState => ({
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

/** Returns a log row of a message. */
export const line = (messageId: string, states: LogState[], more: Partial<LogRow> = {}): LogRow => ({
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

/** Returns a step of the run that waits for an event. */
export const waiter = (stepId: number, concurrent: number): Waiter => ({
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
