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
const run = (id = "tick", account = "acme") => broker.run("runSchedule", { account, id });
const schedule = (): Schedule | undefined => broker.memory.tables.schedules.get("acme\ntick");
const messages = () => [...broker.memory.tables.storedMessages.values()];
const setGroup = (urls: readonly string[]): void => {
  const endpoints = urls.map((url) => ({ name: null, url }));
  const row = { account: "acme", name: "shops", createdAt: noon, updatedAt: noon, endpoints, headers: [] };
  broker.memory.tables.urlGroups.set("acme\nshops", row);
};

describe("a run of a schedule by hand", () => {
  test("publishes the message that a firing publishes, and changes nothing in the schedule", async () => {
    await create({ messageInput: { retries: 7, labels: ["a"], headers: [["X-A", "1"]] } });
    broker.now = noon + minute;
    const before = schedule();
    const { scheduleId, messages: made } = await run();
    expect(schedule()).toEqual(before);
    const [byHand] = messages();
    expect({ scheduleId, made }).toEqual({
      scheduleId: "tick",
      made: [{ messageId: byHand?.id, url: byHand?.url }],
    });
    expect(broker.deliveries).toMatchObject([{ message: { id: byHand?.id } }]);
    broker.now = noon + 5 * minute;
    await broker.run("claim", { limit: 100 });
    const [, fired] = messages();
    const { id: _, createdAt, notBefore, ...rest } = fired ?? byHand ?? {};
    expect(byHand).toMatchObject(rest);
    expect({ createdAt, notBefore }).toEqual({ createdAt: noon + 5 * minute, notBefore: noon + 5 * minute });
    expect(schedule()).toMatchObject({ dueAt: noon + 10 * minute, lastMessages: [fired?.id] });
  });

  test("keeps the delay of the schedule", async () => {
    await create({ messageInput: { delay: 1_000 } });
    await run();
    expect(messages()).toMatchObject([{ notBefore: broker.now + 1_000 }]);
    expect(broker.deliveries).toEqual([]);
  });

  test("is possible while the schedule is paused, and keeps it paused", async () => {
    await create();
    await broker.run("pauseSchedule", { account: "acme", id: "tick" });
    await run();
    expect(messages()).toHaveLength(1);
    expect(schedule()).toMatchObject({ paused: true, dueAt: null, lastAt: null });
  });

  test("reaches all endpoints of a URL group at that time", async () => {
    setGroup(["https://one.example/", "https://two.example/"]);
    await create({ messageInput: { url: "", group: "shops" } });
    setGroup(["https://two.example/", "https://three.example/"]);
    const { messages: made } = await run();
    expect(made.map(({ url }) => url)).toEqual(["https://two.example/", "https://three.example/"]);
  });

  test.each<[what: string, prepare: () => Promise<unknown>, refusal: RegExp]>([
    ["does not exist", async () => run("other"), /schedule \\"other\\" does not exist/],
    ["belongs to another account", async () => run("tick", "other"), /does not exist/],
    [
      "is damaged",
      async () => {
        const row = schedule();
        if (row) broker.memory.tables.schedules.set("acme\ntick", { ...row, damaged: true });
        return run();
      },
      /is damaged in the store/,
    ],
    [
      "has a group without endpoints",
      async () => {
        await create({ messageInput: { url: "", group: "shops" } });
        setGroup([]);
        return run();
      },
      /nothing was published: there is no URL group shops with endpoints/,
    ],
    [
      "belongs to a disabled account",
      async () => {
        await broker.run("changeAccount", { account: "acme", change: { state: "passive" } });
        return run();
      },
      /passive|disabled/,
    ],
    [
      "belongs to an account that has spent its budget",
      async () => {
        await broker.run("changeAccount", { account: "acme", change: { budget: 5 } });
        const account = broker.memory.tables.accounts.get("acme");
        const month = Date.UTC(2026, 0, 1);
        if (account)
          broker.memory.tables.accounts.set("acme", { ...account, spending: { month, dollars: 6 } });
        return run();
      },
      /budget: 6.00 dollars spent this month/,
    ],
  ])("is refused if the schedule %s", async (_, prepare, refusal) => {
    await create();
    await expect(prepare()).rejects.toThrow(refusal);
    expect(messages()).toEqual([]);
  });
});
