import { beforeEach, expect, test } from "vitest";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import type { Schedule } from "../../../../src/engine/core/model/schedule.ts";
import type { ScheduleInput } from "../../../../src/engine/core/commands/schedule.ts";
import { CommandRunner, bytes, makeInput, noon } from "../commandRunner.ts";

const second = 1000;
const minute = 60 * second;

let broker: CommandRunner;
beforeEach(async () => {
  broker = await CommandRunner.open();
});

type Wanted = Partial<Omit<ScheduleInput, "messageInput">> & { letter?: Partial<MessageInput> };

const create = ({ letter: messageInput, ...over }: Wanted) => {
  const { body: _, ...rest } = makeInput(messageInput);
  return broker.run("createSchedule", {
    account: "acme",
    id: "tick",
    cron: "*/5 * * * *",
    messageInput: rest,
    body: bytes("hello"),
    ...over,
  });
};
const schedule = (id = "tick"): Schedule | undefined => broker.memory.tables.schedules.get(`acme\n${id}`);

test("deduplication applies to the creation of schedules, not to what they publish", async () => {
  const messageInput = { deduplication: "i:abc" };
  const { scheduleId } = await create({ id: null, letter: messageInput });
  expect(await create({ id: "other", letter: messageInput })).toEqual({ scheduleId, deduplicated: true });
  expect(schedule("other")).toBeUndefined();
  expect(schedule(scheduleId)?.messageInput.deduplication).toBeNull();
  for (; broker.now <= noon + 600 * second; broker.now += second) await broker.run("claim", { limit: 100 });
  const born = [...broker.memory.tables.storedMessages.values()].map(
    ({ createdAt }) => (createdAt - noon) / second,
  );
  expect(born).toEqual([300, 600]);
});

test("a deduplication key applies to schedules with the same expression only", async () => {
  const messageInput = { deduplication: "i:abc" };
  await create({ letter: messageInput });
  expect(await create({ cron: "7 7 * * *", letter: messageInput })).toEqual({
    scheduleId: "tick",
    deduplicated: false,
  });
  expect(schedule("tick")?.cron).toBe("7 7 * * *");
  expect(await create({ id: "other", cron: "8 8 * * *", letter: messageInput })).toEqual({
    scheduleId: "other",
    deduplicated: false,
  });
  // A program that creates both again does not add schedules.
  for (const [cron, scheduleId] of [
    ["7 7 * * *", "tick"],
    ["8 8 * * *", "other"],
  ] as const)
    expect(await create({ id: null, cron, letter: messageInput })).toEqual({
      scheduleId,
      deduplicated: true,
    });
});

test("a schedule with a changed expression is not a duplicate until it is changed back", async () => {
  const messageInput = { deduplication: "i:abc" };
  await create({ letter: messageInput });
  const change = (cron: string) =>
    broker.run("changeSchedule", { account: "acme", id: "tick", change: { cron }, overrides: {} });
  await change("0 0 1 1 *");
  await change("*/5 * * * * ");
  expect(await create({ letter: messageInput })).toEqual({ scheduleId: "tick", deduplicated: true });
  await change("0 0 1 1 *");
  expect(await create({ letter: messageInput })).toEqual({ scheduleId: "tick", deduplicated: false });
  expect(schedule()?.cron).toBe("*/5 * * * *");
});

test("a replaced schedule does not count as a duplicate, and can be replaced again", async () => {
  const one = { url: "https://one.example/", deduplication: "c:1" };
  const two = { url: "https://two.example/", deduplication: "c:2" };
  for (const messageInput of [one, two, one]) {
    expect(await create({ letter: messageInput })).toEqual({ scheduleId: "tick", deduplicated: false });
    expect(schedule("tick")?.messageInput.url).toBe(messageInput.url);
    expect(await create({ letter: messageInput })).toEqual({ scheduleId: "tick", deduplicated: true });
    broker.now += minute;
  }
  await create({});
  expect(await create({ letter: one })).toEqual({ scheduleId: "tick", deduplicated: false });
});

test("a message and a schedule with one deduplication key are not duplicates", async () => {
  const { scheduleId } = await create({ id: null, letter: { deduplication: "i:abc" } });
  const messageId = await broker.publish({ deduplication: "i:abc" });
  expect(messageId).toMatch(/^msg_/);
  expect(await create({ letter: { deduplication: "i:abc" } })).toEqual({ scheduleId, deduplicated: true });
});

test("deduplication of a schedule ends with the schedule, or after ten minutes", async () => {
  const messageInput = { deduplication: "i:abc" };
  await create({ letter: messageInput });
  await broker.run("deleteSchedule", { account: "acme", id: "tick" });
  expect(await create({ id: "second", letter: messageInput })).toEqual({
    scheduleId: "second",
    deduplicated: false,
  });
  broker.now += 10 * minute - 1;
  expect(await create({ id: "third", letter: messageInput })).toEqual({
    scheduleId: "second",
    deduplicated: true,
  });
  broker.now += 1;
  expect(await create({ id: "third", letter: messageInput })).toEqual({
    scheduleId: "third",
    deduplicated: false,
  });
});
