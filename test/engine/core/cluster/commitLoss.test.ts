import { expect, test } from "vitest";
import { detectLoss, nodeRetention } from "../../../../src/engine/core/cluster/commitLoss.ts";

const acknowledged = { counter: 7, usedAt: 10_000 };

test("a counter below the acknowledged one is a loss, from the time of the row to the last commit", () => {
  expect(detectLoss(acknowledged, { counter: 5, usedAt: 9_000 }, 11_000)).toEqual({
    batches: 2,
    from: 9_000,
    to: 10_000,
  });
  expect(detectLoss(acknowledged, null, 11_000)).toEqual({ batches: 7, from: null, to: 10_000 });
});

test("nothing is lost while the counter has reached the acknowledged one", () => {
  expect(detectLoss(null, null, 11_000)).toBeNull();
  expect(detectLoss(null, { counter: 5, usedAt: 9_000 }, 11_000)).toBeNull();
  expect(detectLoss(acknowledged, acknowledged, 11_000)).toBeNull();
  // The outcome of the eighth batch was not known, but it was stored.
  expect(detectLoss(acknowledged, { counter: 8, usedAt: 10_500 }, 11_000)).toBeNull();
});

test("a row that may have been removed for its age, after 30 days, does not count as a loss", () => {
  expect(nodeRetention).toBe(2_592_000_000);
  expect(detectLoss(acknowledged, null, 10_000 + nodeRetention)).not.toBeNull();
  expect(detectLoss(acknowledged, null, 10_001 + nodeRetention)).toBeNull();
});
