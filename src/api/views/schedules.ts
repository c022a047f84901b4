import { listCronTimes } from "../../engine/core/values/cron.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import type { Schedule } from "../../engine/core/model/schedule.ts";
import { toJson } from "../fields/field.ts";
import type { ScheduleState } from "../fields/schedule.ts";
import { scheduleFields } from "../fields/schedule.ts";
import { redactForwarded } from "../publishing/keptSettings.ts";
import { toSettings } from "../publishing/sourceSettings.ts";
import { writeScheduleSettings } from "../settings/write.ts";
import { toSchema } from "./fieldSchema.ts";

/** A schedule, as the API shows it. */
export const scheduleSchema = toSchema(scheduleFields);

/** Returns a schedule as lists show it. */
export const scheduleJson = (
  schedule: Schedule,
  states: ReadonlyMap<string, ScheduleState>,
): Record<string, unknown> => toJson(scheduleFields, { schedule, states });

/** The number of next times that a schedule shows. */
const shownTimes = 5;

/** Returns a schedule with its next times and its settings, as the API shows it when it is read by its id. */
export function scheduleWithTimesJson(
  schedule: Schedule,
  states: ReadonlyMap<string, ScheduleState>,
  now: Millis,
): Record<string, unknown> {
  const { cron, dueAt, damaged, messageInput } = schedule;
  return toJson(scheduleFields, {
    ...{ schedule, states },
    settings: damaged
      ? null
      : toSettings(redactForwarded(writeScheduleSettings(schedule), messageInput.redaction)),
    nextTimes: dueAt === null || damaged ? null : listCronTimes(cron, { dueAt, now, count: shownTimes }),
  });
}
