import { beforeEach, describe, expect, test } from "vitest";
import { Broker, bytes, letterOf } from "./broker.ts";

const minute = 60_000;
const endpoint = "https://app.example/workflow";
const features = { lazyFetch: true, initialBody: true, detect: true, captured: true };
const startOf = (runId: string) =>
  letterOf({ url: endpoint, post: { kind: "start", runId, url: endpoint, features, origin: "sdk", invoker: null } });
const stepOf = (runId: string, stepId = 1) =>
  letterOf({
    url: endpoint,
    body: bytes("1"),
    post: { kind: "step", runId, head: { stepId, stepName: "s", stepType: "Run", concurrent: 1 } },
  });

let broker: Broker;
beforeEach(async () => {
  broker = await Broker.open();
});

const quota = (storageBytes: number | null) => broker.run("changeAccount", { account: "acme", change: { limits: { storageBytes } } });
const note = (bytesKept: number) => broker.run("noteStorage", { account: "acme", bytes: bytesKept, uncounted: 0 });
const publish = async (letters = [letterOf()]) => broker.run("publish", { account: "acme", letters });
const noted = () => broker.memory.tables.accounts.get("acme")?.storage;

const over = {
  refused: "storage-quota-exceeded",
  message:
    'storage: 1000 bytes were in storage when they were last added up, the limit is 1000; delete dead letters or schedules, or wait until history is past its time; it is the limit of this account (plan selfHosted): "waypost account limits acme --storage-bytes ..." raises it',
};

describe("an account that is over its quota", () => {
  beforeEach(async () => {
    await quota(1000);
    await note(999);
  });

  test("publishes nothing more, until it is below it, or the quota is raised or lifted", async () => {
    expect(await publish()).toMatchObject([{ messageId: expect.any(String) }]);
    await note(1000);
    expect(await publish([letterOf(), letterOf()])).toEqual([over, over]);
    await quota(1001);
    expect(await publish()).toMatchObject([{ messageId: expect.any(String) }]);
    await quota(1000);
    await note(999);
    expect(await publish()).toMatchObject([{ messageId: expect.any(String) }]);
    await note(5000);
    await quota(null);
    expect(await publish()).toMatchObject([{ messageId: expect.any(String) }]);
  });

  test("starts no run, makes no schedule, and sends no dead letter again; it deletes them", async () => {
    const id = await broker.publish({ retries: 0 });
    await broker.settle(id, { status: 500 });
    const dlqIds = broker.deadLetters.map((letter) => letter.id);
    await note(1000);
    await expect(publish([startOf("wfr_1")])).rejects.toThrow("storage-quota-exceeded");
    const { body, ...letter } = letterOf();
    const make = broker.run("createSchedule", { account: "acme", id: "tick", cron: "* * * * *", letter, body });
    await expect(make).rejects.toThrow("storage-quota-exceeded");
    const retry = broker.run("retryDeadLetters", { account: "acme", dlqIds, logRetention: minute, overrides: {} });
    await expect(retry).rejects.toThrow("storage-quota-exceeded");
    const resume = broker.run("resumeRun", {
      account: "acme",
      dlqId: dlqIds[0] ?? "",
      logRetention: minute,
      overrides: {},
      from: "failure",
    });
    await expect(resume).rejects.toThrow("storage-quota-exceeded");
    expect(await broker.run("deleteDeadLetters", { account: "acme", dlqIds, logRetention: minute })).toMatchObject({ deleted: 1 });
  });

  test("delivers what it has, callbacks and retries included", async () => {
    const callback = { url: "https://told.example/", method: "POST" as const, headers: [], retries: 1, retryDelay: null, timeout: 1000 };
    const none = { flowControl: null, callback: null, failureCallback: null };
    const id = await broker.publish({ callback: { ...callback, ...none } });
    await note(100_000);
    await broker.settle(id, { status: 200 });
    expect(broker.deliveries.map(({ message }) => message.url)).toContain("https://told.example/");
  });

  test("continues its runs up to 125 % of it; above that, steps and events are refused so that they can be tried again", async () => {
    await publish([startOf("wfr_1")]);
    await note(1249);
    expect(await publish([stepOf("wfr_1")])).toMatchObject([{ messageId: expect.any(String) }]);
    await note(1250);
    await expect(publish([stepOf("wfr_1", 2)])).rejects.toThrow("storage-quota-exceeded");
    const event = { account: "acme", event: "e", body: bytes("x"), runId: "wfr_1", kind: "event" } as const;
    await expect(broker.run("notify", event)).rejects.toThrow("storage-quota-exceeded");
    await note(1000);
    expect(await publish([stepOf("wfr_1", 2)])).toMatchObject([{ messageId: expect.any(String) }]);
    expect(await broker.run("notify", event)).toMatchObject({ stored: true });
  });

  test("passes over the times of its schedules", async () => {
    await note(0);
    const { body, ...letter } = letterOf();
    await broker.run("createSchedule", { account: "acme", id: "tick", cron: "* * * * *", letter, body });
    await note(1000);
    const before = broker.memory.tables.envelopes.size;
    broker.now += minute;
    await broker.run("claim", { limit: 10 });
    expect(broker.memory.tables.envelopes.size).toBe(before);
    expect(broker.memory.tables.schedules.get("acme\ntick")).toMatchObject({ passedOver: over.message, paused: false });
  });
});

test("what is stored is noted of an account with a quota alone, and only when it changes what is refused", async () => {
  expect(await note(5)).toEqual({ noted: false });
  await quota(1000);
  expect(await note(5)).toEqual({ noted: true });
  expect(await note(999)).toEqual({ noted: false });
  expect(noted()).toEqual({ bytes: 5 });
  expect(await note(1000)).toEqual({ noted: true });
  expect(await note(1249)).toEqual({ noted: false });
  expect(await note(1250)).toEqual({ noted: true });
  await quota(null);
  expect(await note(1250)).toEqual({ noted: true });
  expect(noted()).toBeUndefined();
});
