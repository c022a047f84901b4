import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { alarm, elapsed } from "../../../../src/engine/clock/clock.ts";
import { embeddedStore } from "../../../../src/engine/store/sqlite/embeddedStore.ts";
import type { ClockReport } from "../../../../src/engine/store/sqlite/storeTime.ts";
import { createStoreTime } from "../../../../src/engine/store/sqlite/storeTime.ts";
import {
  bytes,
  createSource,
  createTestFolder,
  makeInput,
  sleepReal,
  StoreFixture,
  TestClock,
} from "../storeFixture.ts";

const hour = 3_600_000;
const year = 365 * 24 * hour;

/** The seed of a start, and what it does with a clock that is behind. */
type Start = { seed: number; clockCheck: "refuse" | "accept" };

/** Opens a store like a server. Returns it with the reports about the clock. */
async function start(path: string, clock: TestClock, how: number | Start) {
  const { seed, clockCheck } = typeof how === "number" ? { seed: how, clockCheck: "none" as const } : how;
  const reports: ClockReport[] = [];
  const store = await embeddedStore({
    path,
    momentSource: createSource(clock, `nod_${seed}`, seed),
    pause: sleepReal,
    alarm,
    elapsed,
    clockCheck,
    onClock: (report) => reports.push(report),
  });
  return { world: new StoreFixture(store, clock, `nod_${seed}`), reports };
}

test("after a restart with the clock an hour back, order and delays stay as they were", async () => {
  const path = join(createTestFolder(), "store.db");
  const clock = new TestClock();
  const before = await start(path, clock, 1);
  await before.world.account();
  const first = await before.world.send({ delay: 5_000 });
  const usedAt = clock.now;
  await before.world.store.close();

  clock.now -= hour - 1;
  const after = await start(path, clock, 2);
  const second = await after.world.send({ delay: 5_000 });
  expect(second > first).toBe(true);
  expect(after.reports).toEqual([{ clock: clock.now, usedAt: usedAt + 1, followsClock: false }]);
  const [dueFirst = 0, dueSecond = 0] = await Promise.all(
    [first, second].map(async (id) => (await after.world.store.read.message("acc", id))?.state?.dueAt ?? 0),
  );
  expect(dueSecond).toBeGreaterThanOrEqual(dueFirst);
  // The time of the store runs at nine tenths of the clock until the clock has caught up.
  clock.now += 6_000;
  await after.world.store.execute("claim", { limit: 10 });
  expect(after.world.delivered().map(({ message }) => message.id)).toEqual([first, second]);
  await after.world.store.close();
});

test("after a time in a far future, the store follows the clock", async () => {
  const path = join(createTestFolder(), "store.db");
  const clock = new TestClock();
  const right = clock.now;
  clock.now += 10 * year;
  const before = await start(path, clock, 1);
  await before.world.account();
  await before.world.send();
  await before.world.store.close();

  clock.now = right;
  const after = await start(path, clock, 2);
  const id = await after.world.send({ delay: 5_000 });
  expect((await after.world.store.read.message("acc", id))?.state?.dueAt).toBeLessThan(right + hour);
  expect(after.reports).toEqual([{ clock: right, usedAt: right + 10 * year + 1, followsClock: true }]);
  await after.world.store.close();
});

test("while a server runs, the time that passed is not lost when the clock goes back", () => {
  const state = { clock: 10 * hour, elapsed: 0 };
  const reports: ClockReport[] = [];
  const now = createStoreTime({
    now: () => state.clock,
    elapsed: () => state.elapsed,
    latestUsed: null,
    onReport: (report) => reports.push(report),
  });
  expect(now()).toBe(10 * hour);
  state.elapsed += 1_000;
  state.clock -= hour / 2;
  expect(now()).toBe(10 * hour + 900);
  expect(reports).toEqual([{ clock: 9.5 * hour, usedAt: 10 * hour, followsClock: false }]);
  // It catches up, and is never reported twice.
  let last = now();
  for (let step = 0; step < 400; step++) {
    state.clock += 60_000;
    state.elapsed += 60_000;
    const next = now();
    expect(next).toBeGreaterThan(last);
    last = next;
  }
  expect([last, reports.length]).toEqual([state.clock, 1]);
});

