import { expect, test } from "vitest";
import { findGateCondition } from "../../../src/engine/core/explain/gateConditions.ts";
import { minute } from "../../../src/engine/core/values/time.ts";
import { alertEvents } from "../../../src/operations/alerts/alert.ts";
import { findNotices } from "../../../src/operations/alerts/pickAlerts.ts";

const now = 1_800_000_000_000;

test("an alert is created if nobody has pulled for long enough, and none if a client has", () => {
  const list = (holds: readonly number[], ago: number): string[] => {
    const pulled = { origin: "https://worker.internal", holds };
    const gate = { kind: "capacity", name: "worker.internal" } as const;
    const waiting = { held: { count: 1, more: false }, dueAt: now - ago, passedAt: null, flow: null };
    const conditions = findGateCondition({ gate, limiter: null, ...waiting, pulled }, [], now);
    const account = { alerts: { url: "https://ops.example/", after: 5 * minute, events: alertEvents } };
    const { notices } = findNotices({ account, conditions, deadLetters: [], log: [], earlier: [], now });
    return notices.map(({ event, subject }) => `${event} ${subject}`);
  };
  expect(list([], 6 * minute)).toEqual(["puller.missing https://worker.internal"]);
  expect(list([], 4 * minute)).toEqual([]);
  expect(list([now - minute], 60 * minute)).toEqual([]);
  // A client that died holds its message until the end of its lease.
  expect(list([now - 10 * minute], 6 * minute)).toEqual(["puller.missing https://worker.internal"]);
});
