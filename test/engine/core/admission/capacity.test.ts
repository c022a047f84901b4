import { fc } from "../../../seeds.ts";
import { describe, expect, test } from "vitest";
import type { DeliveryCapacity, TakenCapacity } from "../../../../src/engine/core/admission/capacity.ts";
import { hasCapacity, laneName, noCapacity } from "../../../../src/engine/core/admission/capacity.ts";
import { leavesReserve, leavesReserveAfterBody } from "../../../../src/engine/core/node/lastPart.ts";

const lane = laneName("acme", "shop.example");

/** Reports whether a delivery to a destination may begin. */
const mayBegin = (capacity: DeliveryCapacity, taken: TakenCapacity, lane: string): boolean =>
  hasCapacity(capacity, taken, { lane, size: 1 });

/** Returns how many deliveries to a host start if it has unlimited work and none of them ends. */
function fill(capacity: DeliveryCapacity, lane: string): number {
  let count = 0;
  while (mayBegin(capacity, { all: count, lane: count, bytes: 0, laneBytes: 0 }, lane)) count++;
  return count;
}

const capacityWith = (total: number, busy: Record<string, number>, perHost = Infinity): DeliveryCapacity => ({
  free: total - Object.values(busy).reduce((sum, count) => sum + count, 0),
  perHost,
  backlog: false,
  runningByLane: new Map(Object.entries(busy)),
  bytes: { free: 1, perBatch: 1, byLane: {} },
});

const nothing: TakenCapacity = { all: 0, lane: 0, bytes: 0, laneBytes: 0 };

describe("a capacity of 60 deliveries", () => {
  test("gives half to the first slow host, and a third to each of two", () => {
    expect(fill(capacityWith(60, {}), "a")).toBe(30);
    expect(fill(capacityWith(60, { a: 30 }), "b")).toBe(15);
    expect(fill(capacityWith(60, { a: 20 }), "b")).toBe(20);
    expect(fill(capacityWith(60, { a: 20, b: 20 }), "c")).toBe(10);
  });

  test("still has some for a new host", () => {
    const busy: Record<string, number> = {};
    for (const host of ["a", "b", "c", "d"]) busy[host] = fill(capacityWith(60, busy), host);
    expect(busy).toEqual({ a: 30, b: 15, c: 8, d: 4 });
    expect(mayBegin(capacityWith(60, busy), nothing, "e")).toBe(true);
  });

  test("gives a host that fails while others wait an eighth of what is free, and always one", () => {
    const reduced = (busy: Record<string, number>) => ({
      ...capacityWith(60, busy),
      isReduced: (lane: string) => lane === "a",
    });
    expect(fill(reduced({}), "a")).toBe(6);
    expect(fill(reduced({ b: 30 }), "a")).toBe(3);
    expect(fill(reduced({ b: 30, c: 29 }), "a")).toBe(1);
    expect(fill(reduced({ b: 30, c: 30 }), "a")).toBe(0);
    expect(fill(reduced({ a: 20 }), "b")).toBe(20);
  });

  test("gives no host more than the limit per host", () => {
    expect(fill(capacityWith(60, {}, 10), "a")).toBe(10);
    expect(fill(capacityWith(60, { a: 10 }, 10), "a")).toBe(0);
  });
});

describe("a capacity of 60 bytes", () => {
  /** Returns how many bytes a host takes if it has unlimited bodies of one size. */
  function fillBytes(byLane: Record<string, number>, lane: string, size: number): number {
    const total = Object.values(byLane).reduce((sum, bytes) => sum + bytes, 0);
    const capacity: DeliveryCapacity = {
      ...capacityWith(1000, {}),
      bytes: { free: 60 - total, perBatch: 60, byLane },
    };
    let count = 0;
    while (
      mayBegin(capacity, { all: count, lane: count, bytes: count * size, laneBytes: count * size }, lane)
    )
      count++;
    return count * size;
  }

  test("gives half to the first slow host, a third to the second, and some to a new host", () => {
    expect(fillBytes({}, "a", 1)).toBe(30);
    expect(fillBytes({ a: 20 }, "b", 1)).toBe(20);
    expect(fillBytes({ a: 30, b: 15, c: 8, d: 4 }, "e", 1)).toBeGreaterThan(0);
  });

  test("lets the last body exceed the capacity, so that a large body is sent in turn", () => {
    expect(fillBytes({}, "a", 1_000)).toBe(1_000);
    expect(fillBytes({ a: 59 }, "b", 1_000)).toBe(1_000);
    expect(fillBytes({ a: 60 }, "b", 1)).toBe(0);
    expect(fillBytes({ a: 1_000 }, "b", 1)).toBe(0);
  });

  test("counts the bytes that were promised, also to other hosts", () => {
    const capacity: DeliveryCapacity = {
      ...capacityWith(1000, {}),
      bytes: { free: 60, perBatch: 60, byLane: {} },
    };
    expect(mayBegin(capacity, { all: 1, lane: 0, bytes: 59, laneBytes: 0 }, "a")).toBe(true);
    expect(mayBegin(capacity, { all: 1, lane: 0, bytes: 60, laneBytes: 0 }, "a")).toBe(false);
    expect(mayBegin(capacity, { all: 1, lane: 1, bytes: 30, laneBytes: 30 }, "a")).toBe(false);
  });
});

