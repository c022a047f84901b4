import { expect, test } from "vitest";
import type { NodeRecord } from "../../../../src/engine/core/cluster/nodeState.ts";
import { readNodeStates } from "../../../../src/engine/core/cluster/nodeState.ts";

const record = (id: string, membership: number, isAlive: boolean): NodeRecord => ({
  id,
  version: "",
  startedAt: 1,
  changedAt: null,
  membership,
  isAlive,
});

/** Returns the states of nodes, with the node `self` first. */
const states = (...records: NodeRecord[]): string[] => [...readNodeStates(records, "self").values()];

test("a node runs with its membership, is lost without it, and has stopped if it ended it", () => {
  expect(
    states(record("self", 3, true), record("a", 1, true), record("b", 2, false), record("c", 0, false)),
  ).toEqual(["running", "running", "lost", "stopped"]);
});

test("the node that asks runs, also while it is without its membership", () => {
  expect(states(record("self", 3, false))).toEqual(["running"]);
});

test("without memberships, the state of other nodes is unknown", () => {
  expect(states(record("self", 0, false), record("a", 0, false))).toEqual(["running", "unknown"]);
});
