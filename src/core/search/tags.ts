import type { Draft, Rows, TableName } from "../decision/command.ts";
import type { AccountId, StoredMessage, LogRow, MessageId } from "../model/message.ts";
import type { Run } from "../model/run.ts";
import { fingerprint } from "../values/fingerprint.ts";

// What lists are searched by. A mark says that a row of a list has something that people look for: a label, a queue, a
// key, a schedule, a URL group; of a dead letter also its URL and the like. A message with none of these leaves no mark.
// The draft makes and drops marks with the rows they stand for, so that no command has to think of them.

/** What can be searched: unfinished messages, births in the log, lines of the log, dead letters, runs. */
export type TaggedList = "unfinished" | "born" | "log" | "dlq" | "runs";

/** All marks of a list with the same text lie together, in the order of the rows they stand for. */
export const toTagId = (list: TaggedList, tag: string, id: string): string => `${tagPrefix(list, tag)}${id}`;
/** Returns the tag in the id of a row of `tags`. Neither the list, nor the tag, nor the id of the row has a space. */
export const readTag = (id: string): string => id.slice(id.indexOf(" ") + 1, id.lastIndexOf(" "));
/** Returns the beginning of the ids of all tags of a list that begin with the same text. */
export const tagStart = (list: TaggedList, start: string): string => `${list} ${start}`;
export const tagPrefix = (list: TaggedList, tag: string): string => `${list} ${tag} `;

/** A mark. White space and control characters are escaped, so that no mark is the beginning of another one. */
export const toTag = {
  label: (label: string) => `label:${escapeTag(label)}`,
  queue: (name: string) => `queue:${escapeTag(name)}`,
  key: (name: string) => `key:${escapeTag(name)}`,
  schedule: (id: string) => `schedule:${escapeTag(id)}`,
  group: (name: string) => `group:${escapeTag(name)}`,
  /** A fingerprint, because a URL may be longer than a key. Two may share it: whoever searches looks at the row as well. */
  url: (url: string) => `url:${fingerprint(url)}`,
  callerIp: (ip: string) => `ip:${escapeTag(ip)}`,
  status: (status: number) => `status:${status}`,
  message: (id: MessageId) => `message:${id}`,
  state: (state: string) => `state:${state}`,
  run: (runId: string) => `run:${escapeTag(runId)}`,
  /** That it is of a workflow run. */
  workflow: "workflow",
} as const;

const escapeTag = (text: string): string =>
  // oxlint-disable-next-line no-control-regex -- some databases take no text with a NUL or half a character in it
  text.replace(/[%\s\0-\x1f\x7f\p{Surrogate}]/gu, (letter) => `%${letter.charCodeAt(0).toString(16)}.`);

type TagSource = Pick<StoredMessage, "labels" | "queue" | "flowControl" | "scheduleId" | "group">;

/** The marks of a message, which all that is told of it has as well. */
export const makeTags = ({ labels, queue, flowControl, scheduleId, group }: TagSource): string[] => [
  ...new Set(labels.map(toTag.label)),
  ...(queue === null ? [] : [toTag.queue(queue)]),
  ...(flowControl ? [toTag.key(flowControl.key)] : []),
  ...(scheduleId === null ? [] : [toTag.schedule(scheduleId)]),
  ...(group === null ? [] : [toTag.group(group)]),
];

/** States that are rare enough to be searched by: those of a message that comes through at once are not. */
export const taggedStates: ReadonlySet<string> = new Set(["RETRY", "ERROR", "FAILED", "CANCEL_REQUESTED", "CANCELLED"]);

/** The ids of the marks that come and go with a row, for each table that has any. */
export const makeTagIds: { readonly [T in TableName]?: (row: Rows[T]) => readonly string[] } = {
  messages: ({ id, tags }) => tags.map((tag) => toTagId("unfinished", tag, id)),
  storedMessages: (message) => makeTags(message).map((tag) => toTagId("born", tag, message.id)),
  log: (row) => makeLogTagIds(row),
  keptLog: (row) => makeLogTagIds(row),
  deadLetters: ({ id, tags, messageId, status }) =>
    [...tags, toTag.message(messageId), ...(status === null ? [] : [toTag.status(status)])].map((tag) => toTagId("dlq", tag, id)),
  runs: (run) => makeRunTags(run).map((tag) => toTagId("runs", tag, run.id)),
};

const makeLogTagIds = ({ id, tags, states }: LogRow): string[] =>
  [...tags, ...states.filter((state) => taggedStates.has(state)).map(toTag.state)].map((tag) => toTagId("log", tag, id));

const makeRunTags = ({ runId, url, labels, settings: { flowControl }, callerIp, state }: Run): string[] => [
  ...[toTag.run(runId), toTag.url(url), toTag.state(state)],
  ...new Set(labels.map(toTag.label)),
  ...(flowControl ? [toTag.key(flowControl.key)] : []),
  ...(callerIp === null ? [] : [toTag.callerIp(callerIp)]),
];

/** Tables whose rows change what they are searched by. */
export const retaggedTables: ReadonlySet<TableName> = new Set(["runs"]);

/**
 * Removes all that is kept of a finished message: its envelope, and its entries in the kept log. Returns the number of these entries.
 * The caller has asked for them (`Needs.keptOf`).
 */
export function forgetMessage(draft: Draft, message: { account: AccountId; messageId: MessageId; tags: readonly string[] }): number {
  const kept = draft.listKeptLog(message.account, message.messageId);
  for (const { account, id } of kept) draft.drop("keptLog", account, id);
  dropStoredMessage(draft, message);
  return kept.length;
}

/** Removes the envelope of a message, of which nothing else is left but `tags`. */
function dropStoredMessage(draft: Draft, message: { account: AccountId; messageId: MessageId; tags: readonly string[] }): void {
  draft.drop("storedMessages", message.account, message.messageId);
  for (const tag of message.tags) draft.drop("tags", message.account, toTagId("born", tag, message.messageId));
}
