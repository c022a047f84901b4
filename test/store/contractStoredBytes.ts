import { describe, expect, test } from "vitest";
import { bucketSizes } from "../../src/core/usage.ts";
import { bytes, letterTo, World } from "./world.ts";
import type { OpenStore } from "./world.ts";

const day = 86_400_000;
const features = { lazyFetch: true, initialBody: true, detect: true, captured: true };
const startOf = (runId: string) =>
  letterTo({ body: bytes("öäü€"), post: { kind: "start", runId, url: "https://one.example/", features, origin: "sdk", invoker: null } });

/** Returns the bytes that an account has in storage, by its rows. Its buckets must say the same after each step of a test. */
async function used(world: World, account = "acc"): Promise<number> {
  const { found, counted } = await world.store.read.measuredBytes(account);
  expect(counted, "by the buckets").toBe(found);
  expect(await world.store.read.storedBytes(account)).toBe(found);
  return found;
}

const expire = async (world: World) => {
  const retention = { log: 1, deadLetters: 1, audit: 1 };
  for (let more = true; more;)
    ({ more } = await world.store.execute("expire", { account: "acc", retention, now: world.clock.now, limit: 2 }));
};

const by = { kind: "commandLine", address: null } as const;

/** The bytes that an account has in storage. */
export function describeStoredBytes(open: OpenStore): void {
  describe("stored bytes", () => {
    test("grow with bodies by their bytes, are those of one account, and of a refused command none", async () => {
      const world = await World.open(open);
      for (const id of ["acc", "acc2"]) await world.account(id);
      await world.send({ body: bytes("a"), delay: day });
      const one = await used(world);
      await world.send({ body: bytes(`a${"€".repeat(1000)}`), delay: day });
      expect(await used(world)).toBe(2 * one + 3000);
      const gone = letterTo({ post: { kind: "step", runId: "none", head: null } });
      await expect(world.publish([letterTo({ delay: day }), gone])).rejects.toThrow("none");
      expect([await used(world), await used(world, "acc2"), await used(world, "none")]).toEqual([2 * one + 3000, 0, 0]);
    });

    test("are right whatever comes and goes: retries, dead letters, schedules, rejected calls, runs and events, audit entries", async () => {
      const world = await World.open(open);
      await world.account();
      const { store } = world;
      await world.settle(await world.sent());
      await world.settle(await world.sent({ retries: 2 }), { status: 500, body: bytes("x".repeat(5000)) });
      const { dlqId } = await world.die({ body: bytes("y".repeat(3000)) });
      const before = await used(world);
      await store.execute("deleteDeadLetters", { account: "acc", dlqIds: [dlqId], logRetention: 1e12, by });
      expect(await used(world)).toBeLessThan(before);
      const { dlqId: again } = await world.die();
      await store.execute("retryDeadLetters", { account: "acc", dlqIds: [again], logRetention: 1e12, overrides: {}, by });
      world.delivered();
      await used(world);
      const { body, ...letter } = letterTo({ headers: [["X-Long", "z".repeat(500)]] });
      await store.execute("createSchedule", { account: "acc", id: "tick", cron: "* * * * *", letter, body, by });
      world.clock.now += 61_000;
      await world.claim();
      await used(world);
      await store.execute("deleteSchedule", { account: "acc", id: "tick", by });
      const made = { account: "acc", name: "s", destination: "https://one.example/", headers: [], verification: null, secretHash: "h" };
      const source = await store.execute("createSource", { ...made, deduplicate: false, paused: false, by });
      const call = { account: "acc", id: source.id, others: 0, reason: "unsigned", method: "POST", headers: [], callerIp: null };
      for (let n = 0; n < 103; n++) {
        world.clock.now += 2_000;
        await store.execute("keepRejection", { ...call, size: n, body: bytes("n".repeat(n)) });
      }
      await used(world);
      await store.execute("deleteSource", { account: "acc", id: source.id, by });
      await used(world);
      await world.publish([startOf("run")]);
      await store.execute("notify", { account: "acc", event: "e", body: bytes("event"), runId: "run", kind: "event" });
      await used(world);
      await store.execute("cancelRuns", { account: "acc", runIds: ["run"], by });
      expect(await used(world)).toBeGreaterThan(0);
    });

    test("come down as history goes, to nothing in the end, and leave no bucket behind", async () => {
      const world = await World.open(open);
      await world.account();
      await world.publish([startOf("run")]);
      await world.store.execute("cancelRuns", { account: "acc", runIds: ["run"], by });
      for (const delivery of world.delivered()) await world.settle(delivery);
      for (let n = 0; n < 5; n++) await world.settle(await world.sent());
      await world.die();
      await world.store.execute("changeAccount", { account: "acc", change: { limits: { logEntries: 2 } } });
      const { id } = await world.store.read.tooMany("log", "acc", 2);
      const tooMany = { log: id === null ? null : { id, most: 2 }, keptLog: null, deadLetters: null };
      const before = await used(world);
      await world.store.execute("trim", { account: "acc", tooMany, limit: 100 });
      expect(await used(world)).toBeLessThan(before);
      world.clock.now += 2 * day;
      await expire(world);
      expect(await used(world)).toBe(0);
      world.clock.now += bucketSizes["3h"].kept + bucketSizes["3h"].span;
      await expire(world);
      expect(await used(world)).toBe(0);
      expect(await world.store.read.isAnythingLeft("acc")).toBe(false);
    });

    test("that were never counted are added when the account gets a quota, once", async () => {
      const world = await World.open(open);
      await world.account();
      await world.send({ delay: day });
      const bytesBefore = await used(world);
      await world.store.execute("changeAccount", { account: "acc", change: { limits: { storageBytes: 10 } } });
      const note = (uncounted?: number) =>
        world.store.execute("noteStorage", { account: "acc", bytes: bytesBefore, ...(uncounted === undefined ? {} : { uncounted }) });
      expect(await note()).toEqual({ noted: false });
      expect(await note(7)).toEqual({ noted: true });
      expect(await note(7)).toEqual({ noted: false });
      expect(await world.store.read.storedBytes("acc")).toBe(bytesBefore + 7);
      expect(await world.publish([letterTo()])).toMatchObject([{ refused: "storage-quota-exceeded" }]);
    });
  });
}
