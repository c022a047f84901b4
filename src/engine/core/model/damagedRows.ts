import { readIdTime } from "../values/ids.ts";
import type { StoredMessage } from "./message.ts";
import type { UrlGroup } from "./urlGroup.ts";
import type { Schedule } from "./schedule.ts";
import type { DeadLetter } from "./deadLetter.ts";
import { noBytes } from "../values/basics.ts";
import { noMessageSettings } from "./message.ts";
import { noSendSettings } from "./sendSettings.ts";
import type { Step } from "./run.ts";
import { readRunKey } from "./stepId.ts";

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
