import { expect, test } from "vitest";
import { sumAttemptsByHost } from "../../../../src/engine/core/accounts/hostStatistics.ts";

const makeRow = (host: string, [duration = 0, time = 1]: number[], status: number | null) => ({
  time,
  status,
  error: status === null ? "timed out" : null,
  attempt: { startedAt: 0, connect: 1, firstByte: 1, duration, node: "nod_1", host },
});

test("an attempt that an operator ended does not count", () => {
  const ended = { ...makeRow("slow", [10, 9], null), error: "ended by operator" };
  expect(sumAttemptsByHost([ended])).toEqual([]);
  expect(sumAttemptsByHost([ended, makeRow("slow", [5], 200)])).toMatchObject([
    { attempts: 1, failures: 0, lastFailure: null },
  ]);
});

test("attempts are summed by host, and the host with the largest share of failures comes first", () => {
  const rows = [
    makeRow("good", [10], 200),
    makeRow("bad", [30, 5], 503),
    makeRow("bad", [10, 6], 200),
    makeRow("worst", [7, 2], null),
    makeRow("bad", [20, 4], 500),
    { time: 9, status: null, error: null },
  ];
  expect(sumAttemptsByHost(rows)).toEqual([
    {
      host: "worst",
      attempts: 1,
      failures: 1,
      p50: 7,
      p95: 7,
      lastFailure: { time: 2, status: null, error: "timed out" },
    },
    {
      host: "bad",
      attempts: 3,
      failures: 2,
      p50: 20,
      p95: 30,
      lastFailure: { time: 5, status: 503, error: null },
    },
    { host: "good", attempts: 1, failures: 0, p50: 10, p95: 10, lastFailure: null },
  ]);
});

test("a delivery that a step settled is an attempt that has not failed, without a duration", () => {
  const settled = { time: 3, status: null, error: null, settledHost: "app" };
  expect(sumAttemptsByHost([settled, settled, settled, makeRow("app", [40, 2], 503)])).toMatchObject([
    { host: "app", attempts: 4, failures: 1, p50: 40, p95: 40, lastFailure: { time: 2 } },
  ]);
  expect(sumAttemptsByHost([settled])).toMatchObject([{ attempts: 1, failures: 0, p50: null, p95: null }]);
});

test("half of the durations are at most the p50, and 95 % at most the p95", () => {
  const rows = Array.from({ length: 100 }, (_, index) => makeRow("a", [100 - index], 200));
  expect(sumAttemptsByHost(rows)).toMatchObject([{ p50: 50, p95: 95 }]);
  expect(sumAttemptsByHost([])).toEqual([]);
});

test("hosts with the same share are in the order of their failures, then of their names", () => {
  const rows = [
    makeRow("b", [1], 500),
    makeRow("a", [1], 500),
    makeRow("c", [1], 500),
    makeRow("c", [1], 500),
  ];
  expect(sumAttemptsByHost(rows).map(({ host }) => host)).toEqual(["c", "a", "b"]);
});
