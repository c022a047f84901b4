import type { TraceContext } from "../values/traceContext.ts";
import type { AccountId, Brand, Bytes, HeaderList, MessageId, Millis } from "../values/basics.ts";
import type { CallbackSettings } from "./sendSettings.ts";
import type { Damaged } from "./message.ts";
import type { InvokerPost, RunFeatures, RunKey, StepHead } from "./runPost.ts";
import type { Redaction, SendSettings } from "./sendSettings.ts";
import type { FailureCallbackInfo } from "./deadLetter.ts";
import { Refusal } from "../values/errors.ts";
import { limits } from "../values/limits.ts";
import { truncateText } from "../values/name.ts";
import { base64 } from "../values/base64.ts";

/** The states of a run. Only `RUN_STARTED` is not final. */
export type RunState = "RUN_STARTED" | "RUN_SUCCESS" | "RUN_FAILED" | "RUN_CANCELED";

/**
 * One execution of a workflow. The row is written when the run starts and when it ends. `ActiveRun` records
 * its progress in between.
 */
export type Run = {
  account: AccountId;
  /** The internal key, which sorts by creation. */
  id: RunKey;
  /** The id that the caller gave to the run. Earlier runs may have had the same id. */
  runId: string;
  url: string;
  createdAt: Millis;
  state: RunState;
  endedAt: Millis | null;
  brand: Brand;
  features: RunFeatures;
  /** The settings of every message of the run. The failure callback in them is that of the run. */
  settings: SendSettings;
  labels: readonly string[];
  redaction: Redaction | null;
  callerIp: string | null;
  /** Whether the log keeps the responses of successful deliveries of the run's messages. */
  keepResponse?: boolean;
  /** The trace of the trigger. All messages of the run belong to it. */
  trace?: TraceContext;
  invoker: Invoker | null;
  /**
   * Whether an earlier run had the same id, or this run continues another one. A post for such a run may come
   * from the other run, because a post does not say to which of them it belongs.
   */
  sharesId?: true;
  /** The run that this run resumes or restarts. */
  origin: RunKey | null;
  /** The run that resumed or restarted this run. */
  continuedBy?: { key: RunKey; runId: string };
  /** The number of steps in the history. Before the end of the run, `ActiveRun` counts them. */
  steps: number;
  failure: RunFailure | null;
  /** The text that the run returned. */
  body: Bytes;
};

/** A run that waits for the end of this run. */
export type Invoker = InvokerPost & { run: RunKey };

/** How a run failed. */
export type RunFailure = {
  messageId: MessageId;
  /** The id of the dead letter. Reads return null if the dead letter has been removed. */
  dlqId: string | null;
  error: string;
  /** The endpoint's own message about its failure; see `readFailureMessage`. */
  said?: string;
  status: number | null;
  headers: HeaderList;
  /** The other messages that were unfinished when the run failed, and when they were due. */
  unfinished: readonly { messageId: MessageId; dueAt: Millis | null }[];
  /** The state of the failure callback. */
  callback: (FailureCallbackInfo & { messageId: MessageId; url: string }) | null;
};

/**
 * A run that has not ended, by the id that its caller gave it. The row is small, because every step changes
 * it.
 */
export type ActiveRun = {
  account: AccountId;
  runId: string;
  run: RunKey;
  /** The number of steps in its history, and the bytes of these steps as they are sent. */
  steps: number;
  size: number;
  /** The number of its steps that wait. */
  waiting: number;
  /** The message that carries the initial payload. */
  firstMessage: MessageId;
  /** The last call to the endpoint that its next post can settle; null if there is none. */
  lastCall: LastCall | null;
  /**
   * The plans of the last parallel group that have no result. Absent if it is not known, for example after a
   * node of an older version has added a step.
   */
  openPlans?: number;
};

/**
 * A call to the endpoint of a run, and the numbers of the steps that the endpoint can begin in it. Any other
 * step was not posted in this call.
 */
export type LastCall = { messageId: MessageId; fromStep: number; toStep: number; progress?: RunProgress };

/**
 * Steps that ran on in the calls of one message. `attempt` and `call` name the call that stored the last of
 * them; `call` is empty if its lease was given back. `retried` and `lost` are the retries and the lost
 * attempts of the message until then.
 */
export type RunProgress = { attempt: number; retried: number; lost: number; call: string };

/**
 * The content of a step. `step`: the initial payload, a plan or a result. `toCallback`: a request to a third
 * party. `fromCallback`: its response.
 */
export type CallType = "step" | "toCallback" | "fromCallback";

