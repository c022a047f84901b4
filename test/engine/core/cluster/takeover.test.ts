import { expect, test } from "vitest";
import type { MembershipHistory } from "../../../../src/engine/core/cluster/takeover.ts";
import {
  takeoverDelay,
  hasOtherNodes,
  recordTakeover,
  nextCheckDelay,
  observeMemberships,
  membershipLossTimeout,
} from "../../../../src/engine/core/cluster/takeover.ts";

type Seen = [at: number, membership: number, isAlive: boolean, server?: string];

/** Returns which checks of one other node end its leases. */
function endsAt(looks: readonly Seen[]): number[] {
  let known: MembershipHistory | null = null;
  return looks.flatMap(([at, membership, isAlive, server = "one"]) => {
    const looked = observeMemberships(known, {
      server,
      memberships: [{ node: "nod_b", membership, isAlive }],
      at,
    });
    known = looked.watch;
    return looked.gone.length > 0 ? [at] : [];
  });
}

test("leases end when the membership was seen alive, and then gone for 2 s", () => {
  const ends = endsAt([
    [-1_500, 1, true],
    [0, 1, true],
    [1_000, 1, false],
    [2_000, 1, false],
    [2_999, 1, false],
    [3_000, 1, false],
    [4_000, 1, false],
  ]);
  expect(ends).toEqual([3_000, 4_000]);
});

test("a membership that was lost and taken again counts as new, even if the loss was not seen", () => {
  const seen: Seen[] = [
    [0, 1, true],
    [1_000, 1, false],
    [2_000, 1, true],
    [3_000, 1, false],
    [4_000, 1, false],
  ];
  expect(endsAt(seen)).toEqual([]);
  // The second membership was alive only between two checks.
  const unseen: Seen[] = [
    [0, 1, true],
    [1_000, 1, false],
    [2_000, 2, false],
    [9_000, 2, false],
    [19_000, 2, false],
  ];
  expect(endsAt(unseen)).toEqual([]);
});

test("after a restart or failover of the database, leases only expire until a membership is seen", () => {
  const restarted: Seen[] = [
    [0, 1, true],
    [1_000, 1, false],
    [3_500, 1, false, "two"],
    [8_000, 1, false, "two"],
  ];
  expect(endsAt(restarted)).toEqual([]);
  expect(
    endsAt([
      ...restarted,
      [8_500, 2, true, "two"],
      [10_000, 2, true, "two"],
      [11_000, 2, false, "two"],
      [13_000, 2, false, "two"],
    ]),
  ).toEqual([13_000]);
});

test("a node that is seen for the first time, or not at all, keeps its leases", () => {
  expect(
    endsAt([
      [0, 1, false],
      [9_000, 1, false],
    ]),
  ).toEqual([]);
  const { watch: seen } = observeMemberships(null, {
    server: "one",
    memberships: [{ node: "nod_b", membership: 1, isAlive: false }],
    at: 0,
  });
  expect(hasOtherNodes(seen)).toBe(false);
  expect(hasOtherNodes(null)).toBe(false);
});

test("a membership seen for less than 1.5 s is not taken over: its node may know no other node", () => {
  const looks = (heldUntil: number): Seen[] => [
    [0, 1, true],
    [heldUntil, 1, true],
    [heldUntil + 500, 1, false],
    [heldUntil + 2_500, 1, false],
  ];
  expect(endsAt(looks(1_499))).toEqual([]);
  expect(endsAt(looks(1_500))).toEqual([4_000]);
});

test("a node ends its deliveries half a second before others may send them", () => {
  expect(takeoverDelay - membershipLossTimeout).toBe(500);
});

test("a membership is taken over three times, 2 s apart, and a later one is counted separately", () => {
  const look = (at: number, membership: number, isAlive: boolean) => ({
    server: "one",
    memberships: [{ node: "nod_b", membership, isAlive }],
    at,
  });
  const membership = { node: "nod_b", membership: 1 };
  let seen = observeMemberships(
    observeMemberships(null, look(-1_500, 1, true)).watch,
    look(0, 1, true),
  ).watch;
  const ends: number[] = [];
  for (let at = 1_000; at <= 20_000; at += 500) {
    const looked = observeMemberships(seen, look(at, 1, false));
    seen = looked.watch;
    if (looked.gone.length === 0) continue;
    ends.push(at);
    seen = recordTakeover(seen, membership, at);
  }
  expect(ends).toEqual([3_000, 5_000, 7_000]);
  seen = observeMemberships(seen, look(30_000, 2, true)).watch;
  expect(recordTakeover(seen, membership, 30_000).seen.size).toBe(1);
  seen = observeMemberships(
    observeMemberships(seen, look(31_500, 2, true)).watch,
    look(32_000, 2, false),
  ).watch;
  expect(observeMemberships(seen, look(34_000, 2, false)).gone).toEqual([{ node: "nod_b", membership: 2 }]);
});

test("the next check is not later than the moment at which a membership has been gone for 2 s", () => {
  const of = (goneAt: number | null): MembershipHistory => ({
    server: "one",
    seen: new Map([["nod_b", { membership: 1, aliveSince: 0, aliveFor: 2_000, goneAt, takeovers: 0 }]]),
  });
  expect(nextCheckDelay(null, 5_000, 500)).toBe(500);
  expect(nextCheckDelay(of(null), 5_000, 500)).toBe(500);
  expect(nextCheckDelay(of(3_200), 5_000, 500)).toBe(200);
  expect(nextCheckDelay(of(4_900), 5_000, 500)).toBe(500);
  // Its leases have ended already, unless the takeover failed.
  expect(nextCheckDelay(of(1_000), 5_000, 500)).toBe(500);
});
