import { expect, test } from "vitest";
import { readHostState } from "../../../../src/engine/core/explain/hostState.ts";

const host = "a.example";

test.each([
  [null, "unknown"],
  [0, "healthy"],
  [1, "healthy"],
  [2, "unstable"],
  [49, "unstable"],
  [50, "failing"],
  [100, "failing"],
] as const)("a host of which %s of 100 attempts failed is %s", (failures, state) => {
  const attempts = failures === null ? null : { attempts: 100, failures };
  expect(readHostState({ host, attempts, conditions: [] })).toBe(state);
});

test.each([
  ["host.failing", host, "failing"],
  ["host.hanging", host, "hanging"],
  ["host.hanging", "b.example", "healthy"],
  ["queue.paused", host, "healthy"],
] as const)("a condition %s of %s makes the host %s", (kind, subject, state) => {
  const attempts = { attempts: 100, failures: 0 };
  expect(readHostState({ host, attempts, conditions: [{ kind, subject }] })).toBe(state);
});
