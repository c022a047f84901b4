import { beforeEach, describe, expect, test } from "vitest";
import { carriedBalancesId } from "../../../../src/engine/core/accounts/usage.ts";
import { toStorageLevel } from "../../../../src/engine/core/limits/storageQuota.ts";
import type { RunPost } from "../../../../src/engine/core/model/runPost.ts";
import { weighColumns } from "../../../../src/engine/store/sql/storedBytes.ts";
import { expectStoredBytesInMemory } from "../../store/sql/stored.ts";
import { CommandRunner, bytes, makeInput } from "../commandRunner.ts";
import { makeDeletion } from "../../../makeDeletion.ts";

let broker: CommandRunner;
beforeEach(async () => {
  broker = await CommandRunner.open();
});

const quota = (storageBytes: number | null) =>
  broker.run("changeAccount", { account: "acme", change: { limits: { storageBytes } } });
const note = (stored: number) => broker.run("recordStorage", { account: "acme", bytes: stored });
const noted = () => broker.memory.tables.accounts.get("acme")?.storedBytes;
const publish = async (input = makeInput()) =>
  (await broker.run("publish", { account: "acme", inputs: [input] }))[0];
const stored = (): number =>
  [...broker.memory.tables.usage.values()].reduce(
    (sum, { id, storedBytes }) => (id.startsWith("3h/") ? sum + storedBytes : sum),
    0,
  );

test("a row weighs its detail, its body, and 100 bytes", () => {
  expect(weighColumns("log", { detail: null, body: null })).toBe(100);
  expect(weighColumns("log", { detail: `${"x".repeat(248)}ü`, body: bytes("x".repeat(1000)) })).toBe(1350);
  expect(weighColumns("messages", { host: "x" })).toBe(100);
});

describe("stored bytes", () => {
  test("are added with a message and its log, and subtracted with them", async () => {
    const before = stored();
    const id = await broker.publish({ body: bytes("x".repeat(1000)) });
    const taken = stored();
    expect(taken - before).toBeGreaterThan(1100);
    await broker.settle(id, { status: 200 });
    expect(stored() - taken).toBe(100);
    broker.now += 1001;
    await broker.run("expire", {
      account: "acme",
      retention: { log: 1000, deadLetters: 1000 },
      now: broker.now,
      limit: 100,
    });
    expect(stored()).toBe(before);
    expectStoredBytesInMemory(broker.memory);
  });

  test("are counted as bytes of UTF-8", async () => {
    const one = stored();
    await broker.publish({ labels: ["a"] });
    const two = stored();
    await broker.publish({ labels: ["𝄞"] });
    expect(stored() - two).toBe(two - one + 3);
    expectStoredBytesInMemory(broker.memory);
  });

  test("are carried over when their bucket is removed, except for a deleted account", async () => {
    await broker.publish({ delay: 1000 });
    const before = stored();
    const expire = () =>
      broker.run("expire", {
        account: "acme",
        retention: { log: 1e12, deadLetters: 1e12 },
        now: broker.now,
        limit: 100,
      });
    broker.now += 40 * 86_400_000;
    await expire();
    expect([...broker.memory.tables.usage.values()]).toMatchObject([
      { id: carriedBalancesId, storedBytes: before },
    ]);
    await broker.run("changeAccount", { account: "acme", change: { state: "passive" } });
    await broker.run("deleteAccount", { account: "acme" });
    await expire();
    expect(broker.memory.tables.usage.size).toBe(0);
  });
});

describe("an account", () => {
  test("is full above its quota, and overfull above 125 % of it", () => {
    const account = { limits: { storageBytes: 1000 } };
    expect([1000, 1001, 1250, 1251].map((sum) => toStorageLevel(account, sum))).toEqual([
      null,
      "full",
      "full",
      "overfull",
    ]);
    expect(toStorageLevel({}, 1e14)).toBeNull();
  });

  test("is written only if its level changes", async () => {
    await quota(1000);
    expect(await note(1000)).toEqual({ noted: false });
    expect(await note(1001)).toEqual({ noted: true });
    expect(await note(1200)).toEqual({ noted: false });
    expect(noted()).toBe(1001);
    expect(await note(1300)).toEqual({ noted: true });
    expect(await note(1100)).toEqual({ noted: true });
    expect(await note(900)).toEqual({ noted: true });
    expect(noted()).toBeUndefined();
  });

  test("without a quota is never recorded as full, and may publish at once after a raise", async () => {
    expect(await note(1e13)).toEqual({ noted: false });
    await quota(1000);
    await note(1001);
    expect(await publish()).toMatchObject({ refused: "storage-quota-exceeded" });
    await quota(2000);
    expect(await publish()).toHaveProperty("messageId");
    await quota(null);
    expect(await publish()).toHaveProperty("messageId");
  });
});

