import { describe, expect, test } from "vitest";
import { describeCalm, isUnused, pickShown } from "../../console/src/operations/overview/figures.ts";

const none = { count: 0 };
const held = { queue: none, key: none, endpoint: none, account: none, capacity: none };

describe("describeCalm", () => {
  test("claims only that messages are accepted if nothing waits and nothing is in flight", () => {
    expect(describeCalm({ held, inFlight: 0 })).toBe("New messages are accepted.");
  });

  test("counts what waits at limits, and what is being delivered", () => {
    expect(describeCalm({ held: { ...held, key: { count: 4 } }, inFlight: 4 })).toBe(
      "New messages are accepted. 4 wait at a limit. 4 are being delivered.",
    );
    expect(describeCalm({ held: { ...held, queue: { count: 1_000, more: true } }, inFlight: 1 })).toBe(
      "New messages are accepted. 1,000+ wait at a limit. 1 is being delivered.",
    );
  });
});

test("an account is not unused if it has a condition, or something happened within the last minutes", () => {
  const point = { start: 0, messages: 0, delivered: 0, failed: 0, cancelled: 0 };
  const unused = {
    ...{ conditions: [], unfinished: none, inFlight: 0, deadLetters: 0, minutes: [point] },
  } as unknown as Parameters<typeof isUnused>[0];
  const condition = { kind: "token.refused" } as (typeof unused.conditions)[number];
  expect(isUnused(unused)).toBe(true);
  expect(isUnused({ ...unused, conditions: [condition] })).toBe(false);
  expect(isUnused({ ...unused, deadLetters: 1 })).toBe(false);
  expect(isUnused({ ...unused, unfinished: { count: 1 } })).toBe(false);
  expect(isUnused({ ...unused, minutes: [{ ...point, failed: 1 }] })).toBe(false);
});

test("the point that has just begun is shown only if it has failures", () => {
  const quiet = { failed: 0, retried: 0 };
  expect(pickShown([quiet, quiet])).toEqual([quiet]);
  expect(pickShown([quiet, { failed: 1 }])).toHaveLength(2);
  expect(pickShown([quiet, { retried: 1 }])).toHaveLength(2);
  expect(pickShown([])).toEqual([]);
});
