import type { Draft } from "../decision/command.ts";
import { readIdTime } from "../values/ids.ts";
import type { DeadLetter, StoredMessage, UrlGroup, MessageState, WithoutBody, Schedule } from "../model/message.ts";
import { isUnfinished, noBytes } from "../model/message.ts";
import { noResponse } from "./outcome.ts";
import type { Step } from "../model/run.ts";
import { readRunKey } from "../model/stepId.ts";

// A row whose checksum differs from its content is read as one of these: its key, and nothing that may have been altered. See
// docs/decisions/0060.

const noSettings: Omit<StoredMessage, KnownField> = {
  retryDelay: null,
  timeout: 0,
  callback: null,
  failureCallback: null,
  flowControl: null,
  // The redaction is not known, so everything is hidden: a dead letter stores its response apart from the message.
  redaction: { body: true, headers: true },
  labels: [],
  callerIp: null,
  reportsOn: null,
  deduplication: null,
  group: null,
  endpoint: null,
  queue: null,
  scheduleId: null,
  brand: "svc",
  url: "",
  method: "POST",
  headers: [],
  body: noBytes,
};

type KnownField = "account" | "id" | "createdAt" | "notBefore" | "retries" | "startedAtOnce";
type RowName = { account: string; id: string };

/** A message of which nothing is known but its id. */
export const damagedMessage = ({ account, id }: RowName): StoredMessage => ({
  ...noSettings,
  account,
  id,
  retries: 0,
  startedAtOnce: false,
  createdAt: readIdTime(id),
  notBefore: readIdTime(id),
  damaged: true,
});

/** A dead letter of which nothing is known but its id, and the message that it may be of. */
export const damagedDeadLetter = ({ account, id, messageId }: RowName & { messageId: string }): DeadLetter => ({
  account,
  id,
  messageId,
  status: null,
  headers: [],
  body: noBytes,
  error: "the stored dead letter is damaged",
  retried: 0,
  failureCallback: null,
  tags: [],
  damaged: true,
});

/** A schedule of which nothing is known but its id. */
export const damagedSchedule = ({ account, id, dueAt }: RowName & Pick<Schedule, "dueAt">): Schedule => ({
  account,
  id,
  dueAt,
  cron: "",
  createdAt: 0,
  paused: dueAt === null,
  lastAt: null,
  lastMessages: [],
  body: noBytes,
  damaged: true,
  messageInput: { ...noSettings, retries: null, timeout: null, delay: null, notBefore: null },
});

/** A URL group of which nothing is known but its name. */
export const damagedUrlGroup = ({ account, name }: Pick<UrlGroup, "account" | "name">): UrlGroup => ({
  account,
  name,
  createdAt: 0,
  updatedAt: 0,
  endpoints: [],
  headers: [],
  damaged: true,
});

/** A step of which nothing is known but its id, and the place that it may have. */
export const damagedStep = ({ account, id, position }: RowName & Pick<Step, "position">): Step => ({
  account,
  id,
  run: readRunKey(id),
  position,
  messageId: "",
  callType: "step",
  createdAt: 0,
  head: null,
  url: "",
  headers: [],
  body: noBytes,
  damaged: true,
});

/** The outcome of a message whose content cannot be trusted. */
const damagedOutcome = {
  ...noResponse,
  error: "the stored message is damaged, so it is not sent; publish it again, or restore a backup",
};

/** Reports whether the stored content of a message was looked for, and is damaged or not there. */
export function isContentDamaged(draft: Draft, state: MessageState): boolean {
  if (!isUnfinished(state) || !draft.isBodyLoaded(state)) return false;
  const message = draft.get("storedMessages", state.account, state.id);
  return !message || message.damaged === true;
}

/**
 * Returns a message that is spoiled, and its outcome, for what follows from its failure. Its callbacks are left out: they would carry
 * content that is not known. A run that waits for it fails with it, as far as the run is here.
 */
export function toDamagedFailure(
  draft: Draft,
  { account, id, run: key }: MessageState,
): { message: WithoutBody<StoredMessage>; outcome: typeof damagedOutcome } {
  const stored = draft.get("storedMessages", account, id) ?? damagedMessage({ account, id });
  const run = key === null ? undefined : draft.get("runs", account, key);
  const { run: part, ...rest } = stored;
  const runPart = run && {
    run: run.id,
    runId: run.runId,
    createdAt: run.createdAt,
    kind: "step" as const,
    stepKey: "",
    position: 0,
    size: 0,
  };
  const withoutCallbacks = { ...rest, ...(run && { url: run.url }), callback: null, failureCallback: null };
  const reportedPart = runPart ?? (part?.kind === "failure" ? part : undefined);
  return { message: reportedPart ? { ...withoutCallbacks, run: reportedPart } : withoutCallbacks, outcome: damagedOutcome };
}
