import { expect, test } from "vitest";
import { describeEarlier, groupByMessage, listEntries } from "../../console/src/pages/messages/logRows.ts";
import type { LogEntry } from "../../console/src/pages/messages/states.ts";

const entry = (messageId: string, state: LogEntry["state"], time: number): LogEntry =>
  ({ messageId, state, time }) as LogEntry;

/** A page of the log, newest first: one message is retried while another one is delivered. */
const page = [
  entry("msg_1", "DELIVERED", 9),
  entry("msg_1", "ACTIVE", 8),
  entry("msg_2", "DELIVERED", 7),
  entry("msg_1", "RETRY", 6),
  entry("msg_1", "ERROR", 6),
  entry("msg_2", "ACTIVE", 5),
  entry("msg_1", "ACTIVE", 4),
  entry("msg_3", "CREATED", 3),
];

test("the entries of a message are one row, with its newest entry, in the order of these", () => {
  const rows = groupByMessage(page);
  expect(rows.map(({ newest }) => [newest.messageId, newest.state])).toEqual([
    ["msg_1", "DELIVERED"],
    ["msg_2", "DELIVERED"],
    ["msg_3", "CREATED"],
  ]);
  expect(rows.map(describeEarlier)).toEqual(["Active × 2, Retry, Error", "Active", ""]);
  expect(rows.reduce((sum, { earlier }) => sum + 1 + earlier.length, 0)).toBe(page.length);
});

test("without groups, each entry is a row", () => {
  expect(listEntries(page).map(({ newest, earlier }) => [newest, earlier])).toEqual(
    page.map((one) => [one, []]),
  );
});
