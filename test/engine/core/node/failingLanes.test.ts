import { expect, test } from "vitest";
import { failingAfter, FailingLanes, reduceShare } from "../../../../src/engine/core/node/failingLanes.ts";

const now = 1_000_000;

function failOften(lanes: FailingLanes, lane: string, times = failingAfter): void {
  for (let n = 0; n < times; n++) lanes.count(lane, { hasSucceeded: false, now });
}

test("a destination gets less only after enough failures in a row, while another one waits", () => {
  const lanes = new FailingLanes();
  failOften(lanes, "a", failingAfter - 1);
  lanes.at(now).noteWaiting("b");
  expect(lanes.at(now).isReduced("a")).toBe(false);
  failOften(lanes, "a", 1);
  expect(lanes.at(now).isReduced("a")).toBe(true);
  expect(lanes.at(now).isReduced("b")).toBe(false);
});

test("the first success ends it, and failures are counted from 0 again", () => {
  const lanes = new FailingLanes();
  failOften(lanes, "a");
  lanes.at(now).noteWaiting("b");
  lanes.count("a", { hasSucceeded: true, now });
  expect(lanes.at(now).isReduced("a")).toBe(false);
  failOften(lanes, "a", failingAfter - 1);
  expect(lanes.at(now).isReduced("a")).toBe(false);
});

test("it ends two seconds after the last message of another destination waited", () => {
  const lanes = new FailingLanes();
  failOften(lanes, "a");
  lanes.at(now).noteWaiting("b");
  expect(lanes.at(now + 1_999).isReduced("a")).toBe(true);
  expect(lanes.at(now + 2_000).isReduced("a")).toBe(false);
});

test("a clock that was set back does not prolong it", () => {
  const lanes = new FailingLanes();
  failOften(lanes, "a");
  lanes.at(now).noteWaiting("b");
  expect(lanes.at(now - 2_000).isReduced("a")).toBe(false);
});

test("destinations that fail do not make each other wait", () => {
  const lanes = new FailingLanes();
  failOften(lanes, "a");
  failOften(lanes, "b");
  lanes.at(now).noteWaiting("a");
  lanes.at(now).noteWaiting("b");
  expect([lanes.at(now).isReduced("a"), lanes.at(now).isReduced("b")]).toEqual([false, false]);
});

test("the oldest of 10,001 failing destinations is forgotten", () => {
  const lanes = new FailingLanes();
  for (let n = 0; n <= 10_000; n++) failOften(lanes, `lane ${n}`);
  lanes.at(now).noteWaiting("b");
  expect(lanes.at(now).isReduced("lane 0")).toBe(false);
  expect(lanes.at(now).isReduced("lane 1")).toBe(true);
  expect(lanes.at(now).isReduced("lane 10000")).toBe(true);
});

test.each([
  [0, 0],
  [1, 1],
  [15, 1],
  [16, 2],
  [512, 64],
])("a share of %d becomes %d: an eighth, and at least one delivery", (share, reduced) => {
  expect(reduceShare(share)).toBe(reduced);
});
