import { expect, test } from "vitest";
import { listActivityMarks } from "../../../../src/engine/core/explain/activityMarks.ts";

const by = { kind: "operator", address: null } as const;
const entry = (what: string, object: string | null, time: number) => ({
  ...{ account: "acc", id: String(time), time, by, what, object },
});
const node = (id: string, startedAt: number, version = "1.0.0") => ({
  ...{ id, startedAt, version, changedAt: null, membership: 0, isAlive: false },
});

test("pauses, changes and starts of servers are marks, in order, with new versions by name", () => {
  const entries = [
    entry("queue.resume", "mail", 50),
    entry("queue.pause", "mail", 30),
    entry("flowControl.pin", "shop", 20),
    entry("schedule.create", "daily", 15),
    entry("queue.pause", "old", 5),
  ];
  const nodes = [node("c", 40, "1.1.0"), node("a", 1), node("b", 25)];
  expect(listActivityMarks(entries, nodes, 10)).toEqual([
    { at: 15, kind: "change", text: "schedule daily created" },
    { at: 20, kind: "change", text: "key shop changed" },
    { at: 25, kind: "start", text: "a server started" },
    { at: 30, kind: "pause", text: "queue mail paused" },
    { at: 40, kind: "start", text: "version 1.1.0 started" },
    { at: 50, kind: "resume", text: "queue mail resumed" },
  ]);
});

test("changes that affect no delivery are not marks", () => {
  const entries = [entry("token.create", "tok_1", 20), entry("dlq.replay", "x", 20), entry("odd", null, 20)];
  expect(listActivityMarks(entries, [], 10)).toEqual([]);
});
