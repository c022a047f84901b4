import { fc } from "../../../seeds.ts";
import { describe, expect, test } from "vitest";
import { nextCronTime } from "../../../../src/engine/core/values/cron.ts";
import type { ScheduleInput } from "../../../../src/engine/core/commands/schedule.ts";
import { Memory, memoryStore } from "../../../model/memoryStore.ts";
import { sqliteStore } from "../../../../src/engine/store/sqlite/sqliteStore.ts";
import type { Store } from "../../../../src/engine/store/store.ts";
import { freshDatabase } from "../../../postgres.ts";
import { openNode } from "../postgres/postgresDatabase.ts";
import {
  bytes,
  closeAfterTest,
  createTestFolder,
  makeLogQuery,
  makeInput,
  createSource,
  TestClock,
  StoreFixture,
} from "../storeFixture.ts";

// No time of a schedule fires twice: with several commands in one batch, with several nodes, and after a
// restart.

const second = 1000;
const minute = 60 * second;
const hour = 60 * minute;

/** A schedule that fires every five minutes, in account `acc`. */
function scheduleOf({
  queue = null,
  ...over
}: Partial<Omit<ScheduleInput, "messageInput">> & { queue?: string | null } = {}): ScheduleInput {
  const { body, ...messageInput } = makeInput({ queue });
  return { account: "acc", id: "tick", cron: "*/5 * * * *", messageInput, body, ...over };
}

describe("in one batch with a claim", () => {
  async function due(): Promise<StoreFixture> {
    const clock = new TestClock();
    const world = new StoreFixture(memoryStore(createSource(clock, "nod_a")), clock, "nod_a");
    await world.account();
    await world.send({ queue: "other", delay: hour });
    await world.store.execute("createSchedule", scheduleOf());
    clock.now = nextCronTime("*/5 * * * *", clock.now) ?? 0;
    return world;
  }

  test("a schedule with a new destination fires once, at the new destination", async () => {
    const world = await due();
    await world.settle(await world.sent({ queue: "new" }));
    const replaced = world.store.execute("createSchedule", scheduleOf({ queue: "new" }));
    expect((await Promise.all([replaced, world.claim()]))[1]).toMatchObject([
      { message: { scheduleId: "tick", queue: "new" } },
    ]);
    expect(await world.claim()).toEqual([]);
  });

  test.each(["deleteSchedule", "pauseSchedule"] as const)(
    "%s prevents a schedule from firing",
    async (name) => {
      const world = await due();
      const [, fired] = await Promise.all([
        world.store.execute(name, { account: "acc", id: "tick" }),
        world.claim(),
      ]);
      expect(fired).toEqual([]);
    },
  );

  test("two claims fire a schedule once", async () => {
    const world = await due();
    await Promise.all([
      world.store.execute("claim", { limit: 10 }),
      world.store.execute("claim", { limit: 10 }),
    ]);
    expect(world.delivered()).toMatchObject([{ message: { scheduleId: "tick" } }]);
  });
});

type OpenNodes = (clock: TestClock) => Promise<Store[]>;
const twoInMemory: OpenNodes = async (clock) => {
  const memory = new Memory();
  return ["nod_a", "nod_b"].map((node, index) => memoryStore(createSource(clock, node, index + 1), memory));
};
const twoOnPostgres: OpenNodes = async (clock) => {
  const url = await freshDatabase();
  const open = async (node: string, seed: number) =>
    closeAfterTest(await openNode(url, clock, { node, seed }));
  return [await open("nod_a", 1), await open("nod_b", 2)];
};

