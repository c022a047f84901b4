import { expect, test } from "vitest";
import { keyGate } from "../../../../src/engine/core/admission/gate.ts";
import { scanLimit } from "../../../../src/engine/store/layout/storageReads.ts";
import { sqliteStore } from "../../../../src/engine/store/sqlite/sqliteStore.ts";
import { closeAfterTest, createSource, makeInput, StoreFixture, TestClock } from "../storeFixture.ts";

test("holders of a key are searched among its messages, if many messages wait for the account", async () => {
  const clock = new TestClock();
  const store = closeAfterTest(await sqliteStore(":memory:", createSource(clock, "nod_a")));
  const fixture = new StoreFixture(store, clock, "nod_a");
  await fixture.account();
  const flowControl = { key: "k", parallelism: 3, rate: null, period: null };
  const first = await fixture.sent({ flowControl });
  const second = await fixture.sent({ flowControl });
  const delayed = makeInput({ flowControl, delay: 60_000, body: new Uint8Array(0) });
  await fixture.publish(Array.from({ length: scanLimit + 500 }, () => delayed));
  const change = { limits: { globalParallelism: 1 } };
  await store.execute("changeAccount", { account: "acc", change });
  clock.now += 1_000;
  const reserved = await fixture.send({ flowControl });
  const pages: (string[] | undefined)[] = [];
  const readAll = async (count: number): Promise<void> => {
    let cursor: string | null = null;
    do {
      const page: Awaited<ReturnType<typeof store.read.holders>> = await store.read.holders({
        ...{ account: "acc", gate: keyGate("k"), cursor, count },
      });
      pages.push(page?.holders.map(({ messageId }) => messageId));
      cursor = page?.cursor ?? null;
    } while (cursor !== null);
  };
  const whole = [first.message.id, second.message.id, reserved];
  await readAll(100);
  expect(pages.splice(0)).toEqual([whole]);
  await fixture.publish(Array.from({ length: 1_000 }, () => makeInput({ body: new Uint8Array(0) })));
  await readAll(100);
  expect(pages.splice(0)).toEqual([[first.message.id, second.message.id], [reserved]]);
  await readAll(1);
  expect(pages).toEqual([[first.message.id], [second.message.id], [reserved]]);
});
