import { describe, expect, test } from "vitest";
import { makeInput, StoreFixture } from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";
import { makeDeletion } from "../../../makeDeletion.ts";

const hour = 3_600_000;

/** The number of bytes that an account stores. */
export function describeStored(open: OpenStore): void {
  describe("stored bytes", () => {
    const started = async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      return fixture;
    };
    const expire = (fixture: StoreFixture, log: number) =>
      fixture.store.execute("expire", {
        account: "acc",
        retention: { log, deadLetters: log, audit: log },
        now: fixture.clock.now,
        limit: 100,
      });
    const all = async (fixture: StoreFixture): Promise<number> =>
      (await fixture.store.read.storedBytes(["acc"], null))[0]?.bytes ?? 0;

    test("count bodies, texts in UTF-8, and 100 bytes and the settings of each row", async () => {
      const fixture = await started();
      await fixture.publish([makeInput({ delay: 1_000_000, body: new Uint8Array(0) })]);
      const plain = await all(fixture);
      expect(plain).toBeGreaterThan(100);
      await fixture.publish([makeInput({ delay: 1_000_000, body: new Uint8Array(5_000) })]);
      expect(await all(fixture)).toBe(2 * plain + 5_000);
      await fixture.publish([
        makeInput({ delay: 1_000_000, body: new Uint8Array(0), url: "https://one.example/hook?ä𝄞" }),
      ]);
      expect(await all(fixture)).toBe(3 * plain + 5_000 + "?".length + 2 + 4);
    });

    test("are zero after all rows of every kind are removed", async () => {
      const fixture = await started();
      const { dlqId } = await fixture.publishFailing();
      await fixture.settle(await fixture.sent(), { status: 200 });
      const input = makeInput();
      await fixture.store.execute("createSchedule", {
        account: "acc",
        id: "s",
        cron: "0 0 1 1 *",
        messageInput: input,
        body: input.body,
      });
      const endpoints = [{ name: null, url: "https://one.example/" }];
      await fixture.store.execute("addEndpoints", {
        account: "acc",
        name: "g",
        endpoints,
        by: { kind: "commandLine", address: null },
      });
      const source = {
        name: "n",
        destination: input.url,
        headers: [],
        verification: null,
        deduplicate: false,
        paused: false,
      };
      const { id } = await fixture.store.execute("createSource", {
        ...source,
        account: "acc",
        secretHash: "h",
      });
      const call = {
        others: 0,
        reason: "r",
        method: "POST",
        size: 3,
        body: input.body,
        headers: [],
        callerIp: null,
      };
      for (let n = 0; n < 3; n++)
        await fixture.store.execute("keepRejection", { account: "acc", id, ...call });
      expect(await all(fixture)).toBeGreaterThan(1_000);
      fixture.clock.now += hour;
      await expire(fixture, 1_000);
      await fixture.store.execute(
        "bulk",
        makeDeletion({
          account: "acc",
          dlqIds: [dlqId],
          logRetention: 1_000,
        }),
      );
      await fixture.store.execute("deleteSchedule", { account: "acc", id: "s" });
      await fixture.store.execute("deleteGroup", { account: "acc", name: "g" });
      await fixture.store.execute("deleteSource", { account: "acc", id });
      expect(await all(fixture)).toBe(0);
    });

    test("are read for many accounts, or only for those that have changed since a time", async () => {
      const fixture = await started();
      const others = Array.from({ length: 120 }, (_, n) => `acc_${n}`);
      await Promise.all(others.map((account) => fixture.account(account)));
      await Promise.all(others.map((account) => fixture.publish([makeInput({ delay: 1_000_000 })], account)));
      const then = fixture.clock.now + hour;
      fixture.clock.now = then;
      await fixture.publish([makeInput({ delay: 1_000_000 })], "acc_7");
      const ask = async (accounts: readonly string[], since: number | null) =>
        (await fixture.store.read.storedBytes(accounts, since)).map(({ account }) => account).sort();
      expect(await ask([...others, "acc", "none"], null)).toEqual([...others].sort());
      expect(await ask(others, then)).toEqual(["acc_7"]);
      expect(await ask(others, then + 60_000)).toEqual([]);
      const [one, other] = await Promise.all(
        ["acc_7", "acc_8"].map((account) => fixture.store.read.storedBytes([account], null)),
      );
      expect(one?.[0]?.bytes).toBe(2 * (other?.[0]?.bytes ?? 0));
    });
  });
}