test("a clock that is right again is refused until it is accepted, and then delays continue", async () => {
  const path = join(createTestFolder(), "store.db");
  const clock = new TestClock();
  const right = clock.now;
  const early = await start(path, clock, 1);
  await early.world.account();
  const legitimate = await early.world.send({ notBefore: right + year - hour });
  await early.world.store.close();
  const schedule = {
    account: "acc",
    id: "daily",
    cron: "0 0 * * *",
    messageInput: makeInput(),
    body: bytes(""),
  };

  clock.now = right + year / 10;
  const ahead = await start(path, clock, 2);
  await ahead.world.store.execute("createSchedule", schedule);
  const first = await ahead.world.send({ queue: "q", delay: 5_000 });
  const delayed = await ahead.world.send({ delay: 60_000 });
  const usedAt = clock.now;
  await ahead.world.store.close();

  clock.now = right + 1_000;
  await expect(start(path, clock, { seed: 3, clockCheck: "refuse" })).rejects.toThrow(
    `the clock shows ${new Date(clock.now).toISOString()}, ` +
      `but the store has used ${new Date(usedAt).toISOString()}`,
  );
  // An acceptance that fails at its end changes nothing, so that it can be repeated.
  const database = new DatabaseSync(path);
  database.exec("create trigger stop before insert on server_settings begin select raise(abort, 'no'); end");
  await expect(start(path, clock, { seed: 3, clockCheck: "accept" })).rejects.toThrow("no");
  database.exec("drop trigger stop");
  database.close();
  const accepted = await start(path, clock, { seed: 3, clockCheck: "accept" });
  const readDueAt = async (id: string) =>
    (await accepted.world.store.read.message("acc", id))?.state?.dueAt ?? null;
  expect(await Promise.all([legitimate, first, delayed].map(readDueAt))).toEqual([
    right + year - hour,
    clock.now + 5_000,
    clock.now + 60_000,
  ]);
  const daily = await accepted.world.store.read.findResource("schedules", "acc", "daily");
  expect(daily?.dueAt).toBeLessThanOrEqual(clock.now + 24 * hour);
  const second = await accepted.world.send({ queue: "q" });
  expect(second > delayed && delayed > first).toBe(true);
  await accepted.world.store.close();

  // The acceptance is stored. The clock moves back no delay a second time.
  for (const how of [
    { seed: 4, clockCheck: "refuse" },
    { seed: 5, clockCheck: "accept" },
  ] as const) {
    const later = await start(path, clock, how);
    const third = await later.world.send({ queue: "q" });
    expect(third > second).toBe(true);
    expect((await later.world.store.read.message("acc", delayed))?.state?.dueAt).toBe(right + 61_000);
    await later.world.store.close();
  }
});

test("after an acceptance, a clock that goes back by more than an hour again is refused", async () => {
  const path = join(createTestFolder(), "store.db");
  const clock = new TestClock();
  const right = clock.now;
  clock.now = right + year;
  const ahead = await start(path, clock, 1);
  await ahead.world.account();
  const first = await ahead.world.send();
  await ahead.world.store.close();

  clock.now = right;
  const accepted = await start(path, clock, { seed: 2, clockCheck: "accept" });
  clock.now = right + 30 * 24 * hour;
  const second = await accepted.world.send({ delay: 60_000 });
  const usedAt = clock.now;
  await accepted.world.store.close();

  // Half an hour back: times continue from the latest one.
  clock.now = usedAt - hour / 2;
  const near = await start(path, clock, { seed: 3, clockCheck: "refuse" });
  expect(near.reports).toEqual([]);
  const third = await near.world.send();
  expect(near.reports).toEqual([{ clock: clock.now, usedAt: usedAt + 1, followsClock: false }]);
  await near.world.store.close();

  clock.now = right + 10 * 24 * hour;
  await expect(start(path, clock, { seed: 4, clockCheck: "refuse" })).rejects.toThrow(
    `the clock shows ${new Date(clock.now).toISOString()}, ` +
      `but the store has used ${new Date(usedAt).toISOString()}`,
  );
  const again = await start(path, clock, { seed: 5, clockCheck: "accept" });
  const dueAt = (await again.world.store.read.message("acc", second))?.state?.dueAt;
  expect(dueAt).toBe(clock.now + 60_000);
  const fourth = await again.world.send();
  expect([fourth, third, second, first].toSorted()).toEqual([first, second, third, fourth]);
  await again.world.store.close();
  const restarted = await start(path, clock, { seed: 6, clockCheck: "refuse" });
  await restarted.world.store.close();
});
