import { describe, expect, test } from "vitest";
import type { Filter } from "../../../src/core/search/filter.ts";
import { passes } from "../../../src/core/search/filter.ts";
import type { LogEvent } from "../../../src/store/queries/logs.ts";
import { earliest, latest, World } from "../world.ts";
import type { OpenStore } from "../world.ts";

const day = 24 * 60 * 60 * 1_000;

const urls = [
  "https://one.example/a",
  "https://one.example/b?x=1",
  "https://two.example:8443/a",
  "https://three.example/",
  "https://x.example/once",
];

/** Over three days: what is sent at once, sent late, delivered late or never. The last URL is used once, on the second day. */
async function threeDays(world: World): Promise<void> {
  await world.account();
  world.clock.now = Math.ceil(world.clock.now / day) * day + 5;
  const start = world.clock.now;
  const late: Awaited<ReturnType<World["sent"]>>[] = [];
  for (let n = 0; n < 60; n++) {
    world.clock.now = Math.max(world.clock.now, start + n * 1.2 * 60 * 60 * 1_000 + (n % 3) * 4_000);
    const letter = {
      url: urls[n === 30 ? 4 : n % 4] ?? "",
      callerIp: n % 5 === 0 ? null : `192.0.2.${n % 5}`,
      labels: n % 2 ? ["odd"] : [],
    };
    if (n % 7 === 0) await world.send({ ...letter, delay: 30 * day });
    else if (n % 3 === 0) late.push(await world.sent(letter));
    else await world.settle(await world.sent(letter));
    if (late.length === 4) for (const one of late.splice(0, 3)) await world.settle(one, { status: n % 2 ? 200 : 500 });
  }
}

const filters: Filter[] = [
  ...urls.map((url) => ({ urls: [url] })),
  { urls: ["https://none.example/"] },
  { urls: [urls[4] ?? "", urls[3] ?? ""] },
  { hosts: ["ONE.example"] },
  { hosts: ["two.example"] },
  { hosts: ["two.example:8443", "x.example"], paths: ["/a", "/once"] },
  { paths: ["/"] },
  { paths: ["/a"], callerIps: ["192.0.2.2"] },
  { callerIps: ["192.0.2.1", "192.0.2.3"] },
  { urls: [urls[0] ?? ""], hosts: ["three.example"] },
  { urls: [urls[1] ?? ""], labels: ["odd"] },
  { urls: [urls[1] ?? ""], states: ["DELIVERED"] },
  { paths: ["/a"], states: ["CREATED"] },
  { hosts: Array.from({ length: 80 }, (_, n) => `h${n}.example`).concat("three.example") },
];

async function pagesOf(world: World, query: Parameters<typeof latest>[0]): Promise<LogEvent[]> {
  const events: LogEvent[] = [];
  for (let cursor: string | null = null; ;) {
    const page = await world.store.read.log(latest({ ...query, cursor }));
    events.push(...page.events);
    if (page.cursor === null) return events;
    cursor = page.cursor;
  }
}

const told = (events: readonly LogEvent[]): string[] => events.map(({ envelope, state, time }) => `${time} ${envelope.id} ${state}`);

/** What a filter finds is what it lets through of everything, both ways, in pages of any size, and between any two times. */
async function expectTruth(world: World): Promise<void> {
  const all = (await pagesOf(world, { order: "earliestFirst", count: 100 })).map((event) => ({ event, seen: { ...event } }));
  const times = all.map(({ event }) => event.time);
  const [from = 0, to = 0] = [times[Math.floor(times.length / 3)], times[Math.floor(times.length / 2)]];
  const within: Filter[] = [{}, { from, to }, { to: from }];
  for (const filter of within.flatMap((bounds) => filters.map((one) => Object.assign({}, one, bounds)))) {
    const expected = told(all.filter(({ seen }) => passes(filter, seen)).map(({ event }) => event));
    expect(told(await pagesOf(world, { filter, order: "earliestFirst", count: 3 })), JSON.stringify(filter)).toEqual(expected);
    expect(told(await pagesOf(world, { filter, count: 100 })), JSON.stringify(filter)).toEqual(expected.toReversed());
  }
}

/** What is found by when it was told, as it has no marks of its own. */
export function describeSightings(open: OpenStore): void {
  describe("sightings", () => {
    test("lead to all that was told of a URL, host, path or caller, and to nothing else", async () => {
      const world = await World.open(open);
      await threeDays(world);
      await expectTruth(world);
      const { events } = await world.store.read.log(earliest({ filter: { urls: urls.slice(4) } }));
      expect(events.map(({ state }) => state)).toEqual(["CREATED", "ACTIVE", "DELIVERED"]);
    });

    test("go with their days, and what is older is found all the same", async () => {
      const world = await World.open(open);
      await threeDays(world);
      const sightings = async () => (await world.store.read.allSetUp("sightings" as "groups", { account: "acc", limit: 1_000 })).length;
      const before = await sightings();
      const retention = { log: 1.5 * day, deadLetters: 1.5 * day };
      const { now } = world.clock;
      while ((await world.store.execute("expire", { account: "acc", retention, now, limit: 20 })).more);
      const left = await sightings();
      expect(left).toBeGreaterThan(before / 3);
      expect(left).toBeLessThan(before * 0.8);
      await expectTruth(world);
      const { events } = await world.store.read.log(earliest());
      expect(now - (events[0]?.time ?? 0)).toBeGreaterThan(2 * day);
      world.clock.now += 3 * day;
      while ((await world.store.execute("expire", { account: "acc", retention, now: world.clock.now, limit: 20 })).more);
      expect(await sightings()).toBe(0);
      await expectTruth(world);
    });

    test("of one account lead nobody else anywhere", async () => {
      const world = await World.open(open);
      await world.account();
      await world.account("other");
      await world.settle(await world.sent({ url: urls[4] ?? "" }));
      const { events } = await world.store.read.log({ ...earliest({ filter: { urls: urls.slice(4) } }), account: "other" });
      expect(events).toEqual([]);
    });

    test("are written once for all that is told within five seconds", async () => {
      const world = await World.open(open);
      await world.account();
      world.clock.now = Math.ceil(world.clock.now / 5_000) * 5_000;
      for (let n = 0; n < 20; n++) {
        world.clock.now += 300;
        await world.settle(await world.sent({ callerIp: null }));
      }
      const rows = await world.store.read.allSetUp("sightings" as "groups", { account: "acc", limit: 1_000 });
      expect(rows).toHaveLength(2 * 3);
    });
  });
}
