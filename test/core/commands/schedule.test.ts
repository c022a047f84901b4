import { beforeEach, describe, expect, test } from "vitest";
import type { Endpoint, MessageInput, Schedule } from "../../../src/core/model/message.ts";
import { noBytes } from "../../../src/core/model/message.ts";
import type { ScheduleInput } from "../../../src/core/commands/schedule.ts";
import { CommandRunner, bytes, makeInput, noCapacity, noon } from "../commandRunner.ts";

const second = 1000;
const minute = 60 * second;
const hour = 60 * minute;

let broker: CommandRunner;
beforeEach(async () => {
  broker = await CommandRunner.open();
});

type Wanted = Partial<Omit<ScheduleInput, "messageInput">> & { letter?: Partial<MessageInput> };

function inputOf({ letter, ...over }: Wanted = {}): ScheduleInput {
  const { body: _, ...rest } = makeInput(letter);
  return { account: "acme", id: "tick", cron: "*/5 * * * *", messageInput: rest, body: bytes("hello"), ...over };
}

const create = (wanted?: Wanted) => broker.run("createSchedule", inputOf(wanted));
const schedule = (id = "tick"): Schedule | undefined => broker.memory.tables.schedules.get(`acme\n${id}`);
const claim = () => broker.run("claim", { limit: 100 });
const messages = () => [...broker.memory.tables.storedMessages.values()];
const times = () => messages().map(({ createdAt }) => (createdAt - noon) / second);

function setGroup(endpoints: readonly Endpoint[]): void {
  const row = { account: "acme", name: "shops", createdAt: noon, updatedAt: noon, endpoints, headers: [] };
  broker.memory.tables.urlGroups.set("acme\nshops", row);
}

/** Claims each second from now on until that many seconds after noon. */
async function run(until: number): Promise<void> {
  for (; broker.now < noon + until * second; broker.now += second) await claim();
  await claim();
}

describe("a schedule that is made", () => {
  test("fires at the next of its times, and its messages are like any others", async () => {
    broker.now = noon + 1;
    const letter = { retries: 7, labels: ["a"], headers: [["X-A", "1"]] as const, brand: "upstash" as const, callerIp: "192.0.2.7" };
    expect(await create({ letter })).toEqual({ scheduleId: "tick", deduplicated: false });
    expect(schedule()).toMatchObject({ dueAt: noon + 5 * minute, paused: false, lastAt: null, lastMessages: [], createdAt: noon + 1 });
    broker.now = noon + 5 * minute - 1;
    await claim();
    expect(messages()).toEqual([]);
    broker.now += 1;
    await claim();
    const [message] = messages();
    expect(message).toMatchObject({ ...letter, scheduleId: "tick", body: bytes("hello"), createdAt: broker.now, notBefore: broker.now });
    expect(broker.deliveries).toMatchObject([{ message: { id: message?.id }, attempt: 0 }]);
    expect(schedule()).toMatchObject({ dueAt: noon + 10 * minute, lastAt: noon + 5 * minute, lastMessages: [message?.id] });
  });

  test("gets an id of its own when it is given none", async () => {
    const first = await create({ id: null });
    const second = await create({ id: null });
    expect(first.scheduleId).toMatch(/^scd_[1-9A-Za-z]{20}$/);
    expect(second.scheduleId).not.toBe(first.scheduleId);
    expect(schedule(first.scheduleId)?.messageInput.scheduleId).toBe(first.scheduleId);
  });

  test("keeps the text of its expression without the spaces around it", async () => {
    await create({ cron: " CRON_TZ=Europe/Berlin 0 9 * * * \n" });
    expect(schedule()).toMatchObject({ cron: "CRON_TZ=Europe/Berlin 0 9 * * *", dueAt: Date.UTC(2026, 0, 2, 8) });
  });

  test("does not fire at the moment it is made, even if that is one of its times", async () => {
    await create();
    await claim();
    expect(messages()).toEqual([]);
    expect(schedule()?.dueAt).toBe(noon + 5 * minute);
  });

  test.each([
    ["an expression of four fields", { cron: "* * * *" }, /^cron: "\* \* \* \*" has 4 fields; expected five fields/],
    ["one that never fires", { cron: "0 0 30 2 *" }, /^cron: "0 0 30 2 \*" never fires/],
    ["an unknown zone", { cron: "CRON_TZ=Mars/Base 0 0 * * *" }, /^cron: there is no time zone "Mars\/Base"/],
    ["an id with a slash", { id: "a/b" }, /^schedule-id: "a\/b" is no id/],
    ["an empty id", { id: "" }, /^schedule-id: "" is no id/],
    ["an id that a path cannot have", { id: ".." }, /^schedule-id: "\.\." is no id/],
    ["an id that is too long", { id: "x".repeat(513) }, /^schedule-id: "x{200}" is no id/],
    ["a time to begin", { letter: { notBefore: noon + hour } }, /^not-before: a schedule publishes again and again/],
    ["too many retries", { letter: { retries: 1001 } }, /^retries: 1001 asked for, the limit is 1000$/],
    ["too long a delay", { letter: { delay: 367 * 24 * hour } }, /^delay: 31708800 seconds asked for, the limit is 31622400$/],
    ["too large a body", { body: new Uint8Array(8 * 1024 * 1024 + 1) }, /^body: 8388609 bytes, the limit is 8388608$/],
  ])("is refused with %s", async (_, wanted: Wanted, problem) => {
    const failure: unknown = await create(wanted).catch((error: unknown) => error);
    const { refused } = JSON.parse(failure instanceof Error ? failure.message : "{}") as { refused?: { message: string } };
    expect(refused?.message).toMatch(problem);
    expect(broker.memory.tables.schedules.size).toBe(0);
  });

  test("is refused for an account that is gone", async () => {
    await expect(create({ account: "gone" })).rejects.toThrow("does not exist");
  });
});

