import { expect, test } from "vitest";
import { findBrokenShare } from "./capacityShares.ts";

const capacity = { total: 16, perHost: 12, bytes: { total: 1_600, perBatch: 100 } };
const nothing = { onNode: 0, toHost: 0, ofAccount: 0 };

const examples: readonly [what: string, calls: typeof nothing, bytes: typeof nothing, rule: RegExp | null][] =
  [
    ["the first call", nothing, nothing, null],
    [
      "a call to a host with half of the capacity",
      { onNode: 8, toHost: 8, ofAccount: 8 },
      nothing,
      /was still/,
    ],
    ["a call to a host with less than half", { onNode: 7, toHost: 7, ofAccount: 7 }, nothing, null],
    ["more calls than the node has", { onNode: 16, toHost: 0, ofAccount: 0 }, nothing, /of a node/],
    ["the last eighth for an account with little", { onNode: 15, toHost: 0, ofAccount: 1 }, nothing, null],
    [
      "the last eighth for an account with an eighth",
      { onNode: 14, toHost: 0, ofAccount: 2 },
      nothing,
      /calls to/,
    ],
    ["more memory than was free", nothing, { onNode: 800, toHost: 800, ofAccount: 800 }, /memory as was/],
    ["the last eighth of memory", nothing, { onNode: 1_400, toHost: 0, ofAccount: 200 }, /of the memory/],
  ];

test.each(examples)("%s breaks only the rule that it should", (...[, calls, bytes, rule]) => {
  const broken = findBrokenShare(capacity, { calls, bytes: { ...bytes, size: 1 } });
  if (rule === null) expect(broken).toBeNull();
  else expect(broken).toMatch(rule);
});

test("a host does not exceed its maximum on an idle node", () => {
  const calls = { onNode: 3, toHost: 3, ofAccount: 3 };
  expect(findBrokenShare({ ...capacity, perHost: 3 }, { calls, bytes: { ...nothing, size: 1 } })).toMatch(
    /maximum of a host/,
  );
});

test("a body of an account that holds an eighth of the memory leaves the last eighth free", () => {
  const bytes = { onNode: 1_000, toHost: 0, ofAccount: 200 };
  const find = (size: number, ofAccount: number): string | null =>
    findBrokenShare(capacity, { calls: nothing, bytes: { ...bytes, ofAccount, size } });
  expect(find(400, 200)).toBeNull();
  expect(find(401, 200)).toMatch(/of the memory/);
  expect(find(1_000, 199)).toBeNull();
});
