import type { Routes } from "../../api/schema.ts";
import { writePairs } from "../../parts/words.ts";
import type { Draft } from "./publishSettings.ts";
import { emptyDraft } from "./publishSettings.ts";

type Schedule = Routes["GET /v2/schedules/{scheduleId}"]["response"];

/** Returns the form of an existing schedule, as far as the API shows its settings. */
export function readScheduleDraft(schedule: Schedule): Draft {
  const { scheduleId, cron, destination, method, body = "", queueName = "", header } = schedule;
  const { retries, retryDelayExpression, delay, callback, failureCallback, labels } = schedule;
  const { flowControlKey, parallelism, rate, period } = schedule;
  const isType = (name: string): boolean => name.toLowerCase() === "content-type";
  const type = Object.entries(header).find(([name]) => isType(name))?.[1][0] ?? "";
  const limits = [
    parallelism !== undefined && `parallelism=${parallelism}`,
    rate !== undefined && `rate=${rate}`,
    rate !== undefined && period !== undefined && `period=${period}s`,
  ].filter((one) => one !== false);
  const values: Record<string, string | undefined> = {
    cron,
    "schedule-id": scheduleId,
    retries: String(retries),
    "retry-delay": retryDelayExpression,
    delay: delay === undefined || delay === 0 ? undefined : `${delay}s`,
    callback,
    "failure-callback": failureCallback,
    label: labels?.join(", "),
    "flow-control-key": flowControlKey,
    "flow-control-value": limits.length > 0 ? limits.join(", ") : undefined,
    forward: writePairs(Object.fromEntries(Object.entries(header).filter(([name]) => !isType(name)))),
  };
  return {
    ...emptyDraft,
    kind: "schedule",
    destination,
    method,
    body,
    type,
    queue: queueName,
    values: Object.fromEntries(Object.entries(values).map(([name, value]) => [name, value ?? ""])),
  };
}