test("a capacity of one serves any host, and a capacity of zero serves none", () => {
  expect(fill(capacityWith(1, {}), lane)).toBe(1);
  expect(fill(capacityWith(0, {}), lane)).toBe(0);
  expect(fill(noCapacity, lane)).toBe(0);
});

test("the same host in two accounts is two destinations", () => {
  expect(laneName("acme", "shop.example")).not.toBe(laneName("umbrella", "shop.example"));
});

test("all hosts never take more than the capacity, and one host never more than its share", () => {
  const order = fc.array(fc.constantFrom("a", "b", "c"), { maxLength: 100 });
  fc.assert(
    fc.property(
      fc.integer({ min: 0, max: 40 }),
      fc.integer({ min: 1, max: 40 }),
      order,
      (total, perHost, wishes) => {
        const busy: Record<string, number> = {};
        for (const host of wishes) {
          const running = busy[host] ?? 0;
          if (mayBegin(capacityWith(total, busy, perHost), nothing, host)) busy[host] = running + 1;
        }
        const counts = Object.values(busy);
        const taken = counts.reduce((sum, count) => sum + count, 0);
        expect(taken).toBeLessThanOrEqual(total);
        for (const count of counts)
          expect(count).toBeLessThanOrEqual(Math.min(perHost, Math.ceil(total / 2)));
      },
    ),
  );
});

