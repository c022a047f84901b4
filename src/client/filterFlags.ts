import type { Command } from "commander";
import type { ApiQuery } from "./connection.ts";
import { CommandFailed } from "./terminal/commandFailed.ts";
import { parseTime } from "./terminal/times.ts";

/**
 * A flag that selects entries, and the parameter of the API that it sets. Only times and whole numbers are
 * read here; the server checks all other values.
 */
type FilterFlag = {
  flag: string;
  parameter: string;
  about: string;
  kind?: "time" | "number";
  /** The words that tables print for values of the parameter. The flag takes both. */
  words?: Readonly<Record<string, string>>;
};

/** The flags of a command by name. A flag may be repeated unless it is a time. */
export type FilterFlags = readonly FilterFlag[];

const since: FilterFlag = {
  flag: "since",
  parameter: "fromDate",
  about: "earliest time: a duration such as 1h, a date, or Unix milliseconds",
  kind: "time",
};
const until: FilterFlag = { flag: "until", parameter: "toDate", about: "latest time", kind: "time" };
const label: FilterFlag = { flag: "label", parameter: "label", about: "label" };
const key: FilterFlag = { flag: "key", parameter: "flowControlKey", about: "flow-control key" };
const caller: FilterFlag = { flag: "caller", parameter: "callerIp", about: "IP address of the publisher" };
const host: FilterFlag = { flag: "host", parameter: "host", about: "host of the URL, with its port" };
const path: FilterFlag = { flag: "path", parameter: "path", about: "path of the URL, starting with /" };
const status: FilterFlag = {
  flag: "status",
  parameter: "responseStatus",
  about: "HTTP status of the last response",
  kind: "number",
};

const ofMessages: FilterFlags = [
  { flag: "url", parameter: "url", about: "destination URL, exactly as it was given" },
  { flag: "group", parameter: "topicName", about: "URL group" },
  { flag: "queue", parameter: "queueName", about: "queue" },
  { flag: "schedule", parameter: "scheduleId", about: "id of a schedule" },
  ...[label, key, caller, since, until],
];

/** The filters that a bulk cancel of messages has. */
export const cancelledMessageFilters: FilterFlags = [
  ...[...ofMessages, host, path],
  { flag: "state", parameter: "state", about: "pending, retrying, delivering, held or paused" },
  { flag: "gate", parameter: "gate", about: "gate: queue, key, endpoint, account or capacity" },
  { flag: "min-attempts", parameter: "minAttempts", about: "fewest ended attempts", kind: "number" },
];

/** The filters of the list of unfinished messages. */
export const messageFilters: FilterFlags = [
  ...cancelledMessageFilters,
  { flag: "run", parameter: "workflowRunId", about: "id of a run" },
];

/** The filters of dead letters of messages. */
export const deadLetterFilters: FilterFlags = [
  ...ofMessages,
  status,
  { flag: "cause", parameter: "cause", about: "cause of a group, as `waypost dlq groups` prints it" },
  { flag: "message", parameter: "messageId", about: "id of the message that failed" },
];

/** The filters of the log. */
export const logFilters: FilterFlags = [
  ...[...ofMessages, host, path],
  { flag: "message", parameter: "messageId", about: "id of a message" },
  { flag: "state", parameter: "state", about: "state that an entry records, such as DELIVERED or RETRY" },
];

const workflow: FilterFlag = { flag: "workflow", parameter: "workflowUrl", about: "URL of the workflow" };

/** The filters of a bulk cancel of runs. */
export const cancelledRunFilters: FilterFlags = [workflow, host, path, label, key, caller, since, until];

/** The states of runs, and the words that tables print for them. */
export const runStates: Readonly<Record<string, string>> = {
  RUN_STARTED: "running",
  RUN_SUCCESS: "success",
  RUN_FAILED: "failed",
  RUN_CANCELED: "cancelled",
};

/** The filters of the list of runs. */
export const runFilters: FilterFlags = [
  ...cancelledRunFilters,
  { flag: "state", parameter: "state", about: "running, success, failed or cancelled", words: runStates },
];

/** The filters of failed runs. */
export const failedRunFilters: FilterFlags = [
  ...[workflow, label, key, caller, status, since, until],
  { flag: "run", parameter: "workflowRunId", about: "id of a run" },
];

const collect = (value: string, before: readonly string[] = []): string[] => [...before, value];

/** Adds filters to a command. */
export function withFilters(command: Command, filters: FilterFlags): Command {
  for (const { flag, about, kind } of filters) {
    const value = kind === "time" ? "<time>" : kind === "number" ? "<n>" : "<value>";
    if (kind === "time") command.option(`--${flag} ${value}`, about);
    else command.option(`--${flag} ${value}`, about, collect);
  }
  return command;
}

/** Returns the parameters that the flags of a command mean. `now` is the current time in milliseconds. */
export function readFilters(
  filters: FilterFlags,
  flags: Readonly<Record<string, unknown>>,
  now: number,
): Record<string, NonNullable<ApiQuery[string]>> {
  const parameters: Record<string, NonNullable<ApiQuery[string]>> = {};
  for (const { flag, parameter, kind, words = {} } of filters) {
    const value = flags[flag.replaceAll(/-(\w)/g, (_, letter: string) => letter.toUpperCase())];
    if (kind === "time") {
      if (typeof value === "string") parameters[parameter] = parseTime(`--${flag}`, value, now);
    } else if (Array.isArray(value))
      parameters[parameter] = value.map((one) =>
        kind === "number" ? parseWhole(`--${flag}`, String(one)) : toValue(words, String(one)),
      );
  }
  return parameters;
}

/** Returns the value that a table prints as this word, or the word itself. */
const toValue = (words: Readonly<Record<string, string>>, word: string): string =>
  Object.entries(words).find(([, printed]) => printed === word)?.[0] ?? word;

/** Parses a whole number from 0 to `max`. */
export function parseWhole(flag: string, text: string, max = 999_999_999): number {
  if (/^\d{1,9}$/.test(text) && Number(text) <= max) return Number(text);
  throw new CommandFailed("usage", `${flag}: "${text}" is not a whole number from 0 to ${max}`);
}