/** An entry in the history of a run. Steps are appended and never changed. */
export type Step = {
  account: AccountId;
  /** `<run>/<step key>`: see `engine/core/model/stepId.ts`. A step that is posted twice has the same id. */
  id: string;
  run: RunKey;
  /** The position in the history. */
  position: number;
  /** The message that carries the step. */
  messageId: MessageId;
  callType: CallType;
  createdAt: Millis;
  head: StepHead | null;
  /** Where its message was sent, and the headers that belong to this step only. */
  url: string;
  headers: HeaderList;
  body: Bytes;
  /**
   * When the wait began, its deadline, and the run that was waited for. Present only for the result of a
   * wait that the server ended.
   */
  waited?: CompletedWait;
  damaged?: Damaged;
};

/** The part of a waiter that is kept after its wait has ended. */
export type CompletedWait = Pick<Waiter, "createdAt" | "dueAt" | "child">;

/** The fields of a step that endpoints receive. */
export type SentStep = Pick<Step, "messageId" | "callType" | "body" | "position">;

/** A step that waits: for an event, for a call to its webhook, or for the end of another run. */
export type Waiter = {
  account: AccountId;
  /** `<run>/<number of the step>`. */
  id: string;
  run: RunKey;
  runId: string;
  kind: "event" | "webhook" | "invoke";
  /** Empty for `invoke`. */
  event: string;
  createdAt: Millis;
  /** The deadline of the wait. Null means none. */
  dueAt: Millis | null;
  url: string;
  /**
   * The headers with which the result is sent. `given` are all headers that the endpoint asked for; the API
   * shows them.
   */
  headers: HeaderList;
  given: HeaderList;
  timeout: string;
  timeoutUrl: string;
  timeoutHeaders: HeaderList;
  timeoutGiven: HeaderList;
  /** The redaction of the run, if it has one. */
  redaction?: Redaction;
  /** The step as it was posted. The result of the step has more members. */
  step: Readonly<Record<string, unknown>>;
  /** The failure callback of the run, if the call that continues it fails. Absent: that of the run. */
  failureCallback?: CallbackSettings;
  child: { run: RunKey; runId: string; url: string; createdAt: Millis; messageId: MessageId } | null;
};

/** Reports whether a waiter belongs to this active run. The waiter of any other run has outlived its run. */
export const isWaiterOf = (waiter: Waiter, active: ActiveRun | undefined): boolean =>
  active !== undefined && active.run === waiter.run;

/** An event that arrived before a step waited for it. */
export type Notification = {
  account: AccountId;
  /** `<run>/` and an id that sorts by creation. */
  id: string;
  run: RunKey;
  kind: "event" | "webhook";
  event: string;
  createdAt: Millis;
  /** The bytes of the body. */
  size: number;
  body: Bytes;
};

/** Returns what a step says about itself. Returns null if it is not a step, or if its members are invalid. */
export function parseStepHead(step: unknown): StepHead | null {
  if (typeof step !== "object" || step === null) return null;
  const { stepId, stepName, stepType, concurrent, targetStep }: Partial<Record<keyof StepHead, unknown>> =
    step;
  if (!isNumber(stepId) || typeof stepName !== "string" || typeof stepType !== "string") return null;
  return {
    stepId,
    stepName: truncateText(stepName, limits.nameLength),
    stepType: truncateText(stepType, limits.nameLength),
    concurrent: isNumber(concurrent) ? concurrent : 1,
    ...(isNumber(targetStep) ? { targetStep } : {}),
  };
}

/** Reports whether a step is a sleep, until a time or for a time. */
export const isSleep = ({ head }: Pick<Step, "head">): boolean => head?.stepType.startsWith("Sleep") === true;

/** Throws `Refusal` if a step that will get its result later has no valid number, name and type. */
export function assertStep(step: unknown): void {
  const head = parseStepHead(step);
  if (!head || head.stepId === 0)
    throw new Refusal("step-refused", "step: requires stepId (at least 1), stepName and stepType");
}

const isNumber = (value: unknown): value is number =>
  typeof value === "number" && Number.isSafeInteger(value) && value >= 0;

const encoder = new TextEncoder();

/**
 * Returns the body of a delivery: the history up to the step that it carries, in the form that endpoints
 * read.
 */
export function formatHistory(steps: readonly SentStep[]): Bytes {
  return encoder.encode(`[${steps.map(formatHistoryEntry).join(",")}]`);
}

/** Returns one step of the history as JSON. */
export const formatHistoryEntry = ({ messageId, callType, body }: SentStep): string =>
  `{"messageId":${JSON.stringify(messageId)},"body":"${base64(body)}","callType":"${callType}"}`;

/** Returns an upper estimate of the bytes that a step takes up in the body of a delivery. */
export const historySize = (bytes: number): number => Math.ceil(bytes / 3) * 4 + 96;
