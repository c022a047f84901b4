import { expect, test } from "vitest";
import type { SessionHistory } from "../../../../src/engine/core/cluster/takeover.ts";
import {
  takeoverDelay,
  hasOtherNodes,
  recordTakeover,
  nextCheckDelay,
  observeSessions,
  sessionLossTimeout,
} from "../../../../src/engine/core/cluster/takeover.ts";

type Seen = [at: number, session: number, isAlive: boolean, server?: string];

/** Returns which checks of one other node end its leases. */
function endsAt(looks: readonly Seen[]): number[] {
  let known: SessionHistory | null = null;
  return looks.flatMap(([at, session, isAlive, server = "one"]) => {
    const looked = observeSessions(known, { server, sessions: [{ node: "nod_b", session, isAlive }], at });
    known = looked.watch;
    return looked.gone.length > 0 ? [at] : [];
  });
}

test("leases end when the session lease was seen held, and then gone for 2 s", () => {
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

test("a session lease that was lost and taken again counts as new, even if the loss was not seen", () => {
  const seen: Seen[] = [
    [0, 1, true],
    [1_000, 1, false],
    [2_000, 1, true],
    [3_000, 1, false],
    [4_000, 1, false],
  ];
  expect(endsAt(seen)).toEqual([]);
  // The second session was held only between two checks.
  const unseen: Seen[] = [
    [0, 1, true],
    [1_000, 1, false],
    [2_000, 2, false],
    [9_000, 2, false],
    [19_000, 2, false],
  ];
  expect(endsAt(unseen)).toEqual([]);
});

test("after a restart or failover of the database, leases only expire until a session is seen", () => {
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
  const { watch: seen } = observeSessions(null, {
    server: "one",
    sessions: [{ node: "nod_b", session: 1, isAlive: false }],
    at: 0,
  });
  expect(hasOtherNodes(seen)).toBe(false);
  expect(hasOtherNodes(null)).toBe(false);
});

test("a session seen for less than 1.5 s is not taken over: its node may know no other node", () => {
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
  expect(takeoverDelay - sessionLossTimeout).toBe(500);
});

test("a session is taken over three times, 2 s apart, and a later session is counted separately", () => {
  const look = (at: number, session: number, isAlive: boolean) => ({
    server: "one",
    sessions: [{ node: "nod_b", session, isAlive }],
    at,
  });
  const session = { node: "nod_b", session: 1 };
  let seen = observeSessions(observeSessions(null, look(-1_500, 1, true)).watch, look(0, 1, true)).watch;
  const ends: number[] = [];
  for (let at = 1_000; at <= 20_000; at += 500) {
    const looked = observeSessions(seen, look(at, 1, false));
    seen = looked.watch;
    if (looked.gone.length === 0) continue;
    ends.push(at);
    seen = recordTakeover(seen, session, at);
  }
  expect(ends).toEqual([3_000, 5_000, 7_000]);
  seen = observeSessions(seen, look(30_000, 2, true)).watch;
  expect(recordTakeover(seen, session, 30_000).seen.size).toBe(1);
  seen = observeSessions(observeSessions(seen, look(31_500, 2, true)).watch, look(32_000, 2, false)).watch;
  expect(observeSessions(seen, look(34_000, 2, false)).gone).toEqual([{ node: "nod_b", session: 2 }]);
});

test("the next check is not later than the moment at which a session has been gone for 2 s", () => {
  const of = (goneAt: number | null): SessionHistory => ({
    server: "one",
    seen: new Map([["nod_b", { session: 1, heldAt: 0, heldFor: 2_000, goneAt, takeovers: 0 }]]),
  });
  expect(nextCheckDelay(null, 5_000, 500)).toBe(500);
  expect(nextCheckDelay(of(null), 5_000, 500)).toBe(500);
  expect(nextCheckDelay(of(3_200), 5_000, 500)).toBe(200);
  expect(nextCheckDelay(of(4_900), 5_000, 500)).toBe(500);
  // Its leases have ended already, unless the takeover failed.
  expect(nextCheckDelay(of(1_000), 5_000, 500)).toBe(500);
});
