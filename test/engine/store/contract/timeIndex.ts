import { describe, expect, test } from "vitest";
import type { Filter } from "../../../../src/engine/core/search/filter.ts";
import { matchesFilter } from "../../../../src/engine/core/search/filter.ts";
import type { LogEntry } from "../../../../src/engine/store/queries/logs.ts";
import { makeInput, makeOldestFirstQuery, makeLogQuery, StoreFixture } from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";

const day = 24 * 60 * 60 * 1_000;

const urls = [
  "https://one.example/a",
  "https://one.example/b?x=1",
  "https://two.example:8443/a",
  "https://three.example/",
  "https://x.example/once",
];

/**
 * Publishes messages over three days that are sent at once, sent late, delivered late or never. The last URL
 * is used once, on the second day.
 */
async function fillThreeDays(fixture: StoreFixture): Promise<void> {
  await fixture.account();
  fixture.clock.now = Math.ceil(fixture.clock.now / day) * day + 5;
  const start = fixture.clock.now;
  const late: Awaited<ReturnType<StoreFixture["sent"]>>[] = [];
  for (let n = 0; n < 60; n++) {
    fixture.clock.now = Math.max(fixture.clock.now, start + n * 1.2 * 60 * 60 * 1_000 + (n % 3) * 4_000);
    const input = {
      url: urls[n === 30 ? 4 : n % 4] ?? "",
      callerIp: n % 5 === 0 ? null : `192.0.2.${n % 5}`,
      labels: n % 2 ? ["odd"] : [],
    };
    if (n % 7 === 0) await fixture.send({ ...input, delay: 30 * day });
    else if (n % 3 === 0) late.push(await fixture.sent(input));
    else await fixture.settle(await fixture.sent(input));
    if (late.length === 4)
      for (const one of late.splice(0, 3)) await fixture.settle(one, { status: n % 2 ? 200 : 500 });
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

async function readAllPages(
  fixture: StoreFixture,
  query: Parameters<typeof makeLogQuery>[0],
): Promise<LogEntry[]> {
  const events: LogEntry[] = [];
  for (let cursor: string | null = null; ;) {
    const page = await fixture.store.read.log(makeLogQuery({ ...query, cursor }));
    events.push(...page.events);
    if (page.cursor === null) return events;
    cursor = page.cursor;
  }
}

const formatEvents = (events: readonly LogEntry[]): string[] =>
  events.map(({ message, state, time }) => `${time} ${message.id} ${state}`);

/**
 * Expects each filter to find exactly the matching events, in both directions, in pages of any size, and
 * between any two times.
 */
async function expectFiltersMatch(fixture: StoreFixture): Promise<void> {
  const all = (await readAllPages(fixture, { order: "earliestFirst", count: 100 })).map((event) => ({
    event,
    seen: { ...event },
  }));
  const times = all.map(({ event }) => event.time);
  const [from = 0, to = 0] = [times[Math.floor(times.length / 3)], times[Math.floor(times.length / 2)]];
  const within: Filter[] = [{}, { from, to }, { to: from }];
  for (const filter of within.flatMap((bounds) => filters.map((one) => Object.assign({}, one, bounds)))) {
    const expected = formatEvents(
      all.filter(({ seen }) => matchesFilter(filter, seen)).map(({ event }) => event),
    );
    expect(
      formatEvents(await readAllPages(fixture, { filter, order: "earliestFirst", count: 3 })),
      JSON.stringify(filter),
    ).toEqual(expected);
    expect(formatEvents(await readAllPages(fixture, { filter, count: 100 })), JSON.stringify(filter)).toEqual(
      expected.toReversed(),
    );
  }
}

const oldPaths = ["/a", "/b", "/c", "/d", "/e", "/f"];

/** Publishes messages on one day that wait for a month: many, and then one to each of the old paths. */
async function fillOldDay(fixture: StoreFixture): Promise<void> {
  await fixture.account();
  fixture.clock.now = Math.ceil(fixture.clock.now / day) * day;
  // More messages than one read of a search returns.
  await fixture.publish(Array.from({ length: 60 }, () => makeInput({ delay: 30 * day })));
  for (const path of oldPaths) {
    fixture.clock.now += 60_000;
    await fixture.send({ url: `https://one.example${path}`, delay: 30 * day });
  }
}

/** Removes the old day in small parts, and checks each old path after each part. */
async function expireInParts(fixture: StoreFixture, check: (path: string) => Promise<void>): Promise<void> {
  fixture.clock.now += 5 * day;
  const { now } = fixture.clock;
  const retention = { log: 3 * day, deadLetters: 3 * day };
  let parts = 0;
  for (let more = true; more; parts++) {
    ({ more } = await fixture.store.execute("expire", { account: "acc", retention, now, limit: 4 }));
    for (const path of oldPaths) await check(path);
  }
  expect(parts).toBeGreaterThan(4);
}

/** Searches by time, for values without a tag. */
export function describeTimeIndex(open: OpenStore): void {
  describe("time index entries", () => {
    test("find all events of a URL, host, path or caller, and no others", async () => {
      const fixture = await StoreFixture.open(open);
      await fillThreeDays(fixture);
      await expectFiltersMatch(fixture);
      const { events } = await fixture.store.read.log(
        makeOldestFirstQuery({ filter: { urls: urls.slice(4) } }),
      );
      expect(events.map(({ state }) => state)).toEqual(["CREATED", "ACTIVE", "DELIVERED"]);
    });

    test("are removed by day, and older events are still found", async () => {
      const fixture = await StoreFixture.open(open);
      await fillThreeDays(fixture);
      const sightings = async () =>
        (await fixture.store.read.listResources("timeIndex" as "urlGroups", { account: "acc", limit: 1_000 }))
          .length;
      const before = await sightings();
      const retention = { log: 1.5 * day, deadLetters: 1.5 * day };
      const { now } = fixture.clock;
      while ((await fixture.store.execute("expire", { account: "acc", retention, now, limit: 20 })).more);
      const left = await sightings();
      expect(left).toBeGreaterThan(before / 3);
      expect(left).toBeLessThan(before * 0.8);
      await expectFiltersMatch(fixture);
      const { events } = await fixture.store.read.log(makeOldestFirstQuery());
      expect(now - (events[0]?.time ?? 0)).toBeGreaterThan(2 * day);
      fixture.clock.now += 3 * day;
      while (
        (
          await fixture.store.execute("expire", {
            account: "acc",
            retention,
            now: fixture.clock.now,
            limit: 20,
          })
        ).more
      );
      expect(await sightings()).toBe(0);
      await expectFiltersMatch(fixture);
    });

    test("do not hide unfinished messages while they are removed", async () => {
      const fixture = await StoreFixture.open(open);
      await fillOldDay(fixture);
      const { listUnfinished, unfinished } = fixture.store.read;
      await expireInParts(fixture, async (path) => {
        const query = { account: "acc", filter: { paths: [path] }, cursor: null, count: 10 };
        const { entries } = await listUnfinished({ ...query, sort: "created", order: "earliestFirst" });
        expect(entries.map(({ message }) => message.url)).toEqual([`https://one.example${path}`]);
        expect((await unfinished(query)).messageIds).toEqual(entries.map(({ state }) => state.id));
      });
    });

    test.each([0, 60])(
      "do not hide events while they are removed, after %i deliveries",
      async (deliveries) => {
        const fixture = await StoreFixture.open(open);
        await fillOldDay(fixture);
        for (let n = 0; n < deliveries; n++) await fixture.settle(await fixture.sent());
        await expireInParts(fixture, async (path) => {
          const { events } = await fixture.store.read.log(
            makeOldestFirstQuery({ filter: { paths: [path] }, count: 10 }),
          );
          expect(formatEvents(events)).toEqual([expect.stringMatching(/ CREATED$/)]);
        });
      },
    );

    test("of one account do not affect another", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.account("other");
      await fixture.settle(await fixture.sent({ url: urls[4] ?? "" }));
      const { events } = await fixture.store.read.log({
        ...makeOldestFirstQuery({ filter: { urls: urls.slice(4) } }),
        account: "other",
      });
      expect(events).toEqual([]);
    });

    test("are written once for all events within 5 s", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      fixture.clock.now = Math.ceil(fixture.clock.now / 5_000) * 5_000;
      for (let n = 0; n < 20; n++) {
        fixture.clock.now += 300;
        await fixture.settle(await fixture.sent({ callerIp: null }));
      }
      const rows = await fixture.store.read.listResources("timeIndex" as "urlGroups", {
        account: "acc",
        limit: 1_000,
      });
      expect(rows).toHaveLength(2 * 3);
    });
  });
}
