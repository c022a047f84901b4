import { z } from "zod";
import { headerMap } from "../../core/sending/callback.ts";
import { defaults, limits } from "../../core/values/limits.ts";
import type { Schedule } from "../../core/model/message.ts";
import { redactHeaders, redactBody } from "../../core/model/redaction.ts";
import { damaged } from "./schemas.ts";
import { bodyFields, flowControlFields, omitMissing } from "./messages.ts";
import { sha256 } from "../http/sha256.ts";

/** How a message of the last firing stands. */
export type ScheduleState = "IN_PROGRESS" | "SUCCESS" | "FAIL";

/** A schedule, as it is shown. */
export function scheduleJson(schedule: Schedule, states: ReadonlyMap<string, ScheduleState>): Record<string, unknown> {
  const { messageInput: input, lastMessages } = schedule;
  const { text, base64 } = bodyFields(redactBody(schedule.body, input.redaction, sha256));
  const known = lastMessages.filter((id) => states.has(id));
  return omitMissing({
    scheduleId: schedule.id,
    cron: schedule.cron,
    createdAt: schedule.createdAt,
    destination: input.group === null ? input.url : `${input.group}${input.query === undefined ? "" : `?${input.query}`}`,
    method: input.method,
    header: headerMap(redactHeaders(input.headers, input.redaction, sha256)),
    body: text,
    bodyBase64: base64,
    retries: input.retries ?? defaults.retries,
    retryDelayExpression: input.retryDelay,
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

/** A firing that published nothing says why not. */
function describeLastError({ damaged, lastAt, lastMessages, passedOver, messageInput: input, body }: Schedule): string | null {
  if (damaged) return "nothing is published: the schedule is damaged in the store; make it again, or restore a backup";
  if (lastAt === null || lastMessages.length > 0) return null;
  if (passedOver !== undefined) return `nothing was published: ${passedOver}`;
  if (input.group === null) return "nothing was published: the destination is not a URL that can be called";
  const maxEndpoints = Math.floor(limits.fanOutBytes / Math.max(1, body.byteLength));
  const tooMany =
    maxEndpoints < limits.endpoints
      ? `, or it has more than ${maxEndpoints}, to each of which so large a body cannot be published at once`
      : "";
  return `nothing was published: there is no URL group ${input.group} with endpoints${tooMany}`;
}

const millis = (about: string) => z.int().describe(`${about}, in unix milliseconds.`);

/** The same, for the reference. */
export const scheduleSchema = z.object({
  scheduleId: z.string(),
  cron: z.string().describe("When it fires. Five fields, in UTC unless a time zone stands before them."),
  createdAt: millis("Made, or replaced for the last time"),
  destination: z.string().describe("The URL, or the name of the URL group."),
  method: z.string(),
  header: z.record(z.string(), z.array(z.string())).describe("Headers that are delivered: names to lists of values."),
  body: z.string().optional().describe("The body, when it is UTF-8. Absent when it is empty."),
  bodyBase64: z.string().optional().describe("The body in base64, when it is not UTF-8."),
  retries: z.int(),
  retryDelayExpression: z.string().optional(),
  delay: z.int().optional().describe("Seconds that a message waits after the schedule has fired."),
  callback: z.string().optional(),
  failureCallback: z.string().optional(),
  queueName: z.string().optional().describe("The queue that its messages go through."),
  flowControlKey: z.string().optional(),
  parallelism: z.int().optional(),
  rate: z.int().optional(),
  period: z.int().optional().describe("In seconds."),
  callerIp: z.string().optional().describe("The IP address of whoever made it."),
  callerIP: z.string().optional().describe("The same, in another spelling."),
  label: z.string().optional().describe("The first label."),
  labels: z.array(z.string()).optional(),
  isPaused: z.boolean(),
  lastScheduleTime: millis("Fired last").optional(),
  nextScheduleTime: millis("Fires next; absent while it is paused").optional(),
  lastScheduleStates: z
    .record(z.string(), z.enum(["IN_PROGRESS", "SUCCESS", "FAIL"]))
    .optional()
    .describe("The messages of the last firing, as far as anything is known of them."),
  lastScheduleError: z.string().optional().describe("Why the last firing published nothing."),
  damaged,
});
