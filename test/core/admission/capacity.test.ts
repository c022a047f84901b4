import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { DeliveryCapacity, TakenCapacity } from "../../../src/core/admission/capacity.ts";
import { hasCapacity, laneName, noCapacity } from "../../../src/core/admission/capacity.ts";
import { leavesReserve } from "../../../src/core/fairness/lastPart.ts";

const lane = laneName("acme", "shop.example");

/** How many deliveries to a host begin when it has endless work and nothing ends. */
function fill(hands: DeliveryCapacity, lane: string): number {
  let count = 0;
  while (hasCapacity(hands, { all: count, lane: count, bytes: 0, laneBytes: 0 }, lane)) count++;
  return count;
}

const handsOf = (total: number, busy: Record<string, number>, perHost = Infinity): DeliveryCapacity => ({
  free: total - Object.values(busy).reduce((sum, count) => sum + count, 0),
  perHost,
  backlog: false,
  runningByLane: new Map(Object.entries(busy)),
  bytes: { free: 1, perBatch: 1, byLane: {} },
});

const nothing: TakenCapacity = { all: 0, lane: 0, bytes: 0, laneBytes: 0 };

describe("of 60 hands", () => {
  test("the first slow host gets half, the second a third of all, as long as the first is", () => {
    expect(fill(handsOf(60, {}), "a")).toBe(30);
    expect(fill(handsOf(60, { a: 30 }), "b")).toBe(15);
    expect(fill(handsOf(60, { a: 20 }), "b")).toBe(20);
    expect(fill(handsOf(60, { a: 20, b: 20 }), "c")).toBe(10);
  });

  test("a newcomer finds one even then", () => {
    const busy: Record<string, number> = {};
    for (const host of ["a", "b", "c", "d"]) busy[host] = fill(handsOf(60, busy), host);
    expect(busy).toEqual({ a: 30, b: 15, c: 8, d: 4 });
    expect(hasCapacity(handsOf(60, busy), nothing, "e")).toBe(true);
  });

  test("no host gets more than it may", () => {
    expect(fill(handsOf(60, {}, 10), "a")).toBe(10);
    expect(fill(handsOf(60, { a: 10 }, 10), "a")).toBe(0);
  });
});

describe("of 60 bytes", () => {
  /** How many bytes a host takes up with endless bodies of one size. */
  function fillBytes(byLane: Record<string, number>, lane: string, size: number): number {
    const total = Object.values(byLane).reduce((sum, bytes) => sum + bytes, 0);
    const hands: DeliveryCapacity = { ...handsOf(1000, {}), bytes: { free: 60 - total, perBatch: 60, byLane } };
    let count = 0;
    while (hasCapacity(hands, { all: count, lane: count, bytes: count * size, laneBytes: count * size }, lane)) count++;
    return count * size;
  }

  test("the first slow host gets half, the second a third, and a newcomer some", () => {
    expect(fillBytes({}, "a", 1)).toBe(30);
    expect(fillBytes({ a: 20 }, "b", 1)).toBe(20);
    expect(fillBytes({ a: 30, b: 15, c: 8, d: 4 }, "e", 1)).toBeGreaterThan(0);
  });

  test("the last one may go beyond, so that a large one finds its turn too", () => {
    expect(fillBytes({}, "a", 1_000)).toBe(1_000);
    expect(fillBytes({ a: 59 }, "b", 1_000)).toBe(1_000);
    expect(fillBytes({ a: 60 }, "b", 1)).toBe(0);
    expect(fillBytes({ a: 1_000 }, "b", 1)).toBe(0);
  });

  test("those that were promised count, of other hosts too", () => {
    const hands: DeliveryCapacity = { ...handsOf(1000, {}), bytes: { free: 60, perBatch: 60, byLane: {} } };
    expect(hasCapacity(hands, { all: 1, lane: 0, bytes: 59, laneBytes: 0 }, "a")).toBe(true);
    expect(hasCapacity(hands, { all: 1, lane: 0, bytes: 60, laneBytes: 0 }, "a")).toBe(false);
    expect(hasCapacity(hands, { all: 1, lane: 1, bytes: 30, laneBytes: 30 }, "a")).toBe(false);
  });
});

test("one hand serves any host, and none serves nobody", () => {
  expect(fill(handsOf(1, {}), lane)).toBe(1);
  expect(fill(handsOf(0, {}), lane)).toBe(0);
  expect(fill(noCapacity, lane)).toBe(0);
});

test("the same host of two accounts is two destinations", () => {
  expect(laneName("acme", "shop.example")).not.toBe(laneName("umbrella", "shop.example"));
});

