import { beforeEach, describe, expect, test } from "vitest";
import type { ScheduleChange } from "../../../../src/engine/core/commands/changeSchedule.ts";
import type { Overrides } from "../../../../src/engine/core/deadLetters/overrides.ts";
import type { Schedule } from "../../../../src/engine/core/model/schedule.ts";
import { bytes, CommandRunner, noon } from "../commandRunner.ts";
import type { ScheduleFields } from "./scheduleInput.ts";
import { makeScheduleInput } from "./scheduleInput.ts";

const minute = 60_000;

let broker: CommandRunner;
beforeEach(async () => {
  broker = await CommandRunner.open();
});

const create = (wanted?: ScheduleFields) => broker.run("createSchedule", makeScheduleInput(wanted));
const schedule = (): Schedule | undefined => broker.memory.tables.schedules.get("acme\ntick");
const change = (part: ScheduleChange, overrides: Overrides = {}) =>
  broker.run("changeSchedule", { account: "acme", id: "tick", change: part, overrides });

describe("a change of a schedule", () => {
  test("changes nothing that it does not name", async () => {
    await create({
      messageInput: { delay: 1_000, labels: ["a"], keepResponse: true, headers: [["X-A", "1"]] },
    });
    const before = schedule();
    expect(await change({})).toEqual(before);
    expect(schedule()).toEqual(before);
    await change({ body: bytes("new") }, { retries: 9 });
    expect(schedule()).toEqual({
      ...before,
      body: bytes("new"),
      messageInput: { ...before?.messageInput, retries: 9 },
    });
  });

  test("keeps a firing that is due, unless the expression changes", async () => {
    await create();
    broker.now = noon + 7 * minute;
    await change({ cron: "*/5 * * * * " }, { retries: 1 });
    expect(schedule()?.dueAt).toBe(noon + 5 * minute);
    await change({ cron: "0 * * * *" });
    expect(schedule()?.dueAt).toBe(noon + 60 * minute);
  });

  test("is after the last firing, even if the clock went back", async () => {
    await create();
    broker.now = noon + 5 * minute;
    await broker.run("claim", { limit: 10 });
    broker.now = noon;
    await change({ cron: "*/1 * * * *" });
    expect(schedule()).toMatchObject({ lastAt: noon + 5 * minute, dueAt: noon + 6 * minute });
  });

  test("does not resume a paused schedule", async () => {
    await create();
    await broker.run("pauseSchedule", { account: "acme", id: "tick" });
    await change({ cron: "0 * * * *" });
    expect(schedule()).toMatchObject({ cron: "0 * * * *", paused: true, dueAt: null });
    await broker.run("resumeSchedule", { account: "acme", id: "tick" });
    expect(schedule()?.dueAt).toBe(noon + 60 * minute);
  });

  test("keeps the deduplication of its creation", async () => {
    const wanted = { messageInput: { deduplication: "i:once" } };
    await create(wanted);
    await change({}, { retries: 2 });
    expect(await create(wanted)).toEqual({ scheduleId: "tick", deduplicated: true });
  });

  test.each<[what: string, prepare: () => Promise<unknown>, refusal: RegExp]>([
    [
      "the schedule is damaged",
      async () => {
        const row = schedule();
        if (row) broker.memory.tables.schedules.set("acme\ntick", { ...row, damaged: true });
        return change({ cron: "0 * * * *" });
      },
      /is damaged in the store/,
    ],
    [
      "its account is disabled",
      async () => {
        await broker.run("changeAccount", { account: "acme", change: { state: "passive" } });
        return change({ cron: "0 * * * *" });
      },
      /passive|disabled/,
    ],
    [
      "it hides too many headers together with those that are hidden",
      () => change({}, { redaction: { body: true, headers: ["A".repeat(40_000), "B".repeat(25_537)] } }),
      /"limit-exceeded","message":"redact-fields: the names of all hidden headers have 65537 characters/,
    ],
    [
      "the body is too large",
      () => change({ body: new Uint8Array(10 * 1024 * 1024 + 1) }),
      /^too-large|body/,
    ],
  ])("is refused if %s", async (_, prepare, refusal) => {
    await create({ messageInput: { redaction: { body: false, headers: ["A".repeat(40_000)] } } });
    const { cron, messageInput } = schedule() ?? {};
    await expect(prepare()).rejects.toThrow(refusal);
    expect(schedule()).toMatchObject({ cron, messageInput });
  });
});
