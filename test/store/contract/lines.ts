import { describe, expect, test } from "vitest";
import { spans } from "../../../src/core/values/limits.ts";
import type { Delivery } from "../../../src/core/model/message.ts";
import { accountNamed, letterTo, World } from "../world.ts";
import type { OpenStore } from "../world.ts";

const idsOf = (deliveries: readonly Delivery[]): string[] => deliveries.map(({ message }) => message.id);

/** Publishes messages that find no hand, so that a claim makes them stand in line. Answers their ids. */
async function queueUp(world: World, count: number): Promise<string[]> {
  const hands = world.hands;
  world.hands = { total: 0, perHost: 0 };
  const results = await world.publish(Array.from({ length: count }, () => letterTo()));
  const claimed = await world.claim();
  expect(claimed).toEqual([]);
  world.hands = hands;
  return results.flatMap((result) => ("messageId" in result ? [result.messageId] : []));
}

const stateOf = async (world: World, id: string) => (await world.store.read.message("acc", id))?.state?.state;

/** Hands, and the lines of those that wait for one. */
export function describeLines(open: OpenStore): void {
  describe("lines", () => {
    test("what finds no free hand for its host is held; other hosts go on", async () => {
      const world = await World.open(open);
      await world.account();
      world.hands = { total: 10, perHost: 1 };
      const running = await world.sent();
      const held = await world.send();
      const other = await world.send({ url: "https://two.example/" });
      expect(idsOf(await world.claim())).toEqual([other]);
      expect((await world.store.read.message("acc", held))?.state).toMatchObject({ state: "held", dueAt: null, leasedBy: null });
      await world.settle(running);
      expect(idsOf(world.delivered())).toEqual([held]);
      expect(await world.states(held)).toEqual(["CREATED", "ACTIVE"]);
    });

    test("hold back what is more than an account may have under way to one endpoint; other hosts, and other accounts, go on", async () => {
      const world = await World.open(open);
      await world.account();
      await world.store.execute("createAccount", accountNamed("other"));
      await world.store.execute("changeAccount", { account: "acc", change: { limits: { parallelism: 2 } } });
      const running = [await world.sent(), await world.sent()];
      const held = await world.send();
      const elsewhere = await world.send({ url: "https://two.example/" });
      const others = await world.publish([letterTo(), letterTo(), letterTo()], "other");
      await world.claim();
      expect((await world.store.read.message("acc", held))?.state).toMatchObject({
        state: "held",
        line: "endpoint:https://one.example/hook",
      });
      const ids = others.flatMap((result) => ("messageId" in result ? [result.messageId] : []));
      for (const id of [elsewhere, ...ids]) expect(await world.states(id, ids.includes(id) ? "other" : "acc")).toContain("ACTIVE");
      world.delivered();
      if (running[0]) await world.settle(running[0]);
      expect(idsOf(world.delivered())).toEqual([held]);
    });

    test("are served in the order of arrival, and newcomers stand behind", async () => {
      const world = await World.open(open);
      await world.account();
      world.hands = { total: 10, perHost: 1 };
      const running = await world.sent();
      const [one, two] = [await world.send(), await world.send()];
      await world.claim();
      await world.settle(running);
      const [next] = world.delivered();
      const newcomer = await world.send();
      await world.claim();
      expect(next?.message.id).toBe(one);
      if (next) await world.settle(next);
      const [second] = world.delivered();
      if (second) await world.settle(second);
      expect(idsOf([...(second ? [second] : []), ...world.delivered()])).toEqual([two, newcomer]);
    });

    test("are looked at after a second, when hands came free elsewhere", async () => {
      const world = await World.open(open);
      await world.account();
      const ids = await queueUp(world, 3);
      expect(await world.store.nextDueAt()).toBe(world.clock.now + spans.lineCheck);
      world.clock.now += spans.lineCheck;
      expect(idsOf(await world.claim())).toEqual(ids);
      expect(await world.store.nextDueAt()).toBe(world.clock.now + spans.lease);
    });

    test("are due again when there is still no hand", async () => {
      const world = await World.open(open);
      await world.account();
      await queueUp(world, 2);
      world.hands = { total: 0, perHost: 0 };
      world.clock.now += spans.lineCheck;
      expect(await world.claim()).toEqual([]);
      expect(await world.store.nextDueAt()).toBe(world.clock.now + spans.lineCheck);
    });

    test("are due at once when they are woken, and hosts without a line are passed over", async () => {
      const world = await World.open(open);
      await world.account();
      const [first] = await queueUp(world, 2);
      const host = (await world.store.read.message("acc", first ?? ""))?.state?.host ?? "";
      expect(await world.store.execute("wakeLines", { account: "acc", hosts: [host, "none.example"] })).toEqual({ woken: 1 });
      expect(await world.store.nextDueAt()).toBe(world.clock.now);
    });

    test("who comes to stand in line is not forgotten when a delivery of the host ends in the same batch", async () => {
      const world = await World.open(open);
      await world.account();
      world.hands = { total: 10, perHost: 1 };
      const running = await world.sent();
      const held = await world.send();
      // The hand is still taken when the batch begins, so neither of the two can serve it.
      const settle = world.store.execute("claim", { limit: 10 }).then(() => undefined);
      const report = world.store.execute("settle", { ...reportOf(running), status: 200 });
      await Promise.all([settle, report]);
      expect(await stateOf(world, held)).toBe("held");
      world.hands = { total: 10, perHost: 10 };
      world.clock.now += spans.lineCheck;
      expect(idsOf(await world.claim())).toEqual([held]);
    });

    test("nobody is forgotten when several deliveries end at once and more stand in line than are looked at", async () => {
      const world = await World.open(open);
      await world.account();
      const running = [await world.sent(), await world.sent()];
      const ids = await queueUp(world, 30);
      await Promise.all(running.map((delivery) => world.settle(delivery)));
      const sent = idsOf(world.delivered());
      expect(sent.length).toBeGreaterThan(0);
      for (let turn = 0; turn < 10 && sent.length < ids.length; turn++) {
        world.clock.now = Math.max(world.clock.now, (await world.store.nextDueAt()) ?? 0);
        sent.push(...idsOf(await world.claim()));
      }
      expect(sent).toEqual(ids);
    });

    test("whoever is cancelled leaves the line", async () => {
      const world = await World.open(open);
      await world.account();
      const [one, two] = await queueUp(world, 2);
      await world.store.execute("cancel", { account: "acc", messageIds: [one ?? ""] });
      world.clock.now += spans.lineCheck;
      expect(idsOf(await world.claim())).toEqual([two]);
      expect(await world.store.nextDueAt()).toBe(world.clock.now + spans.lease);
    });

    test("a line whose last message was cancelled ends", async () => {
      const world = await World.open(open);
      await world.account();
      const messageIds = await queueUp(world, 2);
      await world.store.execute("cancel", { account: "acc", messageIds });
      world.clock.now += spans.lineCheck;
      expect(await world.claim()).toEqual([]);
      expect(await world.store.nextDueAt()).toBeNull();
      await world.sent();
    });

    test("of two accounts to one host are two lines", async () => {
      const world = await World.open(open);
      await world.account();
      await world.account("b");
      await queueUp(world, 1);
      await world.sent({}, "b");
      world.clock.now += spans.lineCheck;
      expect(await world.claim()).toMatchObject([{ message: { account: "acc" } }]);
    });
  });
}

const reportOf = ({ message, attempt }: Delivery) => ({
  ...{ account: message.account, messageId: message.id, host: "one.example", attempt },
  ...{ headers: [], body: new Uint8Array(0), error: null, took: 1 },
});
