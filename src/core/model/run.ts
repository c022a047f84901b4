import type {
  AccountId,
  Brand,
  Bytes,
  Damaged,
  FailureCallbackInfo,
  HeaderList,
  InvokerPost,
  MessageId,
  Millis,
  Redaction,
  RunFeatures,
  RunKey,
  SendSettings,
  StepHead,
} from "./message.ts";
import { Refusal } from "../values/errors.ts";
import { limits } from "../values/limits.ts";
import { truncateText } from "../values/name.ts";
import { base64 } from "../values/base64.ts";

export type RunState = "RUN_STARTED" | "RUN_SUCCESS" | "RUN_FAILED" | "RUN_CANCELED";

/** One execution of a workflow, as it began and as it ended. Written at these two moments; what goes on between them is in `ActiveRun`. */
export type Run = {
  account: AccountId;
  /** The name in here, which sorts by birth. */
  id: RunKey;
  /** The name that its caller gave it. Others may have had it before. */
  runId: string;
  url: string;
  createdAt: Millis;
  state: RunState;
  endedAt: Millis | null;
  brand: Brand;
  features: RunFeatures;
  /** What every message of the run is sent with; its failure callback is that of the run. */
  settings: SendSettings;
  labels: readonly string[];
  redaction: Redaction | null;
  callerIp: string | null;
  /** As in `Letter`, for every message of the run. */
  keepResponse?: boolean;
  invoker: Invoker | null;
  /** The run that this one goes on with, or begins again. */
  origin: RunKey | null;
  /** The run that goes on with this one, or began it again. */
  continuedBy?: { key: RunKey; runId: string };
  /** How many steps its history has; counted in `ActiveRun` before its end. */
  steps: number;
  failure: RunFailure | null;
  /** What it returned: a text. */
  body: Bytes;
};

/** A run that waits for the end of this one. */
export type Invoker = InvokerPost & { run: RunKey };

/** How a run failed. */
export type RunFailure = {
  messageId: MessageId;
  /** Null, where it is read, if the dead letter is gone. */
  dlqId: string | null;
  error: string;
  /** What the endpoint has said of it; see `readFailureMessage`. */
  said?: string;
  status: number | null;
  headers: HeaderList;
  /** Messages that were not finished then, besides the one that failed, and when they were due. */
  unfinished: readonly { messageId: MessageId; dueAt: Millis | null }[];
  /** What became of the failure callback. */
  callback: (FailureCallbackInfo & { messageId: MessageId; url: string }) | null;
};

/** A run that has not ended, by the name that its caller gave it. Small: every step changes it. */
export type ActiveRun = {
  account: AccountId;
  runId: string;
  run: RunKey;
  /** How many steps its history has, and their bytes as they are sent. */
  steps: number;
  size: number;
  /** How many of its steps wait. */
  waiting: number;
  /** The message that carries the initial payload. */
  firstMessage: MessageId;
};

/** `toCallback`: a request to a third party. `fromCallback`: its answer. */
export type CallType = "step" | "toCallback" | "fromCallback";

/** An entry of the history of a run. Appended, and never changed. */
export type Step = {
  account: AccountId;
  /** `<run>/<slot>`: see `core/model/stepId.ts`. What is posted twice has the same one. */
  id: string;
  run: RunKey;
  /** Its place in the history. */
  position: number;
  /** The message that carries it. */
  messageId: MessageId;
  callType: CallType;
  createdAt: Millis;
  head: StepHead | null;
  /** Where its message went, and headers of its own. */
  url: string;
  headers: HeaderList;
  body: Bytes;
  /** Of the result of a wait: since when, until when at the latest, and for which run. Runs that are older have none. */
  waited?: CompletedWait;
  damaged?: Damaged;
};

/** What is left of a waiter that has got what it waited for. */
export type CompletedWait = Pick<Waiter, "createdAt" | "dueAt" | "child">;

/** What endpoints are sent of a step. */
export type SentStep = Pick<Step, "messageId" | "callType" | "body" | "position">;

/** A step that waits: for an event, for a call to its webhook, or for the end of another run. */
export type Waiter = {
  account: AccountId;
  /** `<run>/<step>`. */
  id: string;
  run: RunKey;
  runId: string;
  kind: "event" | "webhook" | "invoke";
  /** Empty for `invoke`. */
  event: string;
  createdAt: Millis;
  /** When it gives up. Null: never. */
  dueAt: Millis | null;
  url: string;
  /** What the result is sent with. `given`: all that the endpoint asked for, as it is shown. */
  headers: HeaderList;
  given: HeaderList;
  timeout: string;
  timeoutUrl: string;
  timeoutHeaders: HeaderList;
  timeoutGiven: HeaderList;
  /** What its run hides from every answer, if anything. */
  redaction?: Redaction;
  /** As it was posted. The result has more to say. */
  step: Readonly<Record<string, unknown>>;
  child: { run: RunKey; runId: string; url: string; createdAt: Millis; messageId: MessageId } | null;
};

/** An event that came before anything waited for it. */
export type Notification = {
  account: AccountId;
  /** `<run>/` and an id that sorts by birth. */
  id: string;
  run: RunKey;
  kind: "event" | "webhook";
  event: string;
  createdAt: Millis;
  /** Bytes of its body. */
  size: number;
  body: Bytes;
};

/** What a step says of itself. Null: it is none, or says what cannot be. */
export function parseStepHead(step: unknown): StepHead | null {
  if (typeof step !== "object" || step === null) return null;
  const { stepId, stepName, stepType, concurrent, targetStep }: Partial<Record<keyof StepHead, unknown>> = step;
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

/** The same of one that something is to come of later. Throws `Refusal`. */
export function mustBeStep(step: unknown): void {
  const head = parseStepHead(step);
  if (!head || head.stepId === 0) throw new Refusal("step-refused", "step: has no stepId of 1 or more, stepName and stepType");
}

const isNumber = (value: unknown): value is number => typeof value === "number" && Number.isSafeInteger(value) && value >= 0;

const encoder = new TextEncoder();

/** The body of a delivery: the history up to the step that it carries, as endpoints read it (protocol 6.7). */
export function formatHistory(steps: readonly SentStep[]): Bytes {
  return encoder.encode(`[${steps.map(formatHistoryEntry).join(",")}]`);
}

/** One entry of it. */
export const formatHistoryEntry = ({ messageId, callType, body }: SentStep): string =>
  `{"messageId":${JSON.stringify(messageId)},"body":"${base64(body)}","callType":"${callType}"}`;

/** Bytes that a step takes up in the body of a delivery, roughly: more than it does. */
export const historySize = (bytes: number): number => Math.ceil(bytes / 3) * 4 + 96;
