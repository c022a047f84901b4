import { expect, test } from "vitest";
import { findGateCondition } from "../../../../src/engine/core/explain/gateConditions.ts";
import type { GateFact } from "../../../../src/engine/core/explain/gateConditions.ts";
import { minute } from "../../../../src/engine/core/values/time.ts";

const now = 1_800_000_000_000;
const origin = "https://worker.internal";

/** `holds`: when the attempts that clients hold began. */
const find = (holds: readonly number[] | null, more: Partial<GateFact> = {}) => {
  const gate = { kind: "capacity", name: "worker.internal" } as const;
  const waiting = { held: { count: 3, more: false }, dueAt: now - 2 * minute };
  const fact = { gate, limiter: null, passedAt: null, flow: null, ...waiting, pulled: { origin, holds } };
  return findGateCondition({ ...fact, ...more }, [], now);
};

test("messages to a pulled origin wait for its clients, and not for the capacity of the server", () => {
  expect(find([])).toEqual([
    {
      ...{ kind: "puller.missing", level: "warning", subject: origin, by: null },
      ...{ since: now - 2 * minute, oldestDueAt: now - 2 * minute, count: 3 },
      text: "No client pulls from https://worker.internal: 3 messages wait, the oldest for 2 min",
    },
  ]);
  expect(find([], { dueAt: now - minute + 1 })).toEqual([]);
});

test("clients that have pulled since the oldest message was due have too much work, which is a note", () => {
  expect(find([now - 5 * minute, now - 2 * minute])).toMatchObject([
    {
      ...{ kind: "puller.busy", level: "note", subject: origin },
      text: "The clients of https://worker.internal hold 2 messages: 3 messages wait, the oldest for 2 min",
    },
  ]);
});

test("a client that has pulled nothing since the oldest message was due may be dead", () => {
  expect(find([now - 2 * minute - 1, now - 60 * minute])).toMatchObject([
    {
      ...{ kind: "puller.missing", level: "warning", subject: origin, count: 3 },
      text:
        "No client pulls from https://worker.internal: 3 messages wait, the oldest for 2 min. " +
        "Clients still hold 2 messages from before",
    },
  ]);
  expect(find([now - 3 * minute])).toMatchObject([
    { text: expect.stringContaining("2 min. Clients still hold 1 message from before") },
  ]);
});

test("if too many messages are in flight to count them, no number is stated", () => {
  expect(find(null)).toMatchObject([
    {
      ...{ kind: "puller.busy", level: "note", subject: origin },
      text: "The clients of https://worker.internal may be busy: 3 messages wait, the oldest for 2 min",
    },
  ]);
});
