import { describe, expect, test } from "vitest";
import { logBodyBytes, memory, spans } from "../../../../src/engine/core/values/limits.ts";
import { makeOldestFirstQuery, makeLogQuery, makeInput, StoreFixture } from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";

const body = (size: number): Uint8Array => new Uint8Array(size).fill(65);
const mebibyte = 1024 * 1024;
const url = (index: number): string => `https://host-${index}.example/`;

/** Publishes messages of 10 bytes that are due but not leased, each to its own host. */
async function publishSmallMessages(fixture: StoreFixture, count: number): Promise<string[]> {
  const { capacity } = fixture;
  fixture.capacity = { total: 0, perHost: 0 };
  const inputs = Array.from({ length: count }, (_, index) => makeInput({ body: body(10), url: url(index) }));
  const results = await fixture.publish(inputs);
  fixture.capacity = capacity;
  return results.flatMap((result) => ("messageId" in result ? [result.messageId] : []));
}

/** The limits of the bytes that are in memory at once. */
export function describeBytes(open: OpenStore): void {
  describe("bytes", () => {
    test("a claim loads at least one message, up to the limit, and leaves the rest", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const ids = await publishSmallMessages(fixture, 4);
      fixture.bytes.perBatch = 25;
      expect(await fixture.store.execute("claim", { limit: 10 })).toMatchObject({ more: true });
      expect(fixture.delivered().map(({ message }) => message.id)).toEqual(ids.slice(0, 2));
      fixture.bytes.perBatch = 1;
      expect(await fixture.store.execute("claim", { limit: 10 })).toMatchObject({ more: true });
      expect(fixture.delivered().map(({ message }) => message.id)).toEqual(ids.slice(2, 3));
      expect(await fixture.store.execute("claim", { limit: 10 })).toMatchObject({ more: false });
      expect(fixture.delivered().map(({ message }) => message.body)).toEqual([body(10)]);
      expect(fixture.faults).toEqual([]);
    });

    test("a served waitlist loads up to the limit and skips no message", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      fixture.capacity = { total: 10, perHost: 1 };
      const running = await fixture.sent();
      const ids = [];
      for (let count = 0; count < 3; count++) ids.push(await fixture.send({ body: body(10) }));
      expect(await fixture.claim()).toEqual([]);
      fixture.capacity = { total: 10, perHost: 10 };
      fixture.bytes.perBatch = 15;
      await fixture.settle(running);
      expect(fixture.delivered().map(({ message }) => message.id)).toEqual(ids.slice(0, 1));
      expect(await fixture.store.nextDueAt()).toBe(fixture.clock.now);
      expect((await fixture.claim()).map(({ message }) => message.id)).toEqual(ids.slice(1, 2));
      expect((await fixture.claim()).map(({ message }) => message.id)).toEqual(ids.slice(2));
      expect(await fixture.store.nextDueAt()).toBe(fixture.clock.now + spans.lease);
    });

    test("deliveries use up to the memory of a node, and other messages are held", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      fixture.bytes.total = 15;
      const ids = await publishSmallMessages(fixture, 3);
      expect((await fixture.claim()).map(({ message }) => message.id)).toEqual(ids.slice(0, 2));
      expect((await fixture.store.read.message("acc", ids[2] ?? ""))?.state).toMatchObject({
        state: "held",
        size: 10,
      });
      expect((await fixture.send({ url: "https://other.example/" })) && fixture.delivered()).toEqual([]);
      for (const id of ids) fixture.forgetDelivery(id);
      fixture.clock.now += spans.waitlistCheck;
      expect((await fixture.claim()).map(({ message }) => message.id)).toContain(ids[2]);
    });

    test("a list with large bodies ends early and continues; excluded rows do not count", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const large = { body: body(7 * mebibyte) };
      const died: string[] = [];
      for (let count = 0; count < 6; count++) {
        died.push((await fixture.publishFailing(large)).dlqId);
        fixture.clock.now += 1_000;
      }
      expect(6 * large.body.byteLength).toBeGreaterThan(memory.page);
      const { entries, cursor } = await fixture.store.read.deadLetters(makeOldestFirstQuery({ count: 10 }));
      expect(entries.map(({ deadLetter: input }) => input.id)).toEqual(died.slice(0, 4));
      expect(
        entries.every(
          ({ message, deadLetter: input }) =>
            message.body.length === large.body.length && input.body.length > 0,
        ),
      ).toBe(true);
      const rest = await fixture.store.read.deadLetters(makeOldestFirstQuery({ count: 10, cursor }));
      expect(rest).toMatchObject({
        entries: [{ deadLetter: { id: died[4] } }, { deadLetter: { id: died[5] } }],
        cursor: null,
      });

      const log = await fixture.store.read.log(makeLogQuery({ count: 100 }));
      expect(new Set(log.events.map((event) => event.message.id)).size).toBe(4);
      expect(log.events.every(({ message }) => message.body.length === large.body.length)).toBe(true);
      expect(log.events.find(({ row }) => row?.dlqId)?.row?.body.length).toBeLessThanOrEqual(logBodyBytes);
      const older = await fixture.store.read.log(makeLogQuery({ count: 100, cursor: log.cursor }));
      expect(older).toMatchObject({ cursor: null });
      expect(log.events.length + older.events.length).toBe(6 * 4);
    });
  });
}
