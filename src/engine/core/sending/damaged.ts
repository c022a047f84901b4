import type { DamageableName, Draft, Key, TableName } from "../decision/command.ts";
import type { Refusal } from "../values/errors.ts";
import { toRefusal } from "../values/errors.ts";
import { readIdTime } from "../values/ids.ts";
import type { StoredMessage, WithoutBody } from "../model/message.ts";
import type { UrlGroup } from "../model/urlGroup.ts";
import type { MessageState } from "../model/messageState.ts";
import type { Schedule } from "../model/schedule.ts";
import type { DeadLetter } from "../model/deadLetter.ts";
import { isUnfinished } from "../model/messageState.ts";
import { noBytes } from "../values/basics.ts";
import { noMessageSettings } from "../model/message.ts";
import { noSendSettings } from "../model/sendSettings.ts";
import { noResponse } from "./recordOutcome.ts";
import type { Step } from "../model/run.ts";
import { readRunKey } from "../model/stepId.ts";
import type { Refused } from "../values/errors.ts";

// A row whose checksum does not match its content is read as one of these rows. It has its key, and no field
// that may have been altered. See docs/decisions/0060.

const { retries: _retries, ...sending } = noSendSettings;
const { delay: _delay, notBefore: _notBefore, ...rest } = noMessageSettings;

const noSettings: Omit<StoredMessage, KnownField> = {
  ...sending,
  ...rest,
  timeout: 0,
  // The redaction is unknown, so everything is hidden. This also hides the response in the dead letter of the
  // message, which may be intact.
  redaction: { body: true, headers: true },
  brand: "svc",
  url: "",
  body: noBytes,
};

type KnownField = "account" | "id" | "createdAt" | "notBefore" | "retries" | "startedAtOnce";
type RowName = { account: string; id: string };

/** Returns a message of which only the id is known. */
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

/** Returns a dead letter of which only its id and, possibly, the id of its message are known. */
export const damagedDeadLetter = ({
  account,
  id,
  messageId,
}: RowName & { messageId: string }): DeadLetter => ({
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

/** Returns a schedule of which only the id and the time of its next firing are known. */
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

/** Returns a URL group of which only the name is known. */
export const damagedUrlGroup = ({ account, name }: Pick<UrlGroup, "account" | "name">): UrlGroup => ({
  account,
  name,
  createdAt: 0,
  updatedAt: 0,
  endpoints: [],
  headers: [],
  damaged: true,
});

/** Returns a step of which only its id and, possibly, its position are known. */
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

/** The refusals of commands that need a damaged row, with what their callers can do. */
const damagedRefusals: Readonly<Record<DamageableName, (id: string) => Refused>> = {
  storedMessages: (id) => ({
    refused: "invalid",
    message: `messageId: ${id} is damaged in the store; publish it again, or restore a backup`,
  }),
  deadLetters: (id) => ({
    refused: "invalid",
    message:
      `dlqId: ${id.slice(0, 100)} is damaged in the store and cannot be sent again; ` +
      "restore a backup, or delete it",
  }),
  schedules: (id) => ({
    refused: "invalid",
    message:
      `scheduleId: the schedule ${id} is damaged in the store; ` +
      "create it again with Svc-Schedule-Id, delete it, or restore a backup",
  }),
  urlGroups: (name) => ({
    refused: "invalid",
    message: `the URL group ${name} is damaged in the store, so its endpoints are not known`,
    remedy: { remedy: "repair-group", group: name },
  }),
  steps: (id) => ({
    refused: "invalid",
    message: `the step ${id} is damaged in the store; restart the run, or restore a backup`,
  }),
};

/** Returns the refusal of a command that needs a damaged row, as plain data. */
export const damagedRefused = (table: DamageableName, id: string): Refused => damagedRefusals[table](id);

/** Returns the refusal of a command that needs a damaged row. */
export const damagedRefusal = (table: DamageableName, id: string): Refusal =>
  toRefusal(damagedRefused(table, id));

/** Returns a row that was read. Throws `Refusal` if it is damaged. */
export function refuseDamaged<Row>(table: TableName, [, id = ""]: Key, row: Row): Row {
  if (row && isDamageable(table) && (row as { damaged?: true }).damaged) throw damagedRefusal(table, id);
  return row;
}

const isDamageable = (table: TableName): table is DamageableName => table in damagedRefusals;

/** The outcome of a message whose content is damaged. */
const damagedOutcome = {
  ...noResponse,
  error: "the stored message is damaged, so it is not sent; publish it again, or restore a backup",
};

/** Reports whether the stored content of an unfinished message is damaged or missing. */
export function isContentDamaged(draft: Draft, state: MessageState): boolean {
  if (!isUnfinished(state)) return false;
  const message = draft.inspect("storedMessages", state.account, state.id);
  return !message || message.damaged === true;
}

/**
 * Returns a damaged message and its outcome, so that it can be failed. Its callbacks are not sent, because
 * they would carry unknown content. If its run is loaded, the run fails with the message.
 */
export function toDamagedFailure(
  draft: Draft,
  { account, id, run: key }: MessageState,
): { message: WithoutBody<StoredMessage>; outcome: typeof damagedOutcome } {
  const stored = draft.inspect("storedMessages", account, id) ?? damagedMessage({ account, id });
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
  return {
    message: reportedPart ? { ...withoutCallbacks, run: reportedPart } : withoutCallbacks,
    outcome: damagedOutcome,
  };
}
