import { beforeEach, describe, expect, test } from "vitest";
import type { DueRow } from "../../../../src/engine/core/model/dueRow.ts";
import { spans } from "../../../../src/engine/core/values/limits.ts";
import { callbackTo, noCapacity, noon } from "../commandRunner.ts";
import { RecountedCommandRunner, makeFlowControl } from "../recount.ts";
import { makeScheduleInput } from "./scheduleInput.ts";

const minute = 60_000;

let broker: RecountedCommandRunner;
beforeEach(async () => {
  broker = await RecountedCommandRunner.open();
});

const putAside = async (table: DueRow["table"], id: string): Promise<string | null> =>
  (
    await broker.run("quarantine", {
      row: { table, account: "acme", id },
      reason: "no\u0000 \ud800 good\n    at line 5",
    })
  ).description;

const aside = (name: string): string => `message ${broker.id(name)} of account acme`;
const failed = () => broker.deadLetters.map(({ messageId, error }) => [messageId, error]);
const error = "could not be stored: no good";

describe("a quarantined message", () => {
  test("becomes a dead letter without callbacks, and its deduplication id is free", async () => {
    broker.capacity = noCapacity;
    const callback = callbackTo("https://told.example/");
    await broker.send("a", { deduplication: "d", callback, failureCallback: callback });
    expect(await putAside("messages", broker.id("a"))).toBe(aside("a"));
    expect(failed()).toEqual([[broker.id("a"), error]]);
    expect(broker.log(broker.id("a"))).toBe("ERROR FAILED");
    expect(broker.listReporters(broker.id("a"))).toEqual([]);
    expect(broker.state(broker.id("a"))).toBeUndefined();
    await broker.send("b", { deduplication: "d" });
    expect(broker.id("b")).not.toBe(broker.id("a"));
  });

  test("releases its place at its key and its slot, even if its lease has expired", async () => {
    await broker.send("a b", { queue: "q", ...makeFlowControl("k", { parallelism: 1 }) });
    expect(await broker.listStarted()).toBe("a");
    broker.now += spans.lease;
    expect(await putAside("messages", broker.id("a"))).toBe(aside("a"));
    expect(await broker.listStarted()).toBe("b");
  });

  test("reports to its dead letter if it was a failure callback", async () => {
    await broker.send("a", { retries: 0, failureCallback: callbackTo("https://told.example/") });
    await broker.end("a", { status: 500 });
    await broker.listStarted();
    broker.now += spans.lease;
    await putAside("messages", broker.id("https://told.example/"));
    expect(broker.deadLetters[0]).toMatchObject({
      messageId: broker.id("a"),
      failureCallback: { state: "CALLBACK_FAIL" },
    });
  });

  test.each([
    ["a queue", "queue:q", { queue: "q" }],
    ["a key", "key:k", makeFlowControl("k", { parallelism: 1 })],
  ] as const)("is the first message in the waitlist of %s", async (_, id, input) => {
    await broker.send("a b c", input);
    expect(await broker.listStarted()).toBe("a");
    expect(await putAside("limiters", id)).toBe(aside("b"));
    expect(failed()).toEqual([[broker.id("b"), error]]);
  });

  test("is the first message in the waitlist of a host", async () => {
    broker.capacity = noCapacity;
    await broker.send("a b");
    expect(await broker.listStarted()).toBe("");
    expect(await putAside("hostWaitlists", "shop.example")).toBe(aside("a"));
    expect(failed()).toEqual([[broker.id("a"), error]]);
  });
});

test("a quarantined schedule skips one firing, with the reason, and fires at its next time", async () => {
  const schedule = () => broker.memory.tables.schedules.get("acme\ntick");
  await broker.run("createSchedule", makeScheduleInput());
  expect(await putAside("schedules", "tick")).toBeNull();
  broker.now = noon + 5 * minute;
  expect(await putAside("schedules", "tick")).toBe("a firing of schedule tick of account acme");
  expect(schedule()).toMatchObject({
    dueAt: noon + 10 * minute,
    lastAt: noon + 5 * minute,
    lastMessages: [],
    passedOver: "its messages could not be stored",
  });
  await broker.listStarted();
  expect(broker.memory.tables.messages.size).toBe(0);
  broker.now = noon + 10 * minute;
  await broker.run("claim", { limit: 10 });
  expect(broker.memory.tables.messages.size).toBe(1);
  expect(schedule()).not.toHaveProperty("passedOver");
});

test.each(["messages", "hostWaitlists", "limiters", "schedules"] as const)(
  "nothing is quarantined if a row of %s does not exist",
  async (table) => {
    expect(await putAside(table, "key:x")).toBeNull();
  },
);

test("a message that is in flight, or not yet due, is not quarantined", async () => {
  await broker.send("a");
  await broker.send("b", { delay: minute });
  expect(await putAside("messages", broker.id("a"))).toBeNull();
  expect(await putAside("messages", broker.id("b"))).toBeNull();
  expect(failed()).toEqual([]);
});
