import { beforeEach, describe, expect, test } from "vitest";
import { countInBurst } from "../../../../src/engine/core/limits/requestRate.ts";
import type { Terms } from "../../../../src/engine/core/model/accountTerms.ts";
import { CommandRunner } from "../commandRunner.ts";

const now = 1_800_000_000_250;

test.each([
  [3, 0, { taken: true, remaining: 2 }],
  [3, 2, { taken: true, remaining: 0 }],
  [3, 3, { taken: false, remaining: 0 }],
  [1, 0, { taken: true, remaining: 0 }],
])("a request is judged by the limit of %d per second, after %d requests", (limit, asked, expected) => {
  expect(countInBurst(limit, asked, now)).toEqual({ ...expected, limit, resetAt: 1_800_000_001 });
});

describe("the share of a node in the requests of a second", () => {
  let broker: CommandRunner;
  const grant = (terms: Terms): void => {
    for (const [key, account] of broker.memory.tables.accounts)
      broker.memory.tables.accounts.set(key, { ...account, ...terms });
  };
  const take = (needed: number, wanted = 0) =>
    broker.run("takeBurst", { account: "acme", needed, recent: wanted });
  const counted = () => broker.memory.tables.secondCounts.get("acme");
  beforeEach(async () => {
    broker = await CommandRunner.open();
    broker.now = now;
    grant({ limits: { requestsPerSecond: 100 } });
  });

  test("is not counted if the account has no limit, does not exist or was deleted", async () => {
    grant({ limits: {} });
    expect(await take(1)).toBeNull();
    grant({ limits: { requestsPerSecond: 100 }, deletedAt: now });
    expect(await take(1)).toBeNull();
    expect(await broker.run("takeBurst", { account: "none", needed: 1, recent: 0 })).toBeNull();
    expect(broker.memory.tables.secondCounts.size).toBe(0);
  });

  test("is as large as it needs, and the result has the remaining number and time", async () => {
    expect(await take(3)).toEqual({ granted: 3, left: 97, limit: 100, second: 1_800_000_000, endsIn: 750 });
    expect(await take(1)).toMatchObject({ granted: 1, left: 96 });
    expect(counted()).toEqual({ account: "acme", second: 1_800_000_000, requests: 4 });
  });

  test("is never larger than the remaining number", async () => {
    expect(await take(98)).toMatchObject({ granted: 98, left: 2 });
    expect(await take(5, 98)).toMatchObject({ granted: 2, left: 0 });
    expect(await take(1, 100)).toMatchObject({ granted: 0, left: 0 });
    expect(counted()?.requests).toBe(100);
  });

  test("is as large as its use so far, but at most an eighth of the remaining number", async () => {
    expect(await take(1, 4)).toMatchObject({ granted: 4, left: 96 });
    expect(await take(1, 50)).toMatchObject({ granted: 12, left: 84 });
    expect(await take(20, 50)).toMatchObject({ granted: 20, left: 64 });
    grant({ limits: { requestsPerSecond: 41 } });
    expect(await take(1, 50)).toMatchObject({ granted: 1, left: 4, limit: 41 });
  });

  test("reaches the whole limit in few steps if the node is alone", async () => {
    let had = 0;
    let steps = 0;
    for (let left = 1; left > 0; steps++) {
      const share = await take(1, had);
      had += share?.granted ?? 0;
      left = share?.left ?? 0;
    }
    expect([had, steps]).toEqual([100, 28]);
  });

  test("restarts with each second, in the same row", async () => {
    await take(100);
    broker.now = now + 749;
    expect(await take(1)).toMatchObject({ granted: 0, endsIn: 1 });
    broker.now = now + 750;
    expect(await take(1)).toEqual({ granted: 1, left: 99, limit: 100, second: 1_800_000_001, endsIn: 1000 });
    expect(broker.memory.tables.secondCounts.size).toBe(1);
  });

  test("counts in the later second if its transaction began in the second before and waited", async () => {
    broker.now = now + 750;
    await take(30);
    broker.now = now + 700;
    expect(await take(1)).toEqual({ granted: 1, left: 69, limit: 100, second: 1_800_000_001, endsIn: 1050 });
    expect(counted()).toMatchObject({ second: 1_800_000_001, requests: 31 });
  });

  test("restarts if the clock is set back", async () => {
    await take(100);
    broker.now = now - 10_000;
    expect(await take(1)).toMatchObject({ granted: 0, second: 1_800_000_000 });
    broker.now = now - 10_251;
    expect(await take(1)).toMatchObject({ granted: 1, left: 99, second: 1_799_999_989 });
  });

  test("follows a limit that is changed within the second", async () => {
    await take(50);
    grant({ limits: { requestsPerSecond: 20 } });
    expect(await take(1)).toMatchObject({ granted: 0, left: 0, limit: 20 });
    grant({ limits: { requestsPerSecond: 60 } });
    expect(await take(1)).toMatchObject({ granted: 1, left: 9 });
  });
});