test("never are more taken than there are, nor more by one host than by its share", () => {
  const order = fc.array(fc.constantFrom("a", "b", "c"), { maxLength: 100 });
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 40 }), fc.integer({ min: 1, max: 40 }), order, (total, perHost, wishes) => {
      const busy: Record<string, number> = {};
      for (const host of wishes) {
        const running = busy[host] ?? 0;
        if (hasCapacity(handsOf(total, busy, perHost), nothing, host)) busy[host] = running + 1;
      }
      const counts = Object.values(busy);
      const taken = counts.reduce((sum, count) => sum + count, 0);
      expect(taken).toBeLessThanOrEqual(total);
      for (const count of counts) expect(count).toBeLessThanOrEqual(Math.min(perHost, Math.ceil(total / 2)));
    }),
  );
});

describe("of 64 hands, of which the last eighth is 8", () => {
  /** Fills as many hosts as there are, one after another, each with as many deliveries as it may have. */
  function fillHosts(account: string, hosts: number, runningByLane: Map<string, number>, byAccount: Map<string, number>): number {
    let count = 0;
    const total = 64;
    for (let host = 0; host < hosts; host++) {
      const lane = laneName(account, `h${host}.example`);
      for (;;) {
        const free = total - [...byAccount.values()].reduce((sum, held) => sum + held, 0);
        const heldByAccount = { deliveries: { total, byAccount }, bytes: { total: 1, byAccount: new Map<string, number>() } };
        const bytes = { free: 1, perBatch: 1, byLane: {} };
        if (!hasCapacity({ free, perHost: 64, backlog: false, runningByLane, bytes, heldByAccount }, nothing, lane)) break;
        runningByLane.set(lane, (runningByLane.get(lane) ?? 0) + 1);
        byAccount.set(account, (byAccount.get(account) ?? 0) + 1);
        count++;
      }
    }
    return count;
  }

  test("an account with 3,000 hosts that hang gets all but the last 8, and another one each of those", () => {
    const busy = new Map<string, number>();
    const byAccount = new Map<string, number>();
    expect(fillHosts("hostile", 3_000, busy, byAccount)).toBe(56);
    expect(fillHosts("acme", 3_000, busy, byAccount)).toBe(8);
    expect(fillHosts("umbrella", 3_000, busy, byAccount)).toBe(0);
  });

  test("an account that holds an eighth or less is not held back", () => {
    const byAccount = new Map([["a", 50]]);
    expect(fillHosts("b", 3_000, new Map(), byAccount)).toBe(8);
    expect(leavesReserve({ total: 64, free: 1 }, 7, 1)).toBe(true);
    expect(leavesReserve({ total: 64, free: 8 }, 8, 1)).toBe(false);
    expect(leavesReserve({ total: 64, free: 9 }, 8, 1)).toBe(true);
  });

  test("of fewer than 8 hands there is no last eighth", () => {
    for (const total of [1, 7]) expect(leavesReserve({ total, free: 1 }, total - 1, 1)).toBe(true);
    expect(leavesReserve({ total: 8, free: 1 }, 7, 1)).toBe(false);
  });

  test("hands that a batch has promised to other hosts of the account count", () => {
    const heldByAccount = {
      deliveries: { total: 64, byAccount: new Map([["acme", 30]]) },
      bytes: { total: 64, byAccount: new Map<string, number>() },
    };
    const hands: DeliveryCapacity = { ...handsOf(64, {}), free: 34, bytes: { free: 64, perBatch: 64, byLane: {} }, heldByAccount };
    const taken = { ...nothing, all: 26, account: 26 };
    expect(hasCapacity(hands, { ...taken, all: 25, account: 25 }, lane)).toBe(true);
    expect(hasCapacity(hands, taken, lane)).toBe(false);
    expect(hasCapacity(hands, { ...taken, account: 0 }, laneName("umbrella", "shop.example"))).toBe(true);
  });

  test("the memory for bodies has a last eighth as well", () => {
    const heldByAccount = {
      deliveries: { total: 64, byAccount: new Map<string, number>() },
      bytes: { total: 64, byAccount: new Map([["acme", 56]]) },
    };
    const hands: DeliveryCapacity = { ...handsOf(64, {}), bytes: { free: 8, perBatch: 64, byLane: {} }, heldByAccount };
    expect(hasCapacity(hands, nothing, lane)).toBe(false);
    expect(hasCapacity(hands, nothing, laneName("umbrella", "shop.example"))).toBe(true);
  });
});
