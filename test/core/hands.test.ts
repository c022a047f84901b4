import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Hands, Taken } from "../../src/core/hands.ts";
import { hasHand, laneOf, noHands } from "../../src/core/hands.ts";

const lane = laneOf("acme", "shop.example");

/** How many deliveries to a host begin when it has endless work and nothing ends. */
function fill(hands: Hands, lane: string): number {
  let count = 0;
  while (hasHand(hands, { all: count, lane: count, bytes: 0, laneBytes: 0 }, lane)) count++;
  return count;
}

const handsOf = (total: number, busy: Record<string, number>, perHost = Infinity): Hands => ({
  free: total - Object.values(busy).reduce((sum, count) => sum + count, 0),
  ...{ perHost, behind: false, busy: new Map(Object.entries(busy)) },
  bytes: { free: 1, perBatch: 1, busy: {} },
});

const nothing: Taken = { all: 0, lane: 0, bytes: 0, laneBytes: 0 };

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
    expect(hasHand(handsOf(60, busy), nothing, "e")).toBe(true);
  });

  test("no host gets more than it may", () => {
    expect(fill(handsOf(60, {}, 10), "a")).toBe(10);
    expect(fill(handsOf(60, { a: 10 }, 10), "a")).toBe(0);
  });
});

describe("of 60 bytes", () => {
  /** How many bytes a host takes up with endless bodies of one size. */
  function fillBytes(busy: Record<string, number>, lane: string, size: number): number {
    const total = Object.values(busy).reduce((sum, bytes) => sum + bytes, 0);
    const hands: Hands = { ...handsOf(1000, {}), bytes: { free: 60 - total, perBatch: 60, busy } };
    let count = 0;
    while (hasHand(hands, { all: count, lane: count, bytes: count * size, laneBytes: count * size }, lane)) count++;
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
    const hands: Hands = { ...handsOf(1000, {}), bytes: { free: 60, perBatch: 60, busy: {} } };
    expect(hasHand(hands, { all: 1, lane: 0, bytes: 59, laneBytes: 0 }, "a")).toBe(true);
    expect(hasHand(hands, { all: 1, lane: 0, bytes: 60, laneBytes: 0 }, "a")).toBe(false);
    expect(hasHand(hands, { all: 1, lane: 1, bytes: 30, laneBytes: 30 }, "a")).toBe(false);
  });
});

test("one hand serves any host, and none serves nobody", () => {
  expect(fill(handsOf(1, {}), lane)).toBe(1);
  expect(fill(handsOf(0, {}), lane)).toBe(0);
  expect(fill(noHands, lane)).toBe(0);
});

test("the same host of two accounts is two destinations", () => {
  expect(laneOf("acme", "shop.example")).not.toBe(laneOf("umbrella", "shop.example"));
});

test("never are more taken than there are, nor more by one host than by its share", () => {
  const order = fc.array(fc.constantFrom("a", "b", "c"), { maxLength: 100 });
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 40 }), fc.integer({ min: 1, max: 40 }), order, (total, perHost, wishes) => {
      const busy: Record<string, number> = {};
      for (const host of wishes) {
        const running = busy[host] ?? 0;
        if (hasHand(handsOf(total, busy, perHost), nothing, host)) busy[host] = running + 1;
      }
      const counts = Object.values(busy);
      const taken = counts.reduce((sum, count) => sum + count, 0);
      expect(taken).toBeLessThanOrEqual(total);
      for (const count of counts) expect(count).toBeLessThanOrEqual(Math.min(perHost, Math.ceil(total / 2)));
    }),
  );
});
