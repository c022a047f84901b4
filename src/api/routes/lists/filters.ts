import { z } from "zod";
import { isId } from "../../../core/values/ids.ts";
import { Refusal } from "../../../core/values/errors.ts";
import type { Filter } from "../../../core/search/filter.ts";
import type { LogState } from "../../../core/model/message.ts";
import { choice, timestamp, singleText, textList, numberList, wholeTextList } from "../../http/parameters.ts";

const messageFields = {
  url: textList("https?://").optional().describe("The destination, exactly as it was given."),
  topicName: textList().optional().describe("The URL group it was published to."),
  queueName: textList().optional().describe("The queue it went through."),
  scheduleId: textList().optional().describe("The schedule that made it."),
  label: textList().optional().describe("One of its labels."),
  flowControlKey: textList().optional().describe("Its flow control key."),
  callerIp: textList().optional().describe("The IP address of the publisher."),
  callerIP: textList().optional().describe("Another spelling of callerIp."),
  fromDate: timestamp().optional().describe("Not before this moment, in unix milliseconds, inclusive."),
  toDate: timestamp().optional().describe("Not after this moment, in unix milliseconds, inclusive."),
};

const urlPartFields = {
  host: textList().optional().describe("The host of the destination."),
  path: textList("/").optional().describe("The path of the destination."),
};

/** What an action does something to: all keys with a comma would be missed, and others hit, if it parted them. */
export const actionKeyFilters = {
  flowControlKey: wholeTextList().optional().describe("Its flow control key. Repeat it for several: a comma is a part of a key."),
};

/** Which unfinished messages. */
export const messageFilters = z.object({
  messageIds: textList().optional().describe("These messages. Other filters do not count then."),
  ...messageFields,
  ...urlPartFields,
  ...actionKeyFilters,
});

/** Which dead letters. */
export const deadLetterFilters = z.object({
  dlqIds: textList().optional().describe("These entries. Other filters do not count then."),
  messageId: singleText().optional().describe("The message that failed."),
  ...messageFields,
  responseStatus: numberList().optional().describe("The status of the last response."),
});

const states = [
  "CREATED",
  "ACTIVE",
  "RETRY",
  "ERROR",
  "DELIVERED",
  "FAILED",
  "CANCEL_REQUESTED",
  "CANCELLED",
  "CANCELED",
  "IN_PROGRESS",
] as const;

/** Which lines of the log. */
export const logFilters = z.object({
  messageId: textList().optional().describe("What happened to this message."),
  messageIds: textList().optional().describe("What happened to these messages."),
  state: textList()
    .pipe(z.array(z.enum(states, { error: `is none of ${states.join(", ")}` })))
    .optional()
    .describe("What happened. IN_PROGRESS is ACTIVE, RETRY or ERROR."),
  ...messageFields,
  ...urlPartFields,
});

export const orderParameter = (defaultOrder: "earliestFirst" | "latestFirst") =>
  choice(["earliestFirst", "latestFirst"]).default(defaultOrder).describe("Which end to begin with.");

export const cursorParameter = singleText().optional().describe("Where the last page ended: the cursor that came with it.");

type MessageParameters = z.output<typeof messageFilters>;
type DeadLetterParameters = Omit<z.output<typeof deadLetterFilters>, "messageId">;
type LogParameters = Omit<z.output<typeof logFilters>, "messageId">;
type FilterParameters = MessageParameters & DeadLetterParameters & LogParameters & { messageId?: string | string[] | undefined };

/** The filter of the house, of what was asked. Throws `Refusal` when the dates are the wrong way round. */
export function toFilter(parameters: FilterParameters): Filter {
  if ((parameters.fromDate ?? 0) > (parameters.toDate ?? Infinity)) {
    throw new Refusal("invalid", "fromDate: is later than toDate, so that nothing can pass");
  }
  const { messageIds = [], messageId = [], dlqIds, state } = parameters;
  const ids = [messageIds, messageId].flat();
  const ips = [...(parameters.callerIp ?? []), ...(parameters.callerIP ?? [])];
  return {
    ...(ids.length > 0 ? { messageIds: ids.filter(isId) } : {}),
    ...(dlqIds ? { dlqIds: dlqIds.filter(isId) } : {}),
    ...(parameters.url ? { urls: parameters.url } : {}),
    ...(parameters.host ? { hosts: parameters.host } : {}),
    ...(parameters.path ? { paths: parameters.path } : {}),
    ...(parameters.label ? { labels: parameters.label } : {}),
    ...(ips.length > 0 ? { callerIps: ips } : {}),
    ...(state ? { states: state.flatMap(toLogStates) } : {}),
    ...(parameters.responseStatus ? { responseStatuses: parameters.responseStatus } : {}),
    ...(parameters.topicName ? { topicNames: parameters.topicName } : {}),
    ...(parameters.queueName ? { queueNames: parameters.queueName } : {}),
    ...(parameters.scheduleId ? { scheduleIds: parameters.scheduleId } : {}),
    ...(parameters.flowControlKey ? { flowControlKeys: parameters.flowControlKey } : {}),
    ...(parameters.fromDate === undefined ? {} : { from: parameters.fromDate }),
    ...(parameters.toDate === undefined ? {} : { to: parameters.toDate }),
  };
}

function toLogStates(state: string): LogState[] {
  if (state === "IN_PROGRESS") return ["ACTIVE", "RETRY", "ERROR"];
  return [state === "CANCELED" ? "CANCELLED" : (state as LogState)];
}