const features = { lazyFetch: false, initialBody: true, detect: false, captured: true };
const start = (runId: string): RunPost => ({
  kind: "start",
  runId,
  url: "https://w.example/",
  features,
  origin: "sdk",
  invoker: null,
});
const head = { stepId: 1, stepName: "one", stepType: "Run", concurrent: 1 };
const step: RunPost = { kind: "step", runId: "r", head };
const post = (one: RunPost) =>
  publish(makeInput({ url: "https://w.example/", body: bytes("{}"), post: one }));
const waiter = {
  kind: "event" as const,
  event: "e",
  url: "https://w.example/",
  headers: [],
  given: [],
  timeout: "1d",
  timeoutUrl: "https://w.example/",
  timeoutHeaders: [],
  timeoutGiven: [],
  step: { ...head, stepId: 2 },
  wait: 1000,
};

describe("an account over its quota", () => {
  beforeEach(async () => {
    await quota(1000);
    await post(start("r"));
  });

  test("stores nothing new, and the refusal names its use, its limit and the remedy", async () => {
    await note(1001);
    expect(await publish()).toEqual({
      refused: "storage-quota-exceeded",
      message:
        "storage: 1001 bytes stored exceed this account's limit of 1000; " +
        "delete dead letters, schedules or URL groups, wait until logs expire",
      remedy: { remedy: "raise-storage-quota", account: "acme" },
    });
    await expect(post(start("s"))).rejects.toThrow("storage-quota-exceeded");
    const messageInput = { ...makeInput(), deduplication: null };
    const schedule = { account: "acme", id: "scd", cron: "* * * * *", messageInput, body: bytes("x") };
    await expect(broker.run("createSchedule", schedule)).rejects.toThrow("storage-quota-exceeded");
  });

  test("cannot retry dead letters or resume runs, and can delete both", async () => {
    await broker.settle(await broker.publish({ retries: 0 }), { status: 500 });
    const dlqIds = broker.deadLetters.map(({ id }) => id);
    await note(1001);
    const of = { account: "acme", logRetention: 1e9, overrides: {} };
    await expect(broker.run("retryDeadLetters", { ...of, dlqIds })).rejects.toThrow("storage-quota-exceeded");
    await expect(broker.run("resumeRun", { ...of, dlqId: dlqIds[0] ?? "", from: "failure" })).rejects.toThrow(
      "storage-quota-exceeded",
    );
    expect(
      await broker.run("bulk", makeDeletion({ account: "acme", dlqIds, logRetention: 1e9 })),
    ).toMatchObject({ done: 1 });
    expectStoredBytesInMemory(broker.memory);
  });

  test("has its schedules skip their firings, and fire again when there is room", async () => {
    await broker.run("createSchedule", {
      account: "acme",
      id: "scd",
      cron: "* * * * *",
      messageInput: makeInput(),
      body: bytes("x"),
    });
    await note(1001);
    const schedule = () => broker.memory.tables.schedules.get("acme\nscd");
    broker.now += 60_000;
    await broker.run("claim", { limit: 10 });
    expect(schedule()).toMatchObject({
      lastMessages: [],
      passedOver: expect.stringContaining("storage: 1001 bytes"),
    });
    await note(999);
    broker.now += 60_000;
    await broker.run("claim", { limit: 10 });
    expect(schedule()?.lastMessages).toHaveLength(1);
    expect(schedule()).not.toHaveProperty("passedOver");
  });

  test("still has accepted messages delivered, and callbacks and posts of active runs accepted", async () => {
    const id = await broker.publish();
    await note(1250);
    expect(await broker.settle(id, { status: 500, body: bytes("x".repeat(1_000)) })).toBe("retry");
    // A message may have 1,000 retries, and the log would keep the response of each.
    expect([...broker.memory.tables.log.values()].find(({ status }) => status === 500)).toMatchObject({
      cut: true,
      body: bytes(""),
    });
    expect(await post(step)).toHaveProperty("messageId");
    const before = stored();
    expect(await broker.run("wait", { account: "acme", runId: "r", waiter })).toEqual({ waits: true });
    expect(stored() - before).toBeGreaterThan(100);
    const event = { account: "acme", event: "e", body: bytes("e"), runId: "r", kind: "event" as const };
    expect(await broker.run("notify", event)).toMatchObject({ stored: false });
  });

  test("has steps, waits and events refused above 125 %, in a way that clients retry", async () => {
    await note(1251);
    const event = { account: "acme", event: "e", body: bytes("e"), runId: "r", kind: "event" as const };
    for (const run of [
      () => post(step),
      () => broker.run("wait", { account: "acme", runId: "r", waiter }),
      () => broker.run("notify", event),
    ])
      await expect(run()).rejects.toThrow("exceed this account's limit of 1000 by more than 25 %");
    await note(1250);
    expect(await post(step)).toHaveProperty("messageId");
    expect(await broker.run("wait", { account: "acme", runId: "r", waiter })).toEqual({ waits: true });
    expect(await broker.run("notify", event)).toMatchObject({ stored: false });
    expectStoredBytesInMemory(broker.memory);
  });
});
