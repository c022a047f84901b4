import { describe, expect, test } from "vitest";
import { countSteps, findBriefReason } from "../../../../src/engine/core/explain/runProgress.ts";
import type { MessageState } from "../../../../src/engine/core/model/messageState.ts";
import type { Waiter } from "../../../../src/engine/core/model/run.ts";

test("a step counts once, whatever its history has, and the payload is not counted", () => {
  const ids = ["i", "p1", "r1", "r2", "p3", "c4", "f4", "x9"].map((part) => `run_1/${part}`);
  expect(countSteps(ids)).toEqual({ done: 2, open: 2 });
  expect(countSteps([])).toEqual({ done: 0, open: 0 });
});

describe("why a run of a list waits", () => {
  const waiter = (kind: Waiter["kind"], more: object = {}): Waiter =>
    ({
      ...{ kind, event: "paid", step: { stepName: "pay" }, child: null, createdAt: 5, dueAt: 9 },
      ...more,
    }) as unknown as Waiter;
  const state = (more: Partial<MessageState>): MessageState =>
    ({ state: "pending", attempts: 0, dueAt: 50, waitlist: null, leasedBy: null, ...more }) as MessageState;

  test("is its oldest waiter, before any message", () => {
    const waiters = [waiter("webhook", { createdAt: 7 }), waiter("event")];
    expect(findBriefReason(waiters, state({}), 10)).toEqual({
      ...{ reason: "event", event: "paid", stepName: "pay", since: 5, until: 9 },
    });
    const child = { runId: "wfr_2" };
    expect(findBriefReason([waiter("invoke", { child, dueAt: null })], undefined, 10)).toEqual({
      ...{ reason: "run", runId: "wfr_2", stepName: "pay", since: 5 },
    });
  });

  test("or else the message that continues it", () => {
    expect(findBriefReason([], state({}), 10)).toEqual({ reason: "sleep", until: 50 });
    expect(findBriefReason([], state({ attempts: 2 }), 10)).toEqual({ reason: "retry", until: 50 });
    expect(findBriefReason([], state({ state: "active", startedAt: 8 }), 10)).toEqual({
      ...{ reason: "sending", since: 8 },
    });
    const held = state({ state: "held", dueAt: null, waitlist: "queue:parcels" });
    expect(findBriefReason([], held, 10)).toEqual({ reason: "held", gate: "queue" });
    expect(findBriefReason([], state({ state: "settled" }), 10)).toBeNull();
    expect(findBriefReason([], state({ dueAt: 10 }), 10)).toBeNull();
    expect(findBriefReason([], undefined, 10)).toBeNull();
  });
});
