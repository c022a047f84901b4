import { expect, test } from "vitest";
import { spans } from "../../src/core/limits.ts";
import type { Delivery } from "../../src/core/message.ts";
import { freshDatabase } from "../postgres.ts";
import { randomFrom } from "./chance.ts";
import { ask, openNode } from "./postgresDatabase.ts";
import { accountNamed, closedAfterwards, letterTo, outcomeOf, TestClock, World } from "./world.ts";

// Several nodes on one database, at the same time. What they must not do is happen twice, get lost, or wait for each other in a circle.

async function nodes(count = 2): Promise<{ url: string; clock: TestClock; worlds: [World, World, ...World[]] }> {
  const url = await freshDatabase();
  const clock = new TestClock();
  const names = Array.from({ length: count }, (_, index) => `nod_${index}`);
  // At the same time as well: of those that find no tables one makes them.
  const worlds = await Promise.all(
    names.map(async (node, index) => new World(closedAfterwards(await openNode(url, clock, { node, seed: index + 1 })), clock, node)),
  );
  const [a, b, ...others] = worlds;
  if (!a || !b) throw new Error("two at least");
  await a.account();
  return { url, clock, worlds: [a, b, ...others] };
}

const idsOf = (deliveries: readonly Delivery[]): string[] => deliveries.map(({ message }) => message.id);

test("nodes that open an empty database at once find one account between them", async () => {
  const { worlds } = await nodes(4);
  const made = await Promise.all(worlds.map(({ store }) => store.execute("createAccount", accountNamed("second"))));
  for (const account of made) expect(account).toEqual(made[0]);
  expect(await worlds[1].store.read.accounts()).toHaveLength(2);
});

test("nodes that claim at once get each message once", async () => {
  const { worlds, clock } = await nodes(3);
  const [a] = worlds;
  const results = await a.publish(Array.from({ length: 300 }, () => letterTo({ delay: 1 })));
  clock.now += 1;
  for (const world of worlds) world.hands = { total: 1_000, perHost: 1_000 };
  const claimed: Delivery[] = [];
  for (let turn = 0; turn < 20; turn++) claimed.push(...(await Promise.all(worlds.map((world) => world.claim(17)))).flat());
  expect(claimed).toHaveLength(300);
  expect(new Set(idsOf(claimed))).toEqual(new Set(results.map((result) => ("messageId" in result ? result.messageId : ""))));
  for (const world of worlds) expect(await world.claim()).toEqual([]);
});

test("nodes that publish with one deduplication id at once make one message", async () => {
  const { worlds } = await nodes(3);
  const [a] = worlds;
  for (let round = 0; round < 20; round++) {
    // In different orders, so that they could wait for each other in a circle.
    const letters = ["x", "y", "z"].map((id) => letterTo({ deduplication: `${id}${round}`, delay: 1_000 }));
    const all = await Promise.all(worlds.map((world, index) => world.publish(index === 1 ? letters.toReversed() : letters)));
    const [first, second, third] = [all[0], all[1]?.toReversed(), all[2]];
    for (const position of [0, 1, 2]) {
      const results = [first, second, third].map((list) => list?.[position]);
      expect(new Set(results.map((result) => result && "messageId" in result && result.messageId)).size).toBe(1);
      expect(results.filter((result) => result && "deduplicated" in result && !result.deduplicated)).toHaveLength(1);
    }
  }
  expect((await a.store.read.unfinished({ account: "acc", filter: {}, cursor: null, count: 100 })).messageIds).toHaveLength(60);
});

test("nodes that rotate keys at once make a chain in which no pair is lost", async () => {
  const { worlds } = await nodes();
  const pairs = [];
  for (let round = 0; round < 10; round++) {
    pairs.push(...(await Promise.all(worlds.map(({ store }) => store.execute("rotateKeys", { account: "acc" })))));
  }
  const links = new Map(pairs.map(({ current, next }) => [current, next]));
  expect(links.size).toBe(20);
  let last = "sig_acc_2";
  for (let length = 0; length < 20; length++) last = links.get(last) ?? "broken";
  expect((await worlds[0].store.read.account("acc"))?.signingKeys.next).toBe(last);
});

