import { beforeEach, describe, expect, test } from "vitest";
import type { Endpoint } from "../../../../src/engine/core/model/urlGroup.ts";
import type { Schedule } from "../../../../src/engine/core/model/schedule.ts";
import { noBytes } from "../../../../src/engine/core/values/basics.ts";
import type { Scope } from "../../../../src/engine/core/model/rights.ts";
import type { HeaderList } from "../../../../src/engine/core/values/basics.ts";
import { CommandRunner, bytes, callbackTo, noCapacity, noon } from "../commandRunner.ts";
import type { ScheduleFields } from "./scheduleInput.ts";
import { makeScheduleInput } from "./scheduleInput.ts";

const second = 1000;
const minute = 60 * second;
const hour = 60 * minute;

let broker: CommandRunner;
beforeEach(async () => {
  broker = await CommandRunner.open();
});

const create = (wanted?: ScheduleFields) => broker.run("createSchedule", makeScheduleInput(wanted));
const schedule = (id = "tick"): Schedule | undefined => broker.memory.tables.schedules.get(`acme\n${id}`);
const claim = () => broker.run("claim", { limit: 100 });
const messages = () => [...broker.memory.tables.storedMessages.values()];
const times = () => messages().map(({ createdAt }) => (createdAt - noon) / second);

function setGroup(endpoints: readonly Endpoint[], headers: HeaderList = []): void {
  const row = { account: "acme", name: "shops", createdAt: noon, updatedAt: noon, endpoints, headers };
  broker.memory.tables.urlGroups.set("acme\nshops", row);
}

/** Claims every second from now until this many seconds after noon. */
async function run(until: number): Promise<void> {
  for (; broker.now < noon + until * second; broker.now += second) await claim();
  await claim();
}

describe("a created schedule", () => {
  test("fires at its next time, and its messages are like any others", async () => {
    broker.now = noon + 1;
    const messageInput = {
      retries: 7,
      labels: ["a"],
      headers: [["X-A", "1"]] as const,
      brand: "upstash" as const,
      callerIp: "192.0.2.7",
    };
    expect(await create({ messageInput })).toEqual({ scheduleId: "tick", deduplicated: false });
    expect(schedule()).toMatchObject({
      dueAt: noon + 5 * minute,
      paused: false,
      lastAt: null,
      lastMessages: [],
      createdAt: noon + 1,
    });
    broker.now = noon + 5 * minute - 1;
    await claim();
    expect(messages()).toEqual([]);
    broker.now += 1;
    await claim();
    const [message] = messages();
    expect(message).toMatchObject({
      ...messageInput,
      scheduleId: "tick",
      body: bytes("hello"),
      createdAt: broker.now,
      notBefore: broker.now,
    });
    expect(broker.deliveries).toMatchObject([{ message: { id: message?.id }, attempt: 0 }]);
    expect(schedule()).toMatchObject({
      dueAt: noon + 10 * minute,
      lastAt: noon + 5 * minute,
      lastMessages: [message?.id],
    });
  });

  test("gets a new id if none is given", async () => {
    const first = await create({ id: null });
    const second = await create({ id: null });
    expect(first.scheduleId).toMatch(/^scd_[1-9A-Za-z]{20}$/);
    expect(second.scheduleId).not.toBe(first.scheduleId);
    expect(schedule(first.scheduleId)?.messageInput.scheduleId).toBe(first.scheduleId);
  });

  test("keeps its expression without surrounding spaces", async () => {
    await create({ cron: " CRON_TZ=Europe/Berlin 0 9 * * * \n" });
    expect(schedule()).toMatchObject({
      cron: "CRON_TZ=Europe/Berlin 0 9 * * *",
      dueAt: Date.UTC(2026, 0, 2, 8),
    });
  });

  test("does not fire at the moment of its creation, even if that is one of its times", async () => {
    await create();
    await claim();
    expect(messages()).toEqual([]);
    expect(schedule()?.dueAt).toBe(noon + 5 * minute);
  });

  test.each([
    [
      "an expression of four fields",
      { cron: "* * * *" },
      /^cron: "\* \* \* \*" has 4 fields; expected five fields/,
    ],
    ["an expression that never fires", { cron: "0 0 30 2 *" }, /^cron: "0 0 30 2 \*" never fires/],
    ["an unknown zone", { cron: "CRON_TZ=Mars/Base 0 0 * * *" }, /^cron: unknown time zone "Mars\/Base"/],
    ["an id with a slash", { id: "a/b" }, /^schedule-id: "a\/b" is not an id/],
    ["an empty id", { id: "" }, /^schedule-id: "" is not an id/],
    ["an id that a path cannot have", { id: ".." }, /^schedule-id: "\.\." is not an id/],
    ["an id that is too long", { id: "x".repeat(513) }, /^schedule-id: "x{200}" is not an id/],
    [
      "a not-before time",
      { messageInput: { notBefore: noon + hour } },
      /^not-before: not valid for a schedule/,
    ],
    ["too many retries", { messageInput: { retries: 1001 } }, /^retries: 1001 exceeds the limit of 1000$/],
    [
      "a delay that is too long",
      { messageInput: { delay: 367 * 24 * hour } },
      /^delay: 367d exceeds the limit of 366d$/,
    ],
    [
      "a body that is too large",
      { body: new Uint8Array(10 * 1024 * 1024 + 1) },
      /^body: 10485761 bytes exceeds the limit of 10485760$/,
    ],
  ])("is refused with %s", async (_, wanted: ScheduleFields, problem) => {
    const failure: unknown = await create(wanted).catch((error: unknown) => error);
    const { refused } = JSON.parse(failure instanceof Error ? failure.message : "{}") as {
      refused?: { message: string };
    };
    expect(refused?.message).toMatch(problem);
    expect(broker.memory.tables.schedules.size).toBe(0);
  });

  test("is refused for an account that does not exist", async () => {
    await expect(create({ account: "gone" })).rejects.toThrow("does not exist");
  });
});

