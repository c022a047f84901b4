import type { Draft, Rows, TableName } from "../decision/command.ts";
import type { AccountId, MessageId } from "../values/basics.ts";
import type { StoredMessage } from "../model/message.ts";
import type { LogRow } from "../model/logRow.ts";
import type { Run } from "../model/run.ts";
import { fingerprint } from "../values/fingerprint.ts";

// Lists are searched by tags. A tag says that a row of a list has a property that people search for: a label,
// a queue, a key, a schedule or a URL group. A dead letter also has tags for its URL and similar properties.
// A message without any of these properties has no tag. The draft adds and removes tags with their rows, so
// commands do not handle them.

/** The lists that can be searched: unfinished messages, stored messages, log rows, dead letters and runs. */
export type TaggedList = "unfinished" | "born" | "log" | "dlq" | "runs";

/**
 * Returns the id of a tag row. All rows of one tag are adjacent, in the order of the rows that they refer to.
 */
export const toTagId = (list: TaggedList, tag: string, id: string): string => `${tagPrefix(list, tag)}${id}`;
/**
 * Returns the tag in the id of a row of `tags`. Neither the list, nor the tag, nor the id of the row has a
 * space.
 */
export const readTag = (id: string): string => id.slice(id.indexOf(" ") + 1, id.lastIndexOf(" "));
/** Returns the prefix of the ids of all tags of a list that begin with this text. */
export const tagStart = (list: TaggedList, start: string): string => `${list} ${start}`;
/** Returns the prefix of the ids of all rows of a tag. */
export const tagPrefix = (list: TaggedList, tag: string): string => `${list} ${tag} `;

/**
 * The tags. White space and control characters are escaped, so that no tag is the beginning of another tag.
 */
export const toTag = {
  label: (label: string) => `label:${escapeTag(label)}`,
  queue: (name: string) => `queue:${escapeTag(name)}`,
  key: (name: string) => `key:${escapeTag(name)}`,
  schedule: (id: string) => `schedule:${escapeTag(id)}`,
  group: (name: string) => `group:${escapeTag(name)}`,
  /**
   * A fingerprint, because a URL may be longer than a key. Two URLs may share a fingerprint, so a search also
   * checks the row.
   */
  url: (url: string) => `url:${fingerprint(url)}`,
  callerIp: (ip: string) => `ip:${escapeTag(ip)}`,
  status: (status: number) => `status:${status}`,
  message: (id: MessageId) => `message:${id}`,
  state: (state: string) => `state:${state}`,
  run: (runId: string) => `run:${escapeTag(runId)}`,
  /** The cause of a dead letter: see `engine/core/model/cause.ts`. */
  cause: (id: string) => `${causeStart}${escapeTag(id)}`,
  /** The cause of the failure of a run. */
  runCause: (id: string) => `${runCauseStart}${escapeTag(id)}`,
  /** The row belongs to a workflow run. */
  workflow: "workflow",
} as const;

/** All tags of causes of messages begin with this text. */
export const causeStart = "cause:";
/** All tags of causes of runs begin with this text. */
export const runCauseStart = "runcause:";

const escapeTag = (text: string): string =>
  // Some databases reject a string with a NUL or an unpaired surrogate.
  // oxlint-disable-next-line no-control-regex
  text.replace(/[%\s\0-\x1f\x7f\p{Surrogate}]/gu, (letter) => `%${letter.charCodeAt(0).toString(16)}.`);

/** Returns the id of the schedule that a tag names, or null if it is another tag. Ids need no escapes. */
export function readScheduleTag(tag: string): string | null {
  const start = toTag.schedule("");
  return tag.startsWith(start) ? tag.slice(start.length) : null;
}

type TagSource = Pick<StoredMessage, "labels" | "queue" | "flowControl" | "scheduleId" | "group">;

/** Returns the tags of a message. Its log rows and its dead letter have these tags too. */
export function makeTags({ labels, queue, flowControl, scheduleId, group }: TagSource): string[] {
  const tags = labels.length === 0 ? [] : [...new Set(labels.map(toTag.label))];
  if (queue !== null) tags.push(toTag.queue(queue));
  if (flowControl) tags.push(toTag.key(flowControl.key));
  if (scheduleId !== null) tags.push(toTag.schedule(scheduleId));
  if (group !== null) tags.push(toTag.group(group));
  return tags;
}

/**
 * The states that are rare enough to be tags. A message that is delivered at its first attempt has none of
 * them.
 */
export const taggedStates: ReadonlySet<string> = new Set([
  "ACKNOWLEDGING",
  "RETRY",
  "ERROR",
  "FAILED",
  "CANCEL_REQUESTED",
  "CANCELLED",
]);

/** The ids of the tags that are added and removed with a row, for each table that has tags. */
export const makeTagIds: { readonly [T in TableName]?: (row: Rows[T]) => readonly string[] } = {
  messages: ({ id, tags }) => tags.map((tag) => toTagId("unfinished", tag, id)),
  storedMessages: (message) => makeTags(message).map((tag) => toTagId("born", tag, message.id)),
  log: (row) => makeLogTagIds(row),
  keptLog: (row) => makeLogTagIds(row),
  deadLetters: ({ id, tags, messageId, status }) =>
    [...tags, toTag.message(messageId), ...(status === null ? [] : [toTag.status(status)])].map((tag) =>
      toTagId("dlq", tag, id),
    ),
  runs: (run) => makeRunTags(run).map((tag) => toTagId("runs", tag, run.id)),
};

function makeLogTagIds({ id, tags, states }: LogRow): string[] {
  const ids = tags.map((tag) => toTagId("log", tag, id));
  for (const state of states) if (taggedStates.has(state)) ids.push(toTagId("log", toTag.state(state), id));
  return ids;
}

const makeRunTags = ({ runId, url, labels, settings: { flowControl }, callerIp, state }: Run): string[] => [
  toTag.run(runId),
  toTag.url(url),
  toTag.state(state),
  ...new Set(labels.map(toTag.label)),
  ...(flowControl ? [toTag.key(flowControl.key)] : []),
  ...(callerIp === null ? [] : [toTag.callerIp(callerIp)]),
];

/** The tables whose rows can change their tags. */
export const retaggedTables: ReadonlySet<TableName> = new Set(["runs", "deadLetters"]);

/**
 * Removes everything that is kept of a finished message: the stored message, and its entries in the kept log.
 * Returns the number of these entries.
 */
export function forgetMessage(
  draft: Draft,
  message: { account: AccountId; messageId: MessageId; tags: readonly string[] },
): number {
  const kept = draft.listKeptLog(message.account, message.messageId);
  for (const { account, id } of kept) draft.drop("keptLog", account, id);
  dropStoredMessage(draft, message);
  return kept.length;
}

/**
 * Removes a stored message and its tags. The tags are passed, because the stored message need not be loaded.
 */
function dropStoredMessage(
  draft: Draft,
  message: { account: AccountId; messageId: MessageId; tags: readonly string[] },
): void {
  draft.drop("storedMessages", message.account, message.messageId);
  for (const tag of message.tags)
    draft.drop("tags", message.account, toTagId("born", tag, message.messageId));
}
