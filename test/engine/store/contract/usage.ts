import { describe, expect, test } from "vitest";
import { Refusal } from "../../../../src/engine/core/values/errors.ts";
import type { Usage } from "../../../../src/engine/core/model/counts.ts";
import { countNames } from "../../../../src/engine/core/model/counts.ts";
import { bucketSizes } from "../../../../src/engine/core/accounts/usage.ts";
import { makeInput, StoreFixture } from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";
import { makeDeletion } from "../../../makeDeletion.ts";

const { span } = bucketSizes["3h"];

/** Opens a store at a time at which a bucket of each size begins. */
async function openAtBucketStart(open: OpenStore): Promise<{ fixture: StoreFixture; start: number }> {
  const fixture = await StoreFixture.open(open);
  const start = (fixture.clock.now = Math.ceil(fixture.clock.now / span) * span);
  await fixture.account();
  return { fixture, start };
}

const shown = (rows: readonly Usage[]) =>
  rows.map(({ id, ...row }) => [
    id,
    Object.fromEntries(countedNames.flatMap((name) => (row[name] === 0 ? [] : [[name, row[name]]]))),
  ]);

/** Stored bytes are tested in `stored.ts`. */
const countedNames = countNames.filter((name) => name !== "storedBytes");

const makeInputs = (count: number) => Array.from({ length: count }, () => makeInput({ delay: 1_000_000 }));

/** The usage of accounts, and their remaining requests of a day. */
export function describeUsage(open: OpenStore): void {
  describe("usage", () => {
    test("is summed over batches and commands and read in order of time", async () => {
      const { fixture, start } = await openAtBucketStart(open);
      const bytes = makeInput().body.byteLength;
      await fixture.publish(makeInputs(3));
      await Promise.all([fixture.publish(makeInputs(2)), fixture.publish(makeInputs(1))]);
      fixture.clock.now += span - 1;
      await fixture.publish(makeInputs(1));
      fixture.clock.now += 1;
      await fixture.publish(makeInputs(1));
      expect(shown(await fixture.store.read.usage("acc", "3h", 0))).toEqual([
        [`3h/${start}/nod_a`, { messages: 7, bytesIn: 7 * bytes }],
        [`3h/${start + span}/nod_a`, { messages: 1, bytesIn: bytes }],
      ]);
      const minutes = await fixture.store.read.usage("acc", "1m", start + 60_000);
      expect(minutes.map(({ id, messages }) => [id, messages])).toEqual([
        [`1m/${start + span - 60_000}/nod_a`, 1],
        [`1m/${start + span}/nod_a`, 1],
      ]);
    });

    test("is counted per account, even if the names of two accounts begin alike", async () => {
      const { fixture } = await openAtBucketStart(open);
      await fixture.account("ac");
      await fixture.account("acc2");
      await Promise.all([
        fixture.publish(makeInputs(2)),
        fixture.publish(makeInputs(3), "ac"),
        fixture.publish(makeInputs(4), "acc2"),
      ]);
      const used = async (account: string) =>
        (await fixture.store.read.usage(account, "1m", 0)).map(({ messages }) => messages);
      expect([await used("acc"), await used("ac"), await used("acc2"), await used("none")]).toEqual([
        [2],
        [3],
        [4],
        [],
      ]);
    });

    test("of a refused command is not counted, whatever else is in its batch", async () => {
      const { fixture } = await openAtBucketStart(open);
      const gone = makeInput({ post: { kind: "step", runId: "none", head: null } });
      const all = await Promise.allSettled([
        fixture.publish([...makeInputs(2), gone]),
        fixture.publish(makeInputs(1)),
      ]);
      expect(all.map(({ status }) => status)).toEqual(["rejected", "fulfilled"]);
      expect(await fixture.store.read.usage("acc", "3h", 0)).toMatchObject([{ messages: 1 }]);
    });

    test("can be negative for dead letters that were removed in a later bucket", async () => {
      const { fixture, start } = await openAtBucketStart(open);
      const { dlqId } = await fixture.publishFailing();
      fixture.clock.now += span;
      await fixture.store.execute(
        "bulk",
        makeDeletion({
          account: "acc",
          dlqIds: [dlqId, dlqId],
          logRetention: 1e12,
        }),
      );
      const rows = await fixture.store.read.usage("acc", "3h", 0);
      expect(rows.map(({ id, deadLetters }) => [id, deadLetters])).toEqual([
        [`3h/${start}/nod_a`, 1],
        [`3h/${start + span}/nod_a`, -1],
      ]);
    });

    test("is removed after its retention, in portions, and the balance of dead letters is kept", async () => {
      const { fixture, start } = await openAtBucketStart(open);
      const expire = (limit: number) =>
        fixture.store.execute("expire", {
          account: "acc",
          retention: { log: 1e12, deadLetters: 1e12 },
          now: fixture.clock.now,
          limit,
        });
      for (let hours = 0; hours < 9; hours += 3) {
        fixture.clock.now = start + hours * 3_600_000;
        await fixture.publishFailing();
      }
      fixture.clock.now = start + bucketSizes["3h"].kept + span + 1;
      expect(await expire(2)).toEqual({ removed: 6, more: true });
      const rows = await fixture.store.read.usage("acc", "3h", 0);
      expect(rows.map(({ id, deadLetters }) => [id, deadLetters])).toEqual([
        ["3h/0000000000000/carried", 2],
        [`3h/${start + 2 * span}/nod_a`, 1],
      ]);
      expect(await expire(2)).toMatchObject({ removed: 2 });
      expect(await expire(2)).toEqual({ removed: 0, more: false });
      expect(await fixture.store.read.usage("acc", "3h", 0)).toEqual(rows);
    });
  });

  describe("requests of a day", () => {
    const limit = (fixture: StoreFixture, requestsPerDay: number, requestsPerDayHard: number) =>
      fixture.store.execute("changeAccount", {
        account: "acc",
        change: { limits: { requestsPerDay, requestsPerDayHard } },
      });

    test("are counted exactly, even with many simultaneous requests", async () => {
      const { fixture } = await openAtBucketStart(open);
      await limit(fixture, 5, 10);
      const all = await Promise.all(Array.from({ length: 15 }, () => fixture.publish(makeInputs(1))));
      const results = all.flat();
      expect(results.filter((one) => "messageId" in one)).toHaveLength(10);
      expect(results.filter((one) => "refused" in one && one.refused === "day-limit-exceeded")).toHaveLength(
        5,
      );
      expect(results.filter(({ remainingQuota }) => remainingQuota?.warning !== undefined)).toHaveLength(10);
    });

    test("are returned with a refusal of all messages", async () => {
      const { fixture } = await openAtBucketStart(open);
      await limit(fixture, 1, 1);
      const features = { lazyFetch: false, initialBody: true, detect: false, captured: true };
      const start = (runId: string) =>
        makeInput({
          post: { kind: "start", runId, url: "https://one.example/", features, origin: "sdk", invoker: null },
        });
      const refusal = await fixture.publish([start("r"), start("s")]).catch((error: unknown) => error);
      expect(refusal).toBeInstanceOf(Refusal);
      expect(refusal).toMatchObject({
        code: "day-limit-exceeded",
        remainingQuota: { limit: 1, remaining: 0, resetAt: expect.any(Number) },
      });
      // No row was stored.
      expect(await fixture.publish([start("r")])).toMatchObject([{ remainingQuota: { remaining: 0 } }]);
    });
  });
}