describe("a schedule of the same id", () => {
  test("replaces the old one as a whole, its history too", async () => {
    await create({ letter: { labels: ["old"], delay: second, queue: "old" } });
    await run(300);
    expect(schedule()?.lastAt).toBe(noon + 300 * second);
    await broker.run("pauseSchedule", { account: "acme", id: "tick" });
    broker.now += second;
    await create({ cron: "0 * * * *", body: noBytes, letter: { url: "https://new.example/" } });
    expect(schedule()).toMatchObject({
      createdAt: broker.now,
      body: noBytes,
      cron: "0 * * * *",
      dueAt: noon + hour,
      paused: false,
      lastAt: null,
    });
    expect(schedule()).toMatchObject({
      lastMessages: [],
      messageInput: { url: "https://new.example/", labels: [], delay: null, queue: null },
    });
    expect(broker.memory.tables.schedules.size).toBe(1);
  });

  test("does not lose a time that is due and has not fired, when the expression is the same", async () => {
    await create();
    broker.now = noon + 5 * minute;
    await create({ body: bytes("new") });
    broker.now += 1;
    await claim();
    await claim();
    expect(messages()).toMatchObject([{ body: bytes("new") }]);
    expect(schedule()?.dueAt).toBe(noon + 10 * minute);
  });

  test("begins anew with another expression", async () => {
    await create();
    broker.now = noon + 5 * minute;
    await create({ cron: "*/7 * * * *" });
    broker.now += 1;
    await claim();
    expect(messages()).toEqual([]);
    expect(schedule()?.dueAt).toBe(noon + 7 * minute);
  });

  test("of another account is another schedule", async () => {
    await broker.run("createAccount", {
      id: "other",
      name: "other",
      password: "",
      token: "t",
      tokenHash: "h",
      signingKeys: { current: "sig_3", next: "sig_4" },
    });
    await create();
    await create({ account: "other", letter: { url: "https://other.example/" } });
    await broker.run("deleteSchedule", { account: "other", id: "tick" });
    expect(schedule()?.messageInput.url).toBe("https://shop.example/hook");
    await expect(broker.run("pauseSchedule", { account: "other", id: "tick" })).rejects.toThrow("not-found");
    expect(schedule()?.paused).toBe(false);
  });
});

