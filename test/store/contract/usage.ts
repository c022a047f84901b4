import { describe, expect, test } from "vitest";
import { Refusal } from "../../../src/core/values/errors.ts";
import type { Usage } from "../../../src/core/model/counts.ts";
import { countNames } from "../../../src/core/model/counts.ts";
import { bucketSizes } from "../../../src/core/accounts/usage.ts";
import { letterTo, World } from "../world.ts";
import type { OpenStore } from "../world.ts";

const { span } = bucketSizes["3h"];

/** At the beginning of a bucket of each size. */
async function atBeginning(open: OpenStore): Promise<{ world: World; start: number }> {
  const world = await World.open(open);
  const start = (world.clock.now = Math.ceil(world.clock.now / span) * span);
  await world.account();
  return { world, start };
}

const shown = (rows: readonly Usage[]) =>
  rows.map(({ id, ...row }) => [id, Object.fromEntries(counted.flatMap((name) => (row[name] === 0 ? [] : [[name, row[name]]])))]);

/** Stored bytes: see `contractStored.ts`. */
const counted = countNames.filter((name) => name !== "storedBytes");

const letters = (count: number) => Array.from({ length: count }, () => letterTo({ delay: 1_000_000 }));

/** What accounts have used, and what is left of the requests of a day. */
export function describeUsage(open: OpenStore): void {
  describe("usage", () => {
    test("is added up over batches and commands, and is read in the order of time", async () => {
      const { world, start } = await atBeginning(open);
      const bytes = letterTo().body.byteLength;
      await world.publish(letters(3));
      await Promise.all([world.publish(letters(2)), world.publish(letters(1))]);
      world.clock.now += span - 1;
      await world.publish(letters(1));
      world.clock.now += 1;
      await world.publish(letters(1));
      expect(shown(await world.store.read.usage("acc", "3h", 0))).toEqual([
        [`3h/${start}/nod_a`, { messages: 7, bytesIn: 7 * bytes }],
        [`3h/${start + span}/nod_a`, { messages: 1, bytesIn: bytes }],
      ]);
      const minutes = await world.store.read.usage("acc", "1m", start + 60_000);
      expect(minutes.map(({ id, messages }) => [id, messages])).toEqual([
        [`1m/${start + span - 60_000}/nod_a`, 1],
        [`1m/${start + span}/nod_a`, 1],
      ]);
    });

    test("is that of one account, also where one is called almost like another", async () => {
      const { world } = await atBeginning(open);
      await world.account("ac");
      await world.account("acc2");
      await Promise.all([world.publish(letters(2)), world.publish(letters(3), "ac"), world.publish(letters(4), "acc2")]);
      const used = async (account: string) => (await world.store.read.usage(account, "1m", 0)).map(({ messages }) => messages);
      expect([await used("acc"), await used("ac"), await used("acc2"), await used("none")]).toEqual([[2], [3], [4], []]);
    });

    test("of a command that is refused is none, whatever else is in its batch", async () => {
      const { world } = await atBeginning(open);
      const gone = letterTo({ post: { kind: "step", runId: "none", head: null } });
      const all = await Promise.allSettled([world.publish([...letters(2), gone]), world.publish(letters(1))]);
      expect(all.map(({ status }) => status)).toEqual(["rejected", "fulfilled"]);
      expect(await world.store.read.usage("acc", "3h", 0)).toMatchObject([{ messages: 1 }]);
    });

    test("can be less than nothing, of dead letters that went later than they came", async () => {
      const { world, start } = await atBeginning(open);
      const { dlqId } = await world.die();
      world.clock.now += span;
      await world.store.execute("deleteDeadLetters", { account: "acc", dlqIds: [dlqId, dlqId], logRetention: 1e12 });
      const rows = await world.store.read.usage("acc", "3h", 0);
      expect(rows.map(({ id, deadLetters }) => [id, deadLetters])).toEqual([
        [`3h/${start}/nod_a`, 1],
        [`3h/${start + span}/nod_a`, -1],
      ]);
    });

    test("goes in its time, in portions, and what is left of dead letters is kept", async () => {
      const { world, start } = await atBeginning(open);
      const expire = (limit: number) =>
        world.store.execute("expire", {
          ...{ account: "acc", retention: { log: 1e12, deadLetters: 1e12 }, now: world.clock.now, limit },
        });
      for (let hours = 0; hours < 9; hours += 3) {
        world.clock.now = start + hours * 3_600_000;
        await world.die();
      }
      world.clock.now = start + bucketSizes["3h"].kept + span + 1;
      expect(await expire(2)).toEqual({ removed: 6, more: true });
      const rows = await world.store.read.usage("acc", "3h", 0);
      expect(rows.map(({ id, deadLetters }) => [id, deadLetters])).toEqual([
        ["3h/0000000000000/carried", 2],
        [`3h/${start + 2 * span}/nod_a`, 1],
      ]);
      expect(await expire(2)).toMatchObject({ removed: 2 });
      expect(await expire(2)).toEqual({ removed: 0, more: false });
      expect(await world.store.read.usage("acc", "3h", 0)).toEqual(rows);
    });
  });

  describe("requests of a day", () => {
    const limit = (world: World, requestsPerDay: number, requestsPerDayHard: number) =>
      world.store.execute("changeAccount", { account: "acc", change: { limits: { requestsPerDay, requestsPerDayHard } } });

    test("are counted exactly, also where many ask at once", async () => {
      const { world } = await atBeginning(open);
      await limit(world, 5, 10);
      const all = await Promise.all(Array.from({ length: 15 }, () => world.publish(letters(1))));
      const results = all.flat();
      expect(results.filter((one) => "messageId" in one)).toHaveLength(10);
      expect(results.filter((one) => "refused" in one && one.refused === "day-limit-exceeded")).toHaveLength(5);
      expect(results.filter(({ allowance }) => allowance?.warning !== undefined)).toHaveLength(10);
    });

    test("are told with a refusal of all", async () => {
      const { world } = await atBeginning(open);
      await limit(world, 1, 1);
      const features = { lazyFetch: false, initialBody: true, detect: false, captured: true };
      const start = (runId: string) =>
        letterTo({ post: { kind: "start", runId, url: "https://one.example/", features, origin: "sdk", invoker: null } });
      const refusal = await world.publish([start("r"), start("s")]).catch((error: unknown) => error);
      expect(refusal).toBeInstanceOf(Refusal);
      expect(refusal).toMatchObject({ code: "day-limit-exceeded", allowance: { limit: 1, remaining: 0, resetAt: expect.any(Number) } });
      // Nothing of it was kept.
      expect(await world.publish([start("r")])).toMatchObject([{ allowance: { remaining: 0 } }]);
    });
  });
}
