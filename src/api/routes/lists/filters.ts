import { z } from "zod";
import { isId } from "../../../core/values/ids.ts";
import { Refusal } from "../../../core/values/errors.ts";
import type { Filter } from "../../../core/search/filter.ts";
import type { LogState } from "../../../core/model/message.ts";
import { choice, moment, one, several, severalNumbers, severalWhole } from "../../http/parameters.ts";

const ofTheMessage = {
  url: several("https?://").optional().describe("The destination, exactly as it was given."),
  topicName: several().optional().describe("The URL group it was published to."),
  queueName: several().optional().describe("The queue it went through."),
  scheduleId: several().optional().describe("The schedule that made it."),
  label: several().optional().describe("One of its labels."),
  flowControlKey: several().optional().describe("Its flow control key."),
  callerIp: several().optional().describe("The IP address of the publisher."),
  callerIP: several().optional().describe("Another spelling of callerIp."),
  fromDate: moment().optional().describe("Not before this moment, in unix milliseconds, inclusive."),
  toDate: moment().optional().describe("Not after this moment, in unix milliseconds, inclusive."),
};

const byParts = {
  host: several().optional().describe("The host of the destination."),
  path: several("/").optional().describe("The path of the destination."),
};

/** What an action does something to: all keys with a comma would be missed, and others hit, if it parted them. */
export const keysOfAction = {
  flowControlKey: severalWhole().optional().describe("Its flow control key. Repeat it for several: a comma is a part of a key."),
};

/** Which unfinished messages. */
export const messageFilters = z.object({
  messageIds: several().optional().describe("These messages. Other filters do not count then."),
  ...ofTheMessage,
  ...byParts,
  ...keysOfAction,
});

/** Which dead letters. */
export const deadLetterFilters = z.object({
  dlqIds: several().optional().describe("These entries. Other filters do not count then."),
  messageId: one().optional().describe("The message that failed."),
  ...ofTheMessage,
  responseStatus: severalNumbers().optional().describe("The status of the last response."),
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
  messageId: several().optional().describe("What happened to this message."),
  messageIds: several().optional().describe("What happened to these messages."),
  state: several()
    .pipe(z.array(z.enum(states, { error: `is none of ${states.join(", ")}` })))
    .optional()
    .describe("What happened. IN_PROGRESS is ACTIVE, RETRY or ERROR."),
  ...ofTheMessage,
  ...byParts,
});

export const orderParameter = (normally: "earliestFirst" | "latestFirst") =>
  choice(["earliestFirst", "latestFirst"]).default(normally).describe("Which end to begin with.");

export const cursorParameter = one().optional().describe("Where the last page ended: the cursor that came with it.");

type OfMessages = z.output<typeof messageFilters>;
type OfDeadLetters = Omit<z.output<typeof deadLetterFilters>, "messageId">;
type OfLog = Omit<z.output<typeof logFilters>, "messageId">;
type Asked = OfMessages & OfDeadLetters & OfLog & { messageId?: string | string[] | undefined };

/** The filter of the house, of what was asked. Throws `Refusal` when the dates are the wrong way round. */
export function filterOf(given: Asked): Filter {
  if ((given.fromDate ?? 0) > (given.toDate ?? Infinity)) {
    throw new Refusal("invalid", "fromDate: is later than toDate, so that nothing can pass");
  }
  const { messageIds = [], messageId = [], dlqIds, state } = given;
  const ids = [messageIds, messageId].flat();
  const ips = [...(given.callerIp ?? []), ...(given.callerIP ?? [])];
  return {
    ...(ids.length > 0 ? { messageIds: ids.filter(isId) } : {}),
    ...(dlqIds ? { dlqIds: dlqIds.filter(isId) } : {}),
    ...(given.url ? { urls: given.url } : {}),
    ...(given.host ? { hosts: given.host } : {}),
    ...(given.path ? { paths: given.path } : {}),
    ...(given.label ? { labels: given.label } : {}),
    ...(ips.length > 0 ? { callerIps: ips } : {}),
    ...(state ? { states: state.flatMap(statesOf) } : {}),
    ...(given.responseStatus ? { responseStatuses: given.responseStatus } : {}),
    ...(given.topicName ? { topicNames: given.topicName } : {}),
    ...(given.queueName ? { queueNames: given.queueName } : {}),
    ...(given.scheduleId ? { scheduleIds: given.scheduleId } : {}),
    ...(given.flowControlKey ? { flowControlKeys: given.flowControlKey } : {}),
    ...(given.fromDate === undefined ? {} : { from: given.fromDate }),
    ...(given.toDate === undefined ? {} : { to: given.toDate }),
  };
}

function statesOf(state: string): LogState[] {
  if (state === "IN_PROGRESS") return ["ACTIVE", "RETRY", "ERROR"];
  return [state === "CANCELED" ? "CANCELLED" : (state as LogState)];
}
