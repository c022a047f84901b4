import type { Draft, Rows, TableName } from "../decision/command.ts";
import type { AccountId, Envelope, LogRow, MessageId } from "../model/message.ts";
import type { Run } from "../model/run.ts";
import { fingerprint } from "../values/fingerprint.ts";

// What lists are searched by. A mark says that a row of a list has something that people look for: a label, a queue, a
// key, a schedule, a URL group; of a dead letter also its URL and the like. A message with none of these leaves no mark.
// The draft makes and drops marks with the rows they stand for, so that no command has to think of them.

/** What can be searched: unfinished messages, births in the log, lines of the log, dead letters, runs. */
export type MarkedList = "unfinished" | "born" | "log" | "dlq" | "runs";

/** All marks of a list with the same text lie together, in the order of the rows they stand for. */
export const markId = (list: MarkedList, mark: string, id: string): string => `${markPrefix(list, mark)}${id}`;
/** Returns the mark in the id of one. Neither the list, nor the mark, nor the id of the row has a space. */
export const readMark = (id: string): string => id.slice(id.indexOf(" ") + 1, id.lastIndexOf(" "));
/** Returns the beginning of the ids of all marks of a list that begin with the same text. */
export const markStart = (list: MarkedList, start: string): string => `${list} ${start}`;
export const markPrefix = (list: MarkedList, mark: string): string => `${list} ${mark} `;

/** A mark. White space and control characters are escaped, so that no mark is the beginning of another one. */
export const markOf = {
  label: (label: string) => `label:${escaped(label)}`,
  queue: (name: string) => `queue:${escaped(name)}`,
  key: (name: string) => `key:${escaped(name)}`,
  schedule: (id: string) => `schedule:${escaped(id)}`,
  group: (name: string) => `group:${escaped(name)}`,
  /** A fingerprint, because a URL may be longer than a key. Two may share it: whoever searches looks at the row as well. */
  url: (url: string) => `url:${fingerprint(url)}`,
  callerIp: (ip: string) => `ip:${escaped(ip)}`,
  status: (status: number) => `status:${status}`,
  message: (id: MessageId) => `message:${id}`,
  state: (state: string) => `state:${state}`,
  run: (runId: string) => `run:${escaped(runId)}`,
  /** That it is of a workflow run. */
  workflow: "workflow",
} as const;

const escaped = (text: string): string =>
  // oxlint-disable-next-line no-control-regex -- some databases take no text with a NUL or half a character in it
  text.replace(/[%\s\0-\x1f\x7f\p{Surrogate}]/gu, (letter) => `%${letter.charCodeAt(0).toString(16)}.`);

type Origin = Pick<Envelope, "labels" | "queue" | "flowControl" | "scheduleId" | "group">;

/** The marks of a message, which all that is told of it has as well. */
export const marksOf = ({ labels, queue, flowControl, scheduleId, group }: Origin): string[] => [
  ...new Set(labels.map(markOf.label)),
  ...(queue === null ? [] : [markOf.queue(queue)]),
  ...(flowControl ? [markOf.key(flowControl.key)] : []),
  ...(scheduleId === null ? [] : [markOf.schedule(scheduleId)]),
  ...(group === null ? [] : [markOf.group(group)]),
];

/** States that are rare enough to be searched by: those of a message that comes through at once are not. */
export const markedStates: ReadonlySet<string> = new Set(["RETRY", "ERROR", "FAILED", "CANCEL_REQUESTED", "CANCELLED"]);

/** The ids of the marks that come and go with a row, for each table that has any. */
export const marksOfRow: { readonly [T in TableName]?: (row: Rows[T]) => readonly string[] } = {
  messages: ({ id, marks }) => marks.map((mark) => markId("unfinished", mark, id)),
  envelopes: (envelope) => marksOf(envelope).map((mark) => markId("born", mark, envelope.id)),
  log: (row) => marksOfEntry(row),
  keptLog: (row) => marksOfEntry(row),
  deadLetters: ({ id, marks, messageId, status }) =>
    [...marks, markOf.message(messageId), ...(status === null ? [] : [markOf.status(status)])].map((mark) => markId("dlq", mark, id)),
  runs: (run) => marksOfRun(run).map((mark) => markId("runs", mark, run.id)),
};

const marksOfEntry = ({ id, marks, states }: LogRow): string[] =>
  [...marks, ...states.filter((state) => markedStates.has(state)).map(markOf.state)].map((mark) => markId("log", mark, id));

const marksOfRun = ({ runId, url, labels, settings: { flowControl }, callerIp, state }: Run): string[] => [
  ...[markOf.run(runId), markOf.url(url), markOf.state(state)],
  ...new Set(labels.map(markOf.label)),
  ...(flowControl ? [markOf.key(flowControl.key)] : []),
  ...(callerIp === null ? [] : [markOf.callerIp(callerIp)]),
];

/** Tables whose rows change what they are searched by. */
export const remarked: ReadonlySet<TableName> = new Set(["runs"]);

/**
 * Removes all that is kept of a finished message: its envelope, and its entries in the kept log. Returns the number of these entries.
 * The caller has asked for them (`Needs.keptOf`).
 */
export function forgetMessage(draft: Draft, of: { account: AccountId; messageId: MessageId; marks: readonly string[] }): number {
  const kept = draft.keptOf(of.account, of.messageId);
  for (const { account, id } of kept) draft.drop("keptLog", account, id);
  dropEnvelope(draft, of);
  return kept.length;
}

/** Removes the envelope of a message, of which nothing else is left but `marks`. */
function dropEnvelope(draft: Draft, of: { account: AccountId; messageId: MessageId; marks: readonly string[] }): void {
  draft.drop("envelopes", of.account, of.messageId);
  for (const mark of of.marks) draft.drop("marks", of.account, markId("born", mark, of.messageId));
}
