import { describe, expect, test } from "vitest";
import { logBodyBytes, memory, spans } from "../../../src/core/values/limits.ts";
import { earliest, latest, letterTo, World } from "../world.ts";
import type { OpenStore } from "../world.ts";

const body = (size: number): Uint8Array => new Uint8Array(size).fill(65);
const mebibyte = 1024 * 1024;
const url = (index: number): string => `https://host-${index}.example/`;

/** Publishes messages of ten bytes that are due, and not leased yet, each to a host of its own. */
async function tens(world: World, count: number): Promise<string[]> {
  const { hands } = world;
  world.hands = { total: 0, perHost: 0 };
  const letters = Array.from({ length: count }, (_, index) => letterTo({ body: body(10), url: url(index) }));
  const results = await world.publish(letters);
  world.hands = hands;
  return results.flatMap((result) => ("messageId" in result ? [result.messageId] : []));
}

/** How much is in memory at once. */
export function describeBytes(open: OpenStore): void {
  describe("bytes", () => {
    test("a claim loads so many at most, at least one message, and leaves the others for the next", async () => {
      const world = await World.open(open);
      await world.account();
      const ids = await tens(world, 4);
      world.bytes.perBatch = 25;
      expect(await world.store.execute("claim", { limit: 10 })).toMatchObject({ more: true });
      expect(world.delivered().map(({ message }) => message.id)).toEqual(ids.slice(0, 2));
      world.bytes.perBatch = 1;
      expect(await world.store.execute("claim", { limit: 10 })).toMatchObject({ more: true });
      expect(world.delivered().map(({ message }) => message.id)).toEqual(ids.slice(2, 3));
      expect(await world.store.execute("claim", { limit: 10 })).toMatchObject({ more: false });
      expect(world.delivered().map(({ message }) => message.body)).toEqual([body(10)]);
      expect(world.faults).toEqual([]);
    });

    test("so does whoever serves a line, and nobody in it is forgotten", async () => {
      const world = await World.open(open);
      await world.account();
      world.hands = { total: 10, perHost: 1 };
      const running = await world.sent();
      const ids = [];
      for (let count = 0; count < 3; count++) ids.push(await world.send({ body: body(10) }));
      expect(await world.claim()).toEqual([]);
      world.hands = { total: 10, perHost: 10 };
      world.bytes.perBatch = 15;
      await world.settle(running);
      expect(world.delivered().map(({ message }) => message.id)).toEqual(ids.slice(0, 1));
      expect(await world.store.nextDueAt()).toBe(world.clock.now);
      expect((await world.claim()).map(({ message }) => message.id)).toEqual(ids.slice(1, 2));
      expect((await world.claim()).map(({ message }) => message.id)).toEqual(ids.slice(2));
      expect(await world.store.nextDueAt()).toBe(world.clock.now + spans.lease);
    });

    test("no more are in delivery than a node has room for; what finds none stands in line", async () => {
      const world = await World.open(open);
      await world.account();
      world.bytes.total = 15;
      const ids = await tens(world, 3);
      expect((await world.claim()).map(({ message }) => message.id)).toEqual(ids.slice(0, 2));
      expect((await world.store.read.message("acc", ids[2] ?? ""))?.state).toMatchObject({ state: "held", size: 10 });
      expect((await world.send({ url: "https://other.example/" })) && world.delivered()).toEqual([]);
      for (const id of ids) world.putDown(id);
      world.clock.now += spans.lineCheck;
      expect((await world.claim()).map(({ message }) => message.id)).toContain(ids[2]);
    });

    test("a list ends early with large bodies, and goes on behind the cursor; rows that do not pass cost nothing", async () => {
      const world = await World.open(open);
      await world.account();
      const large = { body: body(7 * mebibyte) };
      const died: string[] = [];
      for (let count = 0; count < 6; count++) {
        died.push((await world.die(large)).dlqId);
        world.clock.now += 1_000;
      }
      expect(6 * large.body.byteLength).toBeGreaterThan(memory.page);
      const { entries, cursor } = await world.store.read.deadLetters(earliest({ count: 10 }));
      expect(entries.map(({ letter }) => letter.id)).toEqual(died.slice(0, 4));
      expect(entries.every(({ envelope, letter }) => envelope.body.length === large.body.length && letter.body.length > 0)).toBe(true);
      const rest = await world.store.read.deadLetters(earliest({ count: 10, cursor }));
      expect(rest).toMatchObject({ entries: [{ letter: { id: died[4] } }, { letter: { id: died[5] } }], cursor: null });

      const log = await world.store.read.log(latest({ count: 100 }));
      expect(new Set(log.events.map((event) => event.envelope.id)).size).toBe(4);
      expect(log.events.every(({ envelope }) => envelope.body.length === large.body.length)).toBe(true);
      expect(log.events.find(({ row }) => row?.dlqId)?.row?.body.length).toBeLessThanOrEqual(logBodyBytes);
      const older = await world.store.read.log(latest({ count: 100, cursor: log.cursor }));
      expect(older).toMatchObject({ cursor: null });
      expect(log.events.length + older.events.length).toBe(6 * 4);
    });
  });
}