describe("a capacity of 64, whose last eighth is 8", () => {
  /**
   * Starts as many deliveries to each of these hosts, one host after another, as are allowed. Returns their
   * number.
   */
  function fillHosts(
    account: string,
    hosts: number,
    { runningByLane, byAccount }: { runningByLane: Map<string, number>; byAccount: Map<string, number> },
  ): number {
    let count = 0;
    const total = 64;
    for (let host = 0; host < hosts; host++) {
      const lane = laneName(account, `h${host}.example`);
      for (;;) {
        const free = total - [...byAccount.values()].reduce((sum, held) => sum + held, 0);
        const heldByAccount = {
          deliveries: { total, byAccount },
          bytes: { total: 1, byAccount: new Map<string, number>() },
        };
        const bytes = { free: 1, perBatch: 1, byLane: {} };
        if (
          !mayBegin({ free, perHost: 64, backlog: false, runningByLane, bytes, heldByAccount }, nothing, lane)
        )
          break;
        runningByLane.set(lane, (runningByLane.get(lane) ?? 0) + 1);
        byAccount.set(account, (byAccount.get(account) ?? 0) + 1);
        count++;
      }
    }
    return count;
  }

  test("gives an account with 3,000 hanging hosts all but the last 8, which others get", () => {
    const held = { runningByLane: new Map<string, number>(), byAccount: new Map<string, number>() };
    expect(fillHosts("hostile", 3_000, held)).toBe(56);
    expect(fillHosts("acme", 3_000, held)).toBe(8);
    expect(fillHosts("umbrella", 3_000, held)).toBe(0);
  });

  test("does not hold back an account that holds an eighth or less", () => {
    const byAccount = new Map([["a", 50]]);
    expect(fillHosts("b", 3_000, { runningByLane: new Map(), byAccount })).toBe(8);
    expect(leavesReserve({ total: 64, free: 1 }, 7, 1)).toBe(true);
    expect(leavesReserve({ total: 64, free: 8 }, 8, 1)).toBe(false);
    expect(leavesReserve({ total: 64, free: 9 }, 8, 1)).toBe(true);
  });

  test("has no last eighth if it is below 8", () => {
    for (const total of [1, 7]) expect(leavesReserve({ total, free: 1 }, total - 1, 1)).toBe(true);
    expect(leavesReserve({ total: 8, free: 1 }, 7, 1)).toBe(false);
  });

  test("counts the deliveries that a batch has promised to other hosts of the account", () => {
    const heldByAccount = {
      deliveries: { total: 64, byAccount: new Map([["acme", 30]]) },
      bytes: { total: 64, byAccount: new Map<string, number>() },
    };
    const capacity: DeliveryCapacity = {
      ...capacityWith(64, {}),
      free: 34,
      bytes: { free: 64, perBatch: 64, byLane: {} },
      heldByAccount,
    };
    const taken = { ...nothing, all: 26, account: 26 };
    expect(mayBegin(capacity, { ...taken, all: 25, account: 25 }, lane)).toBe(true);
    expect(mayBegin(capacity, taken, lane)).toBe(false);
    expect(mayBegin(capacity, { ...taken, account: 0 }, laneName("umbrella", "shop.example"))).toBe(true);
  });

  test("counts the bytes that a batch has promised to other hosts of the account", () => {
    const capacity: DeliveryCapacity = {
      ...capacityWith(64, {}),
      bytes: { free: 34, perBatch: 64, byLane: {} },
      heldByAccount: {
        deliveries: { total: 64, byAccount: new Map<string, number>() },
        bytes: { total: 64, byAccount: new Map([["acme", 30]]) },
      },
    };
    const taken = { ...nothing, bytes: 26, accountBytes: 26 };
    expect(mayBegin(capacity, { ...taken, bytes: 25, accountBytes: 25 }, lane)).toBe(true);
    expect(mayBegin(capacity, taken, lane)).toBe(false);
    expect(mayBegin(capacity, { ...taken, accountBytes: 0 }, laneName("umbrella", "shop.example"))).toBe(
      true,
    );
  });

  test("keeps a last eighth of the memory for bodies as well", () => {
    const heldByAccount = {
      deliveries: { total: 64, byAccount: new Map<string, number>() },
      bytes: { total: 64, byAccount: new Map([["acme", 56]]) },
    };
    const capacity: DeliveryCapacity = {
      ...capacityWith(64, {}),
      bytes: { free: 8, perBatch: 64, byLane: {} },
      heldByAccount,
    };
    expect(mayBegin(capacity, nothing, lane)).toBe(false);
    expect(mayBegin(capacity, nothing, laneName("umbrella", "shop.example"))).toBe(true);
  });

  /** A memory of 64 bytes, of which two accounts hold these bytes. */
  const memoryWith = (acme: number, umbrella: number): DeliveryCapacity => ({
    ...capacityWith(64, {}),
    bytes: { free: 64 - acme - umbrella, perBatch: 64, byLane: {} },
    heldByAccount: {
      deliveries: { total: 64, byAccount: new Map<string, number>() },
      bytes: {
        total: 64,
        byAccount: new Map([
          ["acme", acme],
          ["umbrella", umbrella],
        ]),
      },
    },
  });

  test("keeps the last eighth of the memory free after a large body", () => {
    expect(hasCapacity(memoryWith(32, 0), nothing, { lane, size: 24 })).toBe(true);
    expect(hasCapacity(memoryWith(32, 0), nothing, { lane, size: 25 })).toBe(false);
    expect(hasCapacity(memoryWith(16, 16), nothing, { lane, size: 24 })).toBe(true);
    expect(hasCapacity(memoryWith(16, 16), nothing, { lane, size: 25 })).toBe(false);
    const taken = { ...nothing, bytes: 24, accountBytes: 24 };
    expect(hasCapacity(memoryWith(8, 0), taken, { lane, size: 24 })).toBe(true);
    expect(hasCapacity(memoryWith(8, 0), taken, { lane, size: 25 })).toBe(false);
  });

  test("lets an account with less than an eighth of the memory take one body of any size", () => {
    expect(hasCapacity(memoryWith(0, 0), nothing, { lane, size: 1_000 })).toBe(true);
    expect(hasCapacity(memoryWith(7, 49), nothing, { lane, size: 1_000 })).toBe(true);
    expect(hasCapacity(memoryWith(8, 47), nothing, { lane, size: 2 })).toBe(false);
    expect(leavesReserveAfterBody({ total: 64, free: 8 }, 8, 0)).toBe(false);
  });

  test("leaves an eighth of the memory to others, with bodies of any size up to half of it", () => {
    const sizes = fc.array(fc.integer({ min: 0, max: 32 }), { maxLength: 100 });
    fc.assert(
      fc.property(sizes, (sizes) => {
        let held = 0;
        for (const [at, size] of sizes.entries())
          if (hasCapacity(memoryWith(held, 0), nothing, { lane: laneName("acme", `h${at}.example`), size }))
            held += size;
        expect(held).toBeLessThanOrEqual(56);
        expect(mayBegin(memoryWith(held, 0), nothing, laneName("umbrella", "shop.example"))).toBe(true);
      }),
    );
  });
});
