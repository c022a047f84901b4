import { describe, expect, test } from "vitest";
import { keyGate, queueGate } from "../../../../src/engine/core/admission/gate.ts";
import { callbackTo } from "../../core/commandRunner.ts";
import { StoreFixture } from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";

/** The holders of the places of queues and flow-control keys. */
export function describeHolders(open: OpenStore): void {
  const openWithAccounts = async (): Promise<StoreFixture> => {
    const fixture = await StoreFixture.open(open);
    await fixture.account();
    await fixture.account("other");
    return fixture;
  };
  const listHolders = async (
    fixture: StoreFixture,
    gate: ReturnType<typeof queueGate | typeof keyGate>,
    { account = "acc", count = 100 } = {},
  ): Promise<string[] | null> => {
    const found: string[] = [];
    let cursor: string | null = null;
    do {
      const page: Awaited<ReturnType<typeof fixture.store.read.holders>> = await fixture.store.read.holders({
        ...{ account, gate, count, cursor },
      });
      if (!page) return null;
      for (const { messageId, holders, message } of page.holders) {
        expect(message?.id).toBe(holders[0]?.id);
        found.push(holders[0]?.id === messageId ? messageId : `${messageId}>${holders[0]?.id}`);
      }
      cursor = page.cursor;
    } while (cursor !== null);
    return found;
  };

  describe("the holders", () => {
    test("of a queue are messages in flight, retries, callbacks and cancelled requests", async () => {
      const fixture = await openWithAccounts();
      await fixture.store.execute("upsertQueue", { account: "acc", name: "q", parallelism: 4 });
      const sending = await fixture.sent({ queue: "q" });
      const retried = await fixture.sent({ queue: "q", retryDelay: "60000" });
      await fixture.settle(retried, { status: 503 });
      const done = await fixture.sent({ queue: "q", callback: callbackTo("https://back.example/") });
      await fixture.settle(done);
      const [callback] = fixture.delivered();
      const cancelled = await fixture.sent({ queue: "q" });
      await fixture.store.execute("cancel", { account: "acc", messageIds: [cancelled.message.id] });
      await fixture.send({ queue: "q" });
      await fixture.sent({ queue: "other" });
      await fixture.sent({ queue: "q" }, "other");
      const expected = [
        sending.message.id,
        retried.message.id,
        `${done.message.id}>${callback?.message.id}`,
        cancelled.message.id,
      ];
      for (const count of [1, 3, 4, 100])
        expect(await listHolders(fixture, queueGate("q"), { count })).toEqual(expected);
      const page = await fixture.store.read.holders({
        ...{ account: "acc", gate: queueGate("q"), cursor: null, count: 1 },
      });
      expect(page?.limiter).toMatchObject({ running: 4, waiting: 1, parallelism: 4 });
      expect(await listHolders(fixture, queueGate("q"), { account: "other" })).toHaveLength(1);
      expect(await listHolders(fixture, queueGate("none"))).toBeNull();
    });

    test("of a key are messages in flight, and those that wait for a limit of the account", async () => {
      const fixture = await openWithAccounts();
      const change = { limits: { globalParallelism: 2 } };
      await fixture.store.execute("changeAccount", { account: "acc", change });
      const flowControl = { key: "k", parallelism: 3, rate: null, period: null };
      const cancelled = await fixture.sent({ flowControl });
      const sending = await fixture.sent({ flowControl });
      const reserved = await fixture.send({ flowControl });
      await fixture.send({ flowControl });
      await fixture.send({ flowControl, delay: 60_000 });
      await fixture.send({ flowControl: { ...flowControl, key: "l" } });
      await fixture.sent({ flowControl }, "other");
      await fixture.store.execute("cancel", { account: "acc", messageIds: [cancelled.message.id] });
      const expected = [cancelled.message.id, sending.message.id, reserved];
      for (const count of [1, 2, 3, 100])
        expect(await listHolders(fixture, keyGate("k"), { count })).toEqual(expected);
      expect(await listHolders(fixture, keyGate("k"), { account: "other" })).toHaveLength(1);
      expect(await listHolders(fixture, keyGate("none"))).toBeNull();
    });
  });
}
