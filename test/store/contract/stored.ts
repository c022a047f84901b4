import { describe, expect, test } from "vitest";
import { letterTo, World } from "../world.ts";
import type { OpenStore } from "../world.ts";

const hour = 3_600_000;

/** How many bytes an account stores. */
export function describeStored(open: OpenStore): void {
  describe("stored bytes", () => {
    const begun = async () => {
      const world = await World.open(open);
      await world.account();
      return world;
    };
    const expire = (world: World, log: number) =>
      world.store.execute("expire", { account: "acc", retention: { log, deadLetters: log, audit: log }, now: world.clock.now, limit: 100 });
    const all = async (world: World): Promise<number> => (await world.store.read.storedBytes(["acc"], null))[0]?.bytes ?? 0;

    test("are those of bodies, letters beyond ASCII in UTF-8, and of 100 bytes and the settings of each row", async () => {
      const world = await begun();
      await world.publish([letterTo({ delay: 1_000_000, body: new Uint8Array(0) })]);
      const plain = await all(world);
      expect(plain).toBeGreaterThan(100);
      await world.publish([letterTo({ delay: 1_000_000, body: new Uint8Array(5_000) })]);
      expect(await all(world)).toBe(2 * plain + 5_000);
      await world.publish([letterTo({ delay: 1_000_000, body: new Uint8Array(0), url: "https://one.example/hook?ä𝄞" })]);
      expect(await all(world)).toBe(3 * plain + 5_000 + "?".length + 2 + 4);
    });

    test("come to nothing when all is gone: messages, their logs, dead letters, events, schedules, groups, rejected calls, runs", async () => {
      const world = await begun();
      const { dlqId } = await world.die();
      await world.settle(await world.sent(), { status: 200 });
      const letter = letterTo();
      await world.store.execute("createSchedule", { account: "acc", id: "s", cron: "0 0 1 1 *", letter, body: letter.body });
      const endpoints = [{ name: null, url: "https://one.example/" }];
      await world.store.execute("addEndpoints", { account: "acc", name: "g", endpoints, by: { kind: "commandLine", address: null } });
      const source = { name: "n", destination: letter.url, headers: [], verification: null, deduplicate: false, paused: false };
      const { id } = await world.store.execute("createSource", { ...source, account: "acc", secretHash: "h" });
      const call = { others: 0, reason: "r", method: "POST", size: 3, body: letter.body, headers: [], callerIp: null };
      for (let n = 0; n < 3; n++) await world.store.execute("keepRejection", { account: "acc", id, ...call });
      expect(await all(world)).toBeGreaterThan(1_000);
      world.clock.now += hour;
      await expire(world, 1_000);
      await world.store.execute("deleteDeadLetters", { account: "acc", dlqIds: [dlqId], logRetention: 1_000 });
      await world.store.execute("deleteSchedule", { account: "acc", id: "s" });
      await world.store.execute("deleteGroup", { account: "acc", name: "g" });
      await world.store.execute("deleteSource", { account: "acc", id });
      expect(await all(world)).toBe(0);
    });

    test("are asked for of many accounts, and of those that have changed since a time alone", async () => {
      const world = await begun();
      const others = Array.from({ length: 120 }, (_, n) => `acc_${n}`);
      await Promise.all(others.map((account) => world.account(account)));
      await Promise.all(others.map((account) => world.publish([letterTo({ delay: 1_000_000 })], account)));
      const then = world.clock.now + hour;
      world.clock.now = then;
      await world.publish([letterTo({ delay: 1_000_000 })], "acc_7");
      const ask = async (accounts: readonly string[], since: number | null) =>
        (await world.store.read.storedBytes(accounts, since)).map(({ account }) => account).sort();
      expect(await ask([...others, "acc", "none"], null)).toEqual([...others].sort());
      expect(await ask(others, then)).toEqual(["acc_7"]);
      expect(await ask(others, then + 60_000)).toEqual([]);
      const [one, other] = await Promise.all(["acc_7", "acc_8"].map((account) => world.store.read.storedBytes([account], null)));
      expect(one?.[0]?.bytes).toBe(2 * (other?.[0]?.bytes ?? 0));
    });
  });
}