describe("a firing", () => {
  test("happens once for each time, however often it is looked at", async () => {
    await create({ cron: "* * * * *" });
    await run(200);
    expect(times()).toEqual([60, 120, 180]);
  });

  test("that was missed is made up for once, late, and the next one is at its time", async () => {
    await create();
    broker.now = noon + 3 * hour + 2 * minute;
    await claim();
    await claim();
    expect(times()).toEqual([(3 * hour + 2 * minute) / second]);
    expect(schedule()).toMatchObject({ dueAt: noon + 3 * hour + 5 * minute, lastAt: noon + 3 * hour + 2 * minute });
    broker.now = noon + 3 * hour + 5 * minute;
    await claim();
    expect(messages()).toHaveLength(2);
  });

  test("does not happen again when the clock is put back", async () => {
    await create();
    broker.now = noon + 5 * minute;
    await claim();
    broker.now = noon + 4 * minute;
    await run(599);
    expect(messages()).toHaveLength(1);
    await run(600);
    expect(times()).toEqual([300, 600]);
  });

  test("does not happen again when the schedule is paused and resumed after the clock was put back", async () => {
    await create();
    broker.now = noon + 5 * minute;
    await claim();
    broker.now = noon + 4 * minute;
    await broker.run("pauseSchedule", { account: "acme", id: "tick" });
    await broker.run("resumeSchedule", { account: "acme", id: "tick" });
    expect(schedule()?.dueAt).toBe(noon + 10 * minute);
  });

  test("waits for the delay with the message, not with the schedule", async () => {
    await create({ letter: { delay: 90 * second } });
    broker.now = noon + 5 * minute;
    await claim();
    expect(messages()).toMatchObject([{ createdAt: noon + 5 * minute, notBefore: noon + 5 * minute + 90 * second }]);
    expect(schedule()?.dueAt).toBe(noon + 10 * minute);
  });

  test("without a free hand leaves its message to a later claim", async () => {
    await create();
    broker.now = noon + 5 * minute;
    broker.capacity = noCapacity;
    await claim();
    expect(broker.state(messages()[0]?.id ?? "")).toMatchObject({ state: "pending", dueAt: broker.now });
  });

  test("goes through the queue and the key, which are there from the first firing on", async () => {
    const flowControl = { key: "k", parallelism: 2, rate: null, period: null };
    await create({ letter: { queue: "reports", flowControl } });
    await create({ id: "again", letter: { queue: "reports", flowControl } });
    const { limiters } = broker.memory.tables;
    expect(limiters.size).toBe(0);
    broker.now = noon + 5 * minute;
    await claim();
    expect(limiters.get("acme\nqueue:reports")).toMatchObject({ parallelism: 1, running: 1, waiting: 1 });
    expect(limiters.get("acme\nkey:k")).toMatchObject({ parallelism: 2, running: 1, waiting: 0 });
  });

  test("leaves a queue as it is that is there already", async () => {
    await create({ letter: { queue: "reports" } });
    broker.now = noon + 5 * minute - 1;
    await broker.publish({ queue: "reports" });
    const { limiters } = broker.memory.tables;
    const flow = limiters.get("acme\nqueue:reports");
    if (flow) limiters.set("acme\nqueue:reports", { ...flow, parallelism: 5 });
    broker.now += 1;
    await claim();
    expect(limiters.get("acme\nqueue:reports")).toMatchObject({ parallelism: 5, running: 2, waiting: 0 });
  });

  test("does not happen any more when the schedule is deleted while it is due", async () => {
    await create();
    await create({ id: "kept" });
    broker.now = noon + 5 * minute;
    expect(await broker.run("deleteSchedule", { account: "acme", id: "tick" })).toEqual({ deleted: true });
    expect(await broker.run("deleteSchedule", { account: "acme", id: "tick" })).toEqual({ deleted: false });
    await claim();
    expect(messages()).toMatchObject([{ scheduleId: "kept" }]);
  });
});