describe.each([
  ["memory", twoInMemory],
  ["PostgreSQL", twoOnPostgres],
])("two nodes with one %s", (_, open) => {
  test("that claim at the same time fire each schedule once", async () => {
    const clock = new TestClock();
    const worlds = (await open(clock)).map(
      (store, index) => new StoreFixture(store, clock, index === 0 ? "nod_a" : "nod_b"),
    );
    const [first] = worlds;
    if (!first) throw new Error("no node");
    await first.account();
    const ids = Array.from({ length: 40 }, (_, at) => `s${at}`);
    const body = bytes("to all");
    await Promise.all(
      ids.map((id) => first.store.execute("createSchedule", scheduleOf({ id, cron: "* * * * *", body }))),
    );
    const start = clock.now;
    for (let tick = 1; tick <= 3; tick++) {
      clock.now = (nextCronTime("* * * * *", start) ?? 0) + (tick - 1) * minute;
      for (let turn = 0; turn < 4; turn++) {
        await Promise.all(
          worlds.flatMap(({ store }) => [
            store.execute("claim", { limit: 9 }),
            store.execute("claim", { limit: 9 }),
          ]),
        );
      }
      const { events } = await first.store.read.log(
        makeLogQuery({ filter: { states: ["CREATED"] }, count: 1000 }),
      );
      const perSchedule = ids.map((id) => events.filter(({ message }) => message.scheduleId === id).length);
      expect(perSchedule).toEqual(ids.map(() => tick));
      for (const { body: sent } of events.map(({ message }) => message)) expect(sent).toEqual(body);
    }
    for (const { faults } of worlds) expect(faults).toEqual([]);
  });
});

test("no time of a cron expression fires twice on two nodes with changing clocks", () => {
  const what = fc.constantFrom("claim", "claim", "claim", "claim", "resume", "resume", "pause");
  const turn = fc.oneof(
    fc.record({ what, node: fc.constantFrom(0, 1) }),
    fc.record({
      by: fc.oneof(
        fc.integer({ min: 0, max: 2 * minute }),
        fc.integer({ min: -4 * minute, max: 8 * minute }),
      ),
    }),
  );
  const cron = fc.constantFrom("* * * * *", "*/5 * * * *", "CRON_TZ=Asia/Kolkata 7,37 * * * *");
  return fc.assert(
    fc.asyncProperty(cron, fc.array(turn, { minLength: 40, maxLength: 60 }), async (text, turns) => {
      const clock = new TestClock();
      const [first, second] = (await twoInMemory(clock)).map(
        (store) => new StoreFixture(store, clock, "nod"),
      );
      if (!first || !second) throw new Error("the test needs two nodes");
      await first.account();
      await first.store.execute("createSchedule", scheduleOf({ cron: text }));
      for (const one of turns) {
        if ("by" in one) clock.now += one.by;
        else {
          const { store } = one.node === 0 ? first : second;
          if (one.what === "claim") await store.execute("claim", { limit: 100 });
          else
            await store.execute(one.what === "pause" ? "pauseSchedule" : "resumeSchedule", {
              account: "acc",
              id: "tick",
            });
        }
      }
      const { events } = await first.store.read.log(
        makeLogQuery({ filter: { states: ["CREATED"] }, count: 1000 }),
      );
      const fired = events.map(({ time }) => time).toSorted((one, other) => one - other);
      // At least one time of the expression lies between two firings, so each firing represents a different
      // time.
      fired
        .slice(1)
        .forEach((at, index) => expect(nextCronTime(text, fired[index] ?? at)).toBeLessThanOrEqual(at));
    }),
    { numRuns: 60 },
  );
});

test("a schedule on disk fires once around a restart: no time twice, and a missed time late", async () => {
  const clock = new TestClock();
  const path = `${createTestFolder()}/store.db`;
  const open = async (seed: number) =>
    new StoreFixture(await sqliteStore(path, createSource(clock, "nod_a", seed)), clock, "nod_a");
  let world = await open(1);
  await world.account();
  await world.store.execute("createSchedule", scheduleOf());
  const restart = async (seed: number) => {
    await world.store.close();
    world = await open(seed);
  };
  const fired = async () => {
    const { events } = await world.store.read.log(makeLogQuery({ filter: { states: ["CREATED"] } }));
    return events.map(({ time }) => time).toReversed();
  };
  const first = nextCronTime("*/5 * * * *", clock.now) ?? 0;
  clock.now = first;
  await world.claim();
  await restart(2);
  await world.claim();
  expect(await fired()).toEqual([first]);
  await restart(3);
  clock.now = first + 3 * hour + 7 * second;
  await world.claim();
  await world.claim();
  expect(await fired()).toEqual([first, clock.now]);
  const row = await world.store.read.findResource("schedules", "acc", "tick");
  expect(row).toMatchObject({
    dueAt: first + 3 * hour + 5 * minute,
    lastAt: clock.now,
    body: bytes("hello"),
  });
  await world.store.close();
});
