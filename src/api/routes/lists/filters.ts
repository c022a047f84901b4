import { z } from "zod";
import { isId } from "../../../engine/core/values/ids.ts";
import { Refusal } from "../../../engine/core/values/errors.ts";
import type { Filter } from "../../../engine/core/search/filter.ts";
import type { LogState } from "../../../engine/core/model/logRow.ts";
import { messageEventStates } from "../../fields/logEvent.ts";
import { choice, timestamp, singleText, textList, numberList, wholeTextList } from "../../http/parameters.ts";

const messageFields = {
  url: textList("https?://")
    .optional()
    .describe("The destination URL, exactly as it was given. Several values match any of them."),
  topicName: textList().optional().describe("The URL group that the message was published to."),
  queueName: textList().optional().describe("The queue that the message went through."),
  scheduleId: textList().optional().describe("The id of the schedule that published the message."),
  label: textList().optional().describe("A label. The message must have at least one of the given labels."),
  flowControlKey: textList().optional().describe("The flow-control key of the message."),
  callerIp: textList().optional().describe("The IP address of the client that published the message."),
  callerIP: textList().optional().describe("Alias of callerIp."),
  fromDate: timestamp().optional().describe("The earliest time, inclusive, in Unix milliseconds."),
  toDate: timestamp().optional().describe("The latest time, inclusive, in Unix milliseconds."),
};

const urlPartFields = {
  host: textList()
    .optional()
    .describe("The host of the destination URL, with the port unless it is the default one."),
  path: textList("/").optional().describe("The path of the destination URL, starting with /."),
};

/**
 * The flow-control key as a filter of bulk actions. Its values are not split at commas, because a key may
 * contain a comma. If they were split, an action would skip such keys and change the messages of other keys.
 */
export const actionKeyFilters = {
  flowControlKey: wholeTextList()
    .optional()
    .describe("A flow-control key. Repeat the parameter for several keys; a comma is part of a key."),
};

/** The filters for unfinished messages. */
export const messageFilters = z.object({
  messageIds: textList().optional().describe("Message ids. If given, all other filters are ignored."),
  ...messageFields,
  ...urlPartFields,
  ...actionKeyFilters,
});

/** The filters for dead letters. */
export const deadLetterFilters = z.object({
  dlqIds: textList().optional().describe("Ids of dead letters. If given, all other filters are ignored."),
  messageId: singleText().optional().describe("The id of the message that failed."),
  ...messageFields,
  responseStatus: numberList().optional().describe("The HTTP status of the last response."),
  cause: textList().optional().describe("The cause of a group of dead letters, from its field cause."),
});

const states = [...messageEventStates, "CANCELED", "IN_PROGRESS"] as const;

/** The filters for log entries. */
export const logFilters = z.object({
  messageId: textList().optional().describe("A message id. Lists the entries of this message."),
  messageIds: textList().optional().describe("Message ids. Lists the entries of these messages."),
  state: textList()
    .pipe(z.array(z.enum(states, { error: `must be one of ${states.join(", ")}` })))
    .optional()
    .describe("The state that an entry records. IN_PROGRESS means ACTIVE, RETRY or ERROR."),
  ...messageFields,
  ...urlPartFields,
});

/** Returns the parameter for the order of a list. */
export const orderParameter = (defaultOrder: "earliestFirst" | "latestFirst") =>
  choice(["earliestFirst", "latestFirst"])
    .default(defaultOrder)
    .describe("The order of the list: oldest or newest entries first.");

/** The parameter that continues a list. */
export const cursorParameter = singleText()
  .optional()
  .describe("The cursor that the previous page returned. Omit it for the first page.");

type MessageParameters = z.output<typeof messageFilters>;
type DeadLetterParameters = Omit<z.output<typeof deadLetterFilters>, "messageId">;
type LogParameters = Omit<z.output<typeof logFilters>, "messageId">;
type FilterParameters = MessageParameters &
  DeadLetterParameters &
  LogParameters & { messageId?: string | string[] | undefined };

/** Returns the filter for the given parameters. Throws `Refusal` if `fromDate` is later than `toDate`. */
export function toFilter(parameters: FilterParameters): Filter {
  if ((parameters.fromDate ?? 0) > (parameters.toDate ?? Infinity)) {
    throw new Refusal("invalid", "fromDate: is later than toDate; swap them");
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
    ...(parameters.cause ? { causes: parameters.cause } : {}),
    ...(parameters.topicName ? { topicNames: parameters.topicName } : {}),
    ...(parameters.queueName ? { queueNames: parameters.queueName } : {}),
    ...(parameters.scheduleId ? { scheduleIds: parameters.scheduleId } : {}),
    ...(parameters.flowControlKey ? { flowControlKeys: parameters.flowControlKey } : {}),
    ...(parameters.fromDate === undefined ? {} : { from: parameters.fromDate }),
    ...(parameters.toDate === undefined ? {} : { to: parameters.toDate }),
  };
}

function toLogStates(state: string): LogState[] {
  if (state === "IN_PROGRESS") return ["ACTIVE", "ACKNOWLEDGING", "RETRY", "ERROR"];
  return [state === "CANCELED" ? "CANCELLED" : (state as LogState)];
}
