import { beforeEach, describe, expect, test } from "vitest";
import type { Schedule } from "../../../../src/engine/core/model/schedule.ts";
import { CommandRunner, noon } from "../commandRunner.ts";
import type { ScheduleFields } from "./scheduleInput.ts";
import { makeScheduleInput } from "./scheduleInput.ts";

const minute = 60_000;

let broker: CommandRunner;
beforeEach(async () => {
  broker = await CommandRunner.open();
});

const create = (wanted?: ScheduleFields) => broker.run("createSchedule", makeScheduleInput(wanted));
const schedule = (id: string): Schedule | undefined => broker.memory.tables.schedules.get(`acme\n${id}`);
const claim = () => broker.run("claim", { limit: 100 });
const messages = () => [...broker.memory.tables.storedMessages.values()];

describe("a problem of one schedule does not stop the others", () => {
  const damaged = (over: Partial<Schedule>) => {
    const row = schedule("damaged");
    if (row) broker.memory.tables.schedules.set("acme\ndamaged", { ...row, ...over });
  };

  beforeEach(async () => {
    await create({ id: "damaged", messageInput: { queue: "q" } });
    await create();
  });

  test("a stored URL that is no longer valid: nothing is published, and a fault is logged", async () => {
    const messageInput = { ...makeScheduleInput().messageInput, url: "https://[broken" };
    damaged({ messageInput });
    broker.now = noon + 5 * minute;
    await claim();
    expect(messages()).toMatchObject([{ scheduleId: "tick" }]);
    expect(broker.faults).toEqual([expect.stringContaining("schedule damaged of account acme")]);
    expect(schedule("damaged")).toMatchObject({ dueAt: noon + 10 * minute, lastMessages: [] });
  });

  test("an expression that is no longer valid: the schedule fires this time and is paused", async () => {
    damaged({ cron: "CRON_TZ=Gone/Zone 0 0 * * *" });
    broker.now = noon + 5 * minute;
    await claim();
    expect(messages()).toHaveLength(2);
    expect(broker.faults).toEqual([
      expect.stringContaining("schedule damaged of account acme; it is paused"),
    ]);
    expect(schedule("damaged")).toMatchObject({ paused: true, dueAt: null });
  });

  test("an account that does not exist: the schedule is removed", async () => {
    const row = schedule("damaged");
    if (row) broker.memory.tables.schedules.set("gone\ndamaged", { ...row, account: "gone" });
    broker.now = noon + 5 * minute;
    await claim();
    expect(broker.memory.tables.schedules.has("gone\ndamaged")).toBe(false);
    expect(broker.faults).toEqual([expect.stringContaining("account gone")]);
    expect(messages()).toHaveLength(2);
  });
});
