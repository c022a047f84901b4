import { explainEmptyFiring } from "../../engine/core/sending/firing.ts";
import type { Schedule } from "../../engine/core/model/schedule.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import { defaults } from "../../engine/core/values/limits.ts";
import { readBase64, readHeaders, readText } from "./content.ts";
import type { FieldsOf, Settings } from "./field.ts";
import {
  count,
  flag,
  headers,
  integer,
  longText,
  mark,
  omitEmpty,
  optional,
  positive,
  settings,
  text,
  texts,
  time,
  times,
  wordMap,
} from "./field.ts";
import { damagedMark, readPeriod } from "./message.ts";
import { formatRefusal } from "../http/remedies.ts";

/** The states of a message of the last firing: waiting or in flight, delivered, or failed. */
export const scheduleStates = ["IN_PROGRESS", "SUCCESS", "FAIL"] as const;
/** The state of a message of the last firing. */
export type ScheduleState = (typeof scheduleStates)[number];

/**
 * A schedule with the states of the messages of its last firing. Its settings and its next times are shown
 * only when it is read by its id, because computing those of many schedules would take long.
 */
type ShownSchedule = {
  schedule: Schedule;
  states: ReadonlyMap<string, ScheduleState>;
  settings?: Settings | null;
  nextTimes?: readonly Millis[] | null;
};

function readDestination({ messageInput: { group, url, query } }: Schedule): string {
  if (group === null) return url;
  return query === undefined ? group : `${group}?${query}`;
}

function readStates({ schedule, states }: ShownSchedule): Record<string, ScheduleState> | null {
  const known = schedule.lastMessages.flatMap((id) => {
    const state = states.get(id);
    return state === undefined ? [] : [[id, state] as const];
  });
  return known.length > 0 ? Object.fromEntries(known) : null;
}

/** Returns why the last firing published nothing, or null if it published something. */
function readLastError({ schedule }: ShownSchedule): string | null {
  const { damaged, lastAt, lastMessages, passedOver, remedy, messageInput, body } = schedule;
  if (damaged)
    return "nothing is published: the schedule is damaged in the store; create it again, or restore a backup";
  if (lastAt === null || lastMessages.length > 0) return null;
  const reason =
    passedOver === undefined
      ? explainEmptyFiring({ messageInput, body })
      : formatRefusal({ message: passedOver, remedy });
  return `nothing was published: ${reason}`;
}

/** The fields of a schedule. */
export const scheduleFields = {
  scheduleId: text("The id of the schedule.", ({ schedule }) => schedule.id, "SCHEDULE"),
  cron: text(
    "When the schedule fires: a cron expression of five fields, in UTC unless CRON_TZ=<zone> precedes it.",
    ({ schedule }) => schedule.cron,
  ),
  createdAt: time(
    "When the schedule was created or last replaced, in Unix milliseconds.",
    ({ schedule }) => schedule.createdAt,
  ),
  destination: longText(
    "The URL or the name of the URL group that the schedule publishes to.",
    ({ schedule }) => readDestination(schedule),
  ),
  method: text("The HTTP method of its messages.", ({ schedule }) => schedule.messageInput.method),
  header: headers(
    "The headers of its messages: names to lists of values.",
    ({ schedule: { messageInput } }) => readHeaders(messageInput.headers, messageInput.redaction),
  ),
  body: optional(text)(
    "The body of its messages, if it is UTF-8. Absent if it is empty.",
    ({ schedule: { body, messageInput } }) => readText(body, messageInput.redaction),
  ),
  bodyBase64: optional(text)(
    "The body in base64, if it is not UTF-8.",
    ({ schedule: { body, messageInput } }) => readBase64(body, messageInput.redaction),
  ),
  retries: count(
    "The maximum number of retries of each message.",
    ({ schedule }) => schedule.messageInput.retries ?? defaults.retries,
  ),
  retryDelayExpression: optional(text)(
    "The expression for the time between two attempts, in milliseconds, if one was set.",
    ({ schedule }) => schedule.messageInput.retryDelay,
  ),
  hideHeaders: mark(
    "Its messages arrive without the headers of this server. Absent if they have them.",
    ({ schedule }) => schedule.messageInput.hideHeaders,
  ),
  delay: optional(integer)(
    "How long its messages wait after the schedule fires, in seconds.",
    ({ schedule: { messageInput } }) => messageInput.delay && Math.ceil(messageInput.delay / 1000),
  ),
  callback: optional(text)("The URL of the callback.", ({ schedule }) => schedule.messageInput.callback?.url),
  failureCallback: optional(text)(
    "The URL of the failure callback.",
    ({ schedule }) => schedule.messageInput.failureCallback?.url,
  ),
  queueName: optional(text)(
    "The name of the queue that its messages go through.",
    ({ schedule }) => schedule.messageInput.queue,
  ),
  flowControlKey: optional(text)(
    "The flow-control key of its messages.",
    ({ schedule }) => schedule.messageInput.flowControl?.key,
  ),
  parallelism: optional(positive)(
    "The maximum number of deliveries of the flow-control key in flight at once.",
    ({ schedule }) => schedule.messageInput.flowControl?.parallelism,
  ),
  rate: optional(positive)(
    "The maximum number of deliveries of the flow-control key that start in one period.",
    ({ schedule }) => schedule.messageInput.flowControl?.rate,
  ),
  period: optional(integer)("The period of the rate, in seconds.", ({ schedule }) =>
    readPeriod(schedule.messageInput.flowControl),
  ),
  callerIp: optional(text)(
    "The IP address of the client that created the schedule.",
    ({ schedule }) => schedule.messageInput.callerIp,
  ),
  callerIP: optional(text)("Alias of callerIp.", ({ schedule }) => schedule.messageInput.callerIp),
  label: optional(text)(
    "The first label of its messages.",
    ({ schedule }) => schedule.messageInput.labels[0],
  ),
  labels: optional(texts)("All labels of its messages.", ({ schedule }) =>
    omitEmpty(schedule.messageInput.labels),
  ),
  isPaused: flag(
    "Whether the schedule is paused. A paused schedule does not fire.",
    ({ schedule }) => schedule.paused,
    "PAUSED",
  ),
  lastScheduleTime: optional(time)(
    "When the schedule last fired, in Unix milliseconds.",
    ({ schedule }) => schedule.lastAt,
    "LAST",
  ),
  nextScheduleTime: optional(time)(
    "When the schedule fires next, in Unix milliseconds. Absent while it is paused.",
    ({ schedule }) => schedule.dueAt,
    "NEXT",
  ),
  lastScheduleStates: optional(wordMap(scheduleStates))(
    "The states of the last firing's messages, by message id, as far as they are known. IN_PROGRESS: not " +
      "finished. SUCCESS: delivered. FAIL: failed for good.",
    readStates,
  ),
  lastScheduleError: optional(longText)(
    "Why the last firing published nothing. Absent if it published a message.",
    readLastError,
    "ERROR",
  ),
  damaged: damagedMark(({ schedule }) => schedule.damaged),
  settings: optional(settings)(
    "The settings of the schedule as headers, such as Svc-Timeout, except those that have their default. " +
      "A change of the schedule takes them in the same form. Redacted values are hidden. Absent in lists.",
    ({ settings }) => settings,
  ),
  nextTimes: optional(times)(
    "The next five times at which the schedule fires, in Unix milliseconds. Absent in lists and while " +
      "the schedule is paused.",
    ({ nextTimes }) => nextTimes,
  ),
} satisfies FieldsOf<ShownSchedule>;