describe("to a URL group", () => {
  const letter = { url: "", group: "shops" };

  test("goes to the endpoints of the moment", async () => {
    setGroup([{ name: "one", url: "https://one.example/" }]);
    await create({ letter });
    setGroup([
      { name: "one", url: "https://one.example/" },
      { name: null, url: "https://two.example/" },
    ]);
    await run(300);
    expect(messages()).toMatchObject([
      { url: "https://one.example/", group: "shops", endpoint: "one", scheduleId: "tick" },
      { url: "https://two.example/", group: "shops", endpoint: null, scheduleId: "tick" },
    ]);
    expect(schedule()?.lastMessages).toEqual(messages().map(({ id }) => id));
  });

  test.each(["gone", "empty"])("that is %s publishes nothing, goes on, and tells so by an empty list", async (how) => {
    if (how === "empty") setGroup([]);
    await create({ letter });
    await run(300);
    expect(messages()).toEqual([]);
    expect(schedule()).toMatchObject({ lastAt: noon + 300 * second, lastMessages: [], dueAt: noon + 600 * second });
    expect(broker.faults).toEqual([]);
    setGroup([{ name: "one", url: "https://one.example/" }]);
    await run(600);
    expect(times()).toEqual([600]);
  });
});

describe("pause and resume", () => {
  const pause = () => broker.run("pauseSchedule", { account: "acme", id: "tick" });
  const resume = () => broker.run("resumeSchedule", { account: "acme", id: "tick" });

  test("a paused schedule passes over its times, and goes on with the next one", async () => {
    await create();
    await pause();
    await pause();
    expect(schedule()).toMatchObject({ paused: true, dueAt: null });
    await run(1000);
    expect(messages()).toEqual([]);
    await resume();
    expect(schedule()).toMatchObject({ paused: false, dueAt: noon + 1200 * second });
    await run(1200);
    expect(times()).toEqual([1200]);
  });

  test("to resume one that runs changes nothing, not even when it is due", async () => {
    await create();
    broker.now = noon + 5 * minute;
    await resume();
    await claim();
    expect(times()).toEqual([300]);
  });

  test("paused while it is due, it does not fire", async () => {
    await create();
    broker.now = noon + 5 * minute;
    await pause();
    await claim();
    expect(messages()).toEqual([]);
  });

  test("are refused where there is no such schedule", async () => {
    await expect(pause()).rejects.toThrow("not-found");
    await expect(resume()).rejects.toThrow("not-found");
  });
});

describe("what is wrong with one schedule does not stop the others", () => {
  const damaged = (over: Partial<Schedule>) => {
    const row = schedule("damaged");
    if (row) broker.memory.tables.schedules.set("acme\ndamaged", { ...row, ...over });
  };

  beforeEach(async () => {
    await create({ id: "damaged", letter: { queue: "q" } });
    await create();
  });

  test("a stored URL that is none any more: it publishes nothing, and is told", async () => {
    const messageInput = { ...inputOf().messageInput, url: "https://[broken" };
    damaged({ messageInput });
    broker.now = noon + 5 * minute;
    await claim();
    expect(messages()).toMatchObject([{ scheduleId: "tick" }]);
    expect(broker.faults).toEqual([expect.stringContaining("schedule damaged of account acme")]);
    expect(schedule("damaged")).toMatchObject({ dueAt: noon + 10 * minute, lastMessages: [] });
  });

  test("an expression that cannot be read any more: it fires this time, and is paused", async () => {
    damaged({ cron: "CRON_TZ=Gone/Zone 0 0 * * *" });
    broker.now = noon + 5 * minute;
    await claim();
    expect(messages()).toHaveLength(2);
    expect(broker.faults).toEqual([expect.stringContaining("schedule damaged of account acme is paused")]);
    expect(schedule("damaged")).toMatchObject({ paused: true, dueAt: null });
  });

  test("an account that is gone: it is removed", async () => {
    const row = schedule("damaged");
    if (row) broker.memory.tables.schedules.set("gone\ndamaged", { ...row, account: "gone" });
    broker.now = noon + 5 * minute;
    await claim();
    expect(broker.memory.tables.schedules.has("gone\ndamaged")).toBe(false);
    expect(broker.faults).toEqual([expect.stringContaining("account gone")]);
    expect(messages()).toHaveLength(2);
  });
});
