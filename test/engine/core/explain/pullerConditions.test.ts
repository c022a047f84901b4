import { expect, test } from "vitest";
import { findGateCondition } from "../../../../src/engine/core/explain/gateConditions.ts";
import type { GateFact } from "../../../../src/engine/core/explain/gateConditions.ts";
import { minute } from "../../../../src/engine/core/values/time.ts";

const now = 1_800_000_000_000;
const origin = "https://worker.internal";

const find = (held: number, more: Partial<GateFact> = {}) => {
  const gate = { kind: "capacity", name: "worker.internal" } as const;
  const waiting = { held: { count: 3, more: false }, dueAt: now - 2 * minute };
  const fact = { gate, limiter: null, passedAt: null, flow: null, ...waiting, pulled: { origin, held } };
  return findGateCondition({ ...fact, ...more }, [], now);
};

test("messages to a pulled origin wait for its clients, and not for the capacity of the server", () => {
  expect(find(0)).toEqual([
    {
      ...{ kind: "puller.missing", level: "warning", subject: origin, by: null },
      ...{ since: now - 2 * minute, oldestDueAt: now - 2 * minute, count: 3 },
      text: "No client pulls from https://worker.internal: 3 messages wait, the oldest for 2 min",
    },
  ]);
  expect(find(0, { dueAt: now - minute + 1 })).toEqual([]);
});

test("clients that have too much work are a note", () => {
  expect(find(2)).toMatchObject([
    {
      ...{ kind: "puller.busy", level: "note", subject: origin },
      text: "The clients of https://worker.internal hold 2 messages: 3 messages wait, the oldest for 2 min",
    },
  ]);
});