test("a message that is settled on one node and cancelled on the other ends one way", async () => {
  const { worlds } = await nodes();
  const [a, b] = worlds;
  const ends = new Set<string>();
  for (let round = 0; round < 40; round++) {
    const delivery = await a.sent();
    const cancelling = () => b.store.execute("cancel", { account: "acc", messageIds: [delivery.message.id] });
    const early = round % 2 === 0 ? cancelling() : null;
    const [{ became }, { cancelled }] = await Promise.all([a.settle(delivery), early ?? cancelling()]);
    ends.add(`${became} ${cancelled}`);
    const states = await a.states(delivery.message.id);
    expect(states).toEqual(became === "late" ? ["CREATED", "ACTIVE", "CANCEL_REQUESTED", "CANCELLED"] : ["CREATED", "ACTIVE", "DELIVERED"]);
  }
  for (const end of ends) expect(["delivered 0", "late 1"]).toContain(end);
});

test("lines: each message is sent once and none is forgotten while nodes claim, settle, cancel and publish at once", async () => {
  const { worlds, clock, url } = await nodes(3);
  const random = randomFrom(7);
  const ended = new Map<string, number>();
  const known = new Set<string>();
  const running = new Map<World, Delivery[]>(worlds.map((world) => [world, []]));
  for (const world of worlds) world.hands = { total: 4, perHost: 2 };
  const end = (id: string): unknown => ended.set(id, (ended.get(id) ?? 0) + 1);

  const turn = async (world: World, publishing: boolean): Promise<void> => {
    const mine = running.get(world) ?? [];
    const work: Promise<unknown>[] = [world.store.execute("claim", { limit: 4 })];
    for (const delivery of mine.splice(0, 1 + Math.floor(random() * 3))) {
      work.push(world.settle(delivery).then(({ became }) => became === "delivered" && end(delivery.message.id)));
    }
    if (publishing) {
      const letters = ["one", "one", "two"].map((host) => letterTo({ url: `https://${host}.example/` }));
      work.push(
        world.publish(letters).then((results) => results.forEach((result) => "messageId" in result && known.add(result.messageId))),
      );
    }
    const doomed = [...known].find((id) => !ended.has(id) && random() < 0.05);
    if (doomed) {
      const cancelling = world.store.execute("cancel", { account: "acc", messageIds: [doomed] });
      work.push(cancelling.then(({ cancelled }) => cancelled === 1 && end(doomed)));
    }
    await Promise.all(work);
    mine.push(...world.delivered());
  };

  for (let round = 0; round < 25; round++) {
    await Promise.all(worlds.map((world) => turn(world, true)));
    clock.now += 10;
  }
  for (let round = 0; round < 400 && ended.size < known.size; round++) {
    await Promise.all(worlds.map((world) => turn(world, false)));
    clock.now += spans.lineCheck / 10;
  }
  expect(known.size).toBe(225);
  expect(new Set(ended.keys())).toEqual(known);
  expect([...ended.values()].every((count) => count === 1)).toBe(true);
  clock.now += spans.lineCheck;
  for (const world of worlds) await world.claim();
  expect(await ask(url, "select (select count(*) from lines)::int as lines, (select count(*) from messages)::int as messages")).toEqual([
    { lines: 0, messages: 0 },
  ]);
});

test("a report on one node's lease does not count on another", async () => {
  const { worlds, clock } = await nodes();
  const [a, b] = worlds;
  const delivery = await a.sent();
  expect(await b.store.execute("settle", outcomeOf(delivery))).toEqual({ became: "late" });
  clock.now += spans.lease;
  expect(await b.claim()).toMatchObject([{ attempt: 1 }]);
  expect(await a.settle(delivery)).toEqual({ became: "late" });
});
