import type { FailureGroup } from "../../engine/core/workflows/failureGroups.ts";
import type { FieldsOf } from "./field.ts";
import { counts, integer, longText, mark, optional, positive, text, time } from "./field.ts";

/** The fields of a group of dead letters of messages with the same cause. */
export const failureGroupFields = {
  cause: text(
    "The id of the cause. As the filter cause, it selects the dead letters of the group.",
    ({ cause }) => cause,
  ),
  url: longText(
    "The destination URL of the messages without its query. … replaces numbers and ids in the path.",
    ({ url }) => url,
  ),
  responseStatus: optional(integer)(
    "The HTTP status of the last responses. Absent if there was none; error gives the reason.",
    ({ status }) => status,
  ),
  error: text(
    "The error. The parts that differ between messages (numbers, ids, quoted texts) appear as …",
    ({ error }) => error,
  ),
  count: positive("The number of dead letters in the group.", ({ count }) => count),
  countIsMinimum: mark("There are more dead letters in the group than count.", ({ isCut }) => isCut),
  firstFailedAt: time(
    "When the first message of the group failed, in Unix milliseconds.",
    ({ firstAt }) => firstAt,
    "FIRST",
  ),
  lastFailedAt: time(
    "When the latest message of the group failed, in Unix milliseconds.",
    ({ lastAt }) => lastAt,
    "LAST",
  ),
  dlqId: text("The id of the latest dead letter of the group.", ({ dlqId }) => dlqId, "EXAMPLE"),
  trend: counts(
    "How many dead letters were added in each 24th part of the last day, or of the time from fromDate to " +
      "toDate. The oldest part comes first. Each number is at most 1000.",
    ({ trend }) => trend,
  ),
} satisfies FieldsOf<FailureGroup>;

/** The fields of a group of failed runs with the same cause. */
export const failedRunGroupFields: FieldsOf<FailureGroup> = {
  cause: text(
    "The id of the cause. As the filter cause, it selects the failed runs of the group.",
    ({ cause }) => cause,
  ),
  stepName: optional(text)(
    "The name of the step that failed. Absent if neither the endpoint nor the message names it.",
    ({ stepName }) => stepName,
  ),
  afterStep: optional(text)(
    "The name of the last step before the failure. Present only if stepName is unknown.",
    ({ afterStep }) => afterStep,
  ),
  error: text(
    "The error. The parts that differ between runs (numbers, ids, quoted texts) appear as …",
    ({ error }) => error,
  ),
  count: positive("The number of failed runs in the group.", ({ count }) => count),
  countIsMinimum: mark("There are more failed runs in the group than count.", ({ isCut }) => isCut),
  dlqId: text("The id of the latest failed run of the group in the dead letter queue.", ({ dlqId }) => dlqId),
  workflowUrl: text("The URL of the workflow.", ({ url }) => url),
  firstFailedAt: time(
    "When the first run of the group failed, in Unix milliseconds.",
    ({ firstAt }) => firstAt,
  ),
  lastFailedAt: time(
    "When the latest run of the group failed, in Unix milliseconds.",
    ({ lastAt }) => lastAt,
  ),
  trend: counts(
    "How many of these runs failed in each 24th part of the last day, or of the time from fromDate to " +
      "toDate. The oldest part comes first. Each number is at most 1000.",
    ({ trend }) => trend,
  ),
};
