import { z } from "zod";
import { headerMap } from "../../engine/core/sending/callback.ts";
import { defaults } from "../../engine/core/values/limits.ts";
import { explainEmptyFiring } from "../../engine/core/sending/firing.ts";
import { listCronTimes } from "../../engine/core/values/cron.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import type { Schedule } from "../../engine/core/model/schedule.ts";
import { redactHeaders, redactBody } from "../../engine/core/model/redaction.ts";
import { damaged } from "./schemas.ts";
import { bodyFields, flowControlFields, omitMissing } from "./messages.ts";
import { sha256 } from "../http/sha256.ts";
import { redactForwarded } from "../publishing/keptSettings.ts";
import { toSettings } from "../publishing/sourceSettings.ts";
import { writeScheduleSettings } from "../settings/write.ts";

/** The state of a message of the last firing: waiting or in flight, delivered, or failed. */
export type ScheduleState = "IN_PROGRESS" | "SUCCESS" | "FAIL";

/** Returns a schedule as the API shows it. */
export function scheduleJson(
  schedule: Schedule,
  states: ReadonlyMap<string, ScheduleState>,
): Record<string, unknown> {
  const { messageInput: input, lastMessages } = schedule;
  const { text, base64 } = bodyFields(redactBody(schedule.body, input.redaction, sha256));
  const known = lastMessages.filter((id) => states.has(id));
  return omitMissing({
    scheduleId: schedule.id,
    cron: schedule.cron,
    createdAt: schedule.createdAt,
    destination:
      input.group === null
        ? input.url
        : `${input.group}${input.query === undefined ? "" : `?${input.query}`}`,
    method: input.method,
    header: headerMap(redactHeaders(input.headers, input.redaction, sha256)),
    body: text,
    bodyBase64: base64,
    retries: input.retries ?? defaults.retries,
    retryDelayExpression: input.retryDelay,
    hideHeaders: input.hideHeaders || null,
    delay: input.delay === null ? null : Math.ceil(input.delay / 1000),
    callback: input.callback?.url,
    failureCallback: input.failureCallback?.url,
    queueName: input.queue,
    ...flowControlFields(input),
    callerIp: input.callerIp,
    callerIP: input.callerIp,
    label: input.labels[0],
    labels: input.labels.length > 0 ? input.labels : null,
    isPaused: schedule.paused,
    lastScheduleTime: schedule.lastAt,
    nextScheduleTime: schedule.dueAt,
    lastScheduleStates: known.length > 0 ? Object.fromEntries(known.map((id) => [id, states.get(id)])) : null,
    lastScheduleError: describeLastError(schedule),
    damaged: schedule.damaged,
  });
}

/** The number of next times that a schedule shows. */
const shownTimes = 5;

/**
 * Returns a schedule with its next times and its settings, as the API shows it when it is read by its id. To
 * compute the times of many schedules would take long.
 */
export function scheduleWithTimesJson(
  schedule: Schedule,
  states: ReadonlyMap<string, ScheduleState>,
  now: Millis,
): Record<string, unknown> {
  const { cron, dueAt, damaged, messageInput } = schedule;
  const nextTimes = dueAt === null || damaged ? null : listCronTimes(cron, { dueAt, now, count: shownTimes });
  return omitMissing({
    ...scheduleJson(schedule, states),
    settings: damaged
      ? null
      : toSettings(redactForwarded(writeScheduleSettings(schedule), messageInput.redaction)),
    nextTimes,
  });
}

/** Returns why the last firing published nothing, or null if it published something. */
function describeLastError({
  damaged,
  lastAt,
  lastMessages,
  passedOver,
  messageInput,
  body,
}: Schedule): string | null {
  if (damaged)
    return "nothing is published: the schedule is damaged in the store; create it again, or restore a backup";
  if (lastAt === null || lastMessages.length > 0) return null;
  if (passedOver !== undefined) return `nothing was published: ${passedOver}`;
  return `nothing was published: ${explainEmptyFiring({ messageInput, body })}`;
}

const millis = (about: string) => z.int().describe(`${about}, in Unix milliseconds.`);

/** The schema of `scheduleJson`. */
export const scheduleSchema = z.object({
  scheduleId: z.string().describe("The id of the schedule."),
  cron: z
    .string()
    .describe(
      "When the schedule fires: a cron expression of five fields, in UTC unless CRON_TZ=<zone> precedes it.",
    ),
  createdAt: millis("When the schedule was created or last replaced"),
  destination: z.string().describe("The URL or the name of the URL group that the schedule publishes to."),
  method: z.string().describe("The HTTP method of its messages."),
  header: z
    .record(z.string(), z.array(z.string()))
    .describe("The headers of its messages: names to lists of values."),
  body: z.string().optional().describe("The body of its messages, if it is UTF-8. Absent if it is empty."),
  bodyBase64: z.string().optional().describe("The body in base64, if it is not UTF-8."),
  retries: z.int().min(0).describe("The maximum number of retries of each message."),
  retryDelayExpression: z
    .string()
    .optional()
    .describe("The expression for the time between two attempts, in milliseconds, if one was set."),
  hideHeaders: z
    .literal(true)
    .optional()
    .describe("Its messages arrive without the headers of this server. Absent if they have them."),
  delay: z.int().optional().describe("How long its messages wait after the schedule fires, in seconds."),
  callback: z.string().optional().describe("The URL of the callback."),
  failureCallback: z.string().optional().describe("The URL of the failure callback."),
  queueName: z.string().optional().describe("The name of the queue that its messages go through."),
  flowControlKey: z.string().optional().describe("The flow-control key of its messages."),
  parallelism: z
    .int()
    .min(1)
    .optional()
    .describe("The maximum number of deliveries of the key in flight at once."),
  rate: z
    .int()
    .min(1)
    .optional()
    .describe("The maximum number of deliveries of the key that start in one period."),
  period: z.int().optional().describe("The period of the rate, in seconds."),
  callerIp: z.string().optional().describe("The IP address of the client that created the schedule."),
  callerIP: z.string().optional().describe("Alias of callerIp."),
  label: z.string().optional().describe("The first label of its messages."),
  labels: z.array(z.string()).optional().describe("All labels of its messages."),
  isPaused: z.boolean().describe("Whether the schedule is paused. A paused schedule does not fire."),
  lastScheduleTime: millis("When the schedule last fired").optional(),
  nextScheduleTime: z
    .int()
    .optional()
    .describe("When the schedule fires next, in Unix milliseconds. Absent while it is paused."),
  settings: z
    .record(z.string(), z.union([z.string(), z.array(z.string())]))
    .optional()
    .describe(
      "The settings of the schedule as headers, such as Svc-Timeout, except those that have their default. " +
        "A change of the schedule takes them in the same form. Redacted values are hidden. Absent in lists.",
    ),
  nextTimes: z
    .array(z.int())
    .optional()
    .describe(
      "The next five times at which the schedule fires, in Unix milliseconds. Absent in lists and while " +
        "the schedule is paused.",
    ),
  lastScheduleStates: z
    .record(z.string(), z.enum(["IN_PROGRESS", "SUCCESS", "FAIL"]))
    .optional()
    .describe(
      "The states of the last firing's messages, by message id, as far as they are known. IN_PROGRESS: not " +
        "finished. SUCCESS: delivered. FAIL: failed for good.",
    ),
  lastScheduleError: z
    .string()
    .optional()
    .describe("Why the last firing published nothing. Absent if it published a message."),
  damaged,
});
