import { expect, test } from "vitest";
import {
  findResponse,
  groupByMessage,
  listAttempts,
  listEntries,
  listPhases,
  isReported,
  toHistory,
} from "../../console/src/pages/messages/logRows.ts";
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
  expect(rows.map((row) => listAttempts(row).length)).toEqual([2, 1, 0]);
  expect(rows.reduce((sum, { earlier }) => sum + 1 + earlier.length, 0)).toBe(page.length);
});

test("without groups, each entry is a row", () => {
  expect(listEntries(page).map(({ newest, earlier }) => [newest, earlier])).toEqual(
    page.map((one) => [one, []]),
  );
});

test("a row of a retry shows the response of the attempt before it", () => {
  const failed = { ...entry("msg_1", "ERROR", 6), responseStatus: 503 };
  const [row] = groupByMessage([entry("msg_1", "ACTIVE", 8), entry("msg_1", "RETRY", 6), failed]);
  expect(row && findResponse(row)).toBe(failed);
  const [fresh] = groupByMessage([entry("msg_1", "ACTIVE", 8), entry("msg_1", "CREATED", 7)]);
  expect(fresh && findResponse(fresh).state).toBe("ACTIVE");
});

test("a row of a failed message shows the response of the last attempt", () => {
  const failed = { ...entry("msg_1", "FAILED", 6), error: "the destination answered with status 500" };
  const last = { ...entry("msg_1", "ERROR", 6), responseStatus: 500 };
  const [row] = groupByMessage([failed, last, entry("msg_1", "ACTIVE", 4)]);
  expect(row && findResponse(row)).toBe(last);
  const [alone] = listEntries([failed]);
  expect(alone && findResponse(alone)).toBe(failed);
});

test("a history has one entry for each attempt, and each explanation once", () => {
  const failed = (time: number): LogEntry => ({
    ...entry("msg_1", "ERROR", time),
    explanation: "It is down.",
  });
  const history = toHistory([
    entry("msg_1", "FAILED", 6),
    failed(6),
    entry("msg_1", "ACTIVE", 5),
    entry("msg_1", "RETRY", 3),
    failed(3),
    entry("msg_1", "ACTIVE", 2),
    entry("msg_1", "CREATED", 1),
  ]);
  expect(history.map(({ state, time, explanation }) => [state, time, explanation])).toEqual([
    ["ERROR", 6, "It is down."],
    ["ERROR", 3, undefined],
    ["CREATED", 1, undefined],
  ]);
  expect(history.map(({ number, isLast }) => [number, isLast])).toEqual([
    [2, true],
    [1, undefined],
    [undefined, undefined],
  ]);
  const running = [entry("msg_1", "ACTIVE", 8), entry("msg_1", "RETRY", 6), failed(6)];
  expect(toHistory(running).map(({ state }) => state)).toEqual(["ACTIVE", "ERROR"]);
});

test("an attempt with a status and without times was reported by its receiver", () => {
  const attempt = { startedAt: 0, duration: 100, node: "nod_1" };
  const delivered = { ...entry("msg_1", "DELIVERED", 2), responseStatus: 200 };
  expect(isReported(delivered)).toBe(true);
  expect(isReported({ ...delivered, state: "ERROR", responseStatus: 500 })).toBe(true);
  expect(isReported({ ...delivered, attempt })).toBe(false);
  expect(isReported({ ...delivered, state: "ACKNOWLEDGING", responseStatus: 202 })).toBe(false);
  expect(isReported(entry("msg_1", "ERROR", 2))).toBe(false);
});

test("an attempt has its parts in their order, and only those that took time", () => {
  const attempt = { startedAt: 0, duration: 100, node: "nod_1" };
  const show = (more: object): string =>
    listPhases({ ...attempt, ...more })
      .map(({ name, span }) => `${name} ${span}`)
      .join(", ");
  expect(show({ connect: 30, lookup: 4, tcp: 12, tls: 14, firstByte: 60 })).toBe(
    "name lookup 4, connect 12, TLS 14, first byte 60, body 10",
  );
  expect(show({ connect: 40, tcp: 12, firstByte: 60 })).toBe("connect 12, connection 28, first byte 60");
  expect(show({ connect: 0, firstByte: 99 })).toBe("first byte 99, body 1");
  expect(show({ connect: 10 })).toBe("connection 10, no response 90");
  expect(show({})).toBe("connection 100");
  // Another request had begun to open the connection.
  expect(show({ connect: 10, lookup: 40, tcp: 9, firstByte: 90 })).toBe("connection 10, first byte 90");
});