describe("a schedule with an existing id", () => {
  test("replaces the old schedule as a whole, with its history", async () => {
    await create({ messageInput: { labels: ["old"], delay: second, queue: "old" } });
    await run(300);
    expect(schedule()?.lastAt).toBe(noon + 300 * second);
    await broker.run("pauseSchedule", { account: "acme", id: "tick" });
    broker.now += second;
    await create({ cron: "0 * * * *", body: noBytes, messageInput: { url: "https://new.example/" } });
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

  test("keeps a firing that is due, if the expression is the same", async () => {
    await create();
    broker.now = noon + 5 * minute;
    await create({ body: bytes("new") });
    broker.now += 1;
    await claim();
    await claim();
    expect(messages()).toMatchObject([{ body: bytes("new") }]);
    expect(schedule()?.dueAt).toBe(noon + 10 * minute);
  });

  test("starts again if the expression is different", async () => {
    await create();
    broker.now = noon + 5 * minute;
    await create({ cron: "*/7 * * * *" });
    broker.now += 1;
    await claim();
    expect(messages()).toEqual([]);
    expect(schedule()?.dueAt).toBe(noon + 7 * minute);
  });

  test("in another account is another schedule", async () => {
    await broker.run("createAccount", {
      id: "other",
      name: "other",
      password: "",
      token: "t",
      tokenHash: "h",
      signingKeys: { current: "sig_3", next: "sig_4" },
    });
    await create();
    await create({ account: "other", messageInput: { url: "https://other.example/" } });
    await broker.run("deleteSchedule", { account: "other", id: "tick" });
    expect(schedule()?.messageInput.url).toBe("https://shop.example/hook");
    await expect(broker.run("pauseSchedule", { account: "other", id: "tick" })).rejects.toThrow("not-found");
    expect(schedule()?.paused).toBe(false);
  });
});

describe("a firing", () => {
  test("happens once for each time, no matter how often it is claimed", async () => {
    await create({ cron: "* * * * *" });
    await run(200);
    expect(times()).toEqual([60, 120, 180]);
  });

  test("that was missed happens once, late, and the next one is on time", async () => {
    await create();
    broker.now = noon + 3 * hour + 2 * minute;
    await claim();
    await claim();
    expect(times()).toEqual([(3 * hour + 2 * minute) / second]);
    expect(schedule()).toMatchObject({
      dueAt: noon + 3 * hour + 5 * minute,
      lastAt: noon + 3 * hour + 2 * minute,
    });
    broker.now = noon + 3 * hour + 5 * minute;
    await claim();
    expect(messages()).toHaveLength(2);
  });

  test("does not happen again if the clock goes back", async () => {
    await create();
    broker.now = noon + 5 * minute;
    await claim();
    broker.now = noon + 4 * minute;
    await run(599);
    expect(messages()).toHaveLength(1);
    await run(600);
    expect(times()).toEqual([300, 600]);
  });

  test("does not happen again if the schedule is paused and resumed after the clock went back", async () => {
    await create();
    broker.now = noon + 5 * minute;
    await claim();
    broker.now = noon + 4 * minute;
    await broker.run("pauseSchedule", { account: "acme", id: "tick" });
    await broker.run("resumeSchedule", { account: "acme", id: "tick" });
    expect(schedule()?.dueAt).toBe(noon + 10 * minute);
  });

  test("delays the message, not the schedule", async () => {
    await create({ messageInput: { delay: 90 * second } });
    broker.now = noon + 5 * minute;
    await claim();
    expect(messages()).toMatchObject([
      { createdAt: noon + 5 * minute, notBefore: noon + 5 * minute + 90 * second },
    ]);
    expect(schedule()?.dueAt).toBe(noon + 10 * minute);
  });

  test("leaves its message to a later claim if there is no capacity", async () => {
    await create();
    broker.now = noon + 5 * minute;
    broker.capacity = noCapacity;
    await claim();
    expect(broker.state(messages()[0]?.id ?? "")).toMatchObject({ state: "pending", dueAt: broker.now });
  });

  test("passes the queue and the key, which exist from the first firing on", async () => {
    const flowControl = { key: "k", parallelism: 2, rate: null, period: null };
    await create({ messageInput: { queue: "reports", flowControl } });
    await create({ id: "again", messageInput: { queue: "reports", flowControl } });
    const { limiters } = broker.memory.tables;
    expect(limiters.size).toBe(0);
    broker.now = noon + 5 * minute;
    await claim();
    expect(limiters.get("acme\nqueue:reports")).toMatchObject({ parallelism: 1, running: 1, waiting: 1 });
    expect(limiters.get("acme\nkey:k")).toMatchObject({ parallelism: 2, running: 1, waiting: 0 });
  });

  test("does not change an existing queue", async () => {
    await create({ messageInput: { queue: "reports" } });
    broker.now = noon + 5 * minute - 1;
    await broker.publish({ queue: "reports" });
    const { limiters } = broker.memory.tables;
    const flow = limiters.get("acme\nqueue:reports");
    if (flow) limiters.set("acme\nqueue:reports", { ...flow, parallelism: 5 });
    broker.now += 1;
    await claim();
    expect(limiters.get("acme\nqueue:reports")).toMatchObject({ parallelism: 5, running: 2, waiting: 0 });
  });

  test("does not happen if the schedule is deleted while it is due", async () => {
    await create();
    await create({ id: "kept" });
    broker.now = noon + 5 * minute;
    expect(await broker.run("deleteSchedule", { account: "acme", id: "tick" })).toEqual({ deleted: true });
    expect(await broker.run("deleteSchedule", { account: "acme", id: "tick" })).toEqual({ deleted: false });
    await claim();
    expect(messages()).toMatchObject([{ scheduleId: "kept" }]);
  });
});

describe("a firing for a URL group", () => {
  const messageInput = { url: "", group: "shops" };

  test("publishes to the endpoints that the group has at that time", async () => {
    setGroup([{ name: "one", url: "https://one.example/" }]);
    await create({ messageInput });
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

  test.each(["gone", "empty"])(
    "publishes nothing if the group is %s, records an empty list, and fires again",
    async (how) => {
      if (how === "empty") setGroup([]);
      await create({ messageInput });
      await run(300);
      expect(messages()).toEqual([]);
      expect(schedule()).toMatchObject({
        lastAt: noon + 300 * second,
        lastMessages: [],
        dueAt: noon + 600 * second,
      });
      expect(broker.faults).toEqual([]);
      setGroup([{ name: "one", url: "https://one.example/" }]);
      await run(600);
      expect(times()).toEqual([600]);
    },
  );
});

test("a limited token gives a schedule for a URL group only callbacks that the group has", async () => {
  setGroup([{ name: "one", url: "https://one.example/" }], [["Svc-Callback", "https://told.example/"]]);
  const scope: Scope = { id: "tok_1", verbs: ["publish"], destinations: [], expiresAt: null };
  const reportingTo = (url: string): ScheduleFields => ({
    scope,
    messageInput: { url: "", group: "shops", callback: callbackTo(url) },
  });
  await expect(create(reportingTo("https://other.example/"))).rejects.toThrow(
    "requires 'read' to send a message to the URL group shops to https://other.example/",
  );
  await expect(create(reportingTo("https://told.example/"))).resolves.toMatchObject({ scheduleId: "tick" });
});

describe("pausing and resuming", () => {
  const pause = () => broker.run("pauseSchedule", { account: "acme", id: "tick" });
  const resume = () => broker.run("resumeSchedule", { account: "acme", id: "tick" });

  test("a paused schedule skips its times, and continues with the next one", async () => {
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

  test("resuming an active schedule changes nothing, even if it is due", async () => {
    await create();
    broker.now = noon + 5 * minute;
    await resume();
    await claim();
    expect(times()).toEqual([300]);
  });

  test("a schedule that is paused while it is due does not fire", async () => {
    await create();
    broker.now = noon + 5 * minute;
    await pause();
    await claim();
    expect(messages()).toEqual([]);
  });

  test("a schedule that does not exist is refused", async () => {
    await expect(pause()).rejects.toThrow("not-found");
    await expect(resume()).rejects.toThrow("not-found");
  });
});
