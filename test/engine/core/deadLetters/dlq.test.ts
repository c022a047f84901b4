import { beforeEach, describe, expect, test } from "vitest";
import type { DeadLetter } from "../../../../src/engine/core/model/deadLetter.ts";
import { CommandRunner, bytes, callbackTo, noCapacity, noon } from "../commandRunner.ts";
import { makeDeletion } from "../../../makeDeletion.ts";

const hour = 3_600_000;
const logRetention = 24 * hour;

let broker: CommandRunner;
let id: string;
let dlqId: string;
beforeEach(async () => {
  broker = await CommandRunner.open();
  id = await broker.publish({
    retries: 0,
    body: bytes("hello"),
    labels: ["a"],
    headers: [["X-A", "1"]],
    deduplication: "key",
    delay: 0,
  });
  await broker.settle(id);
  dlqId = broker.deadLetters[0]?.id ?? "";
});

const retry = (dlqIds: string[], overrides = {}) =>
  broker.run("retryDeadLetters", { account: "acme", dlqIds, logRetention, overrides });
const remove = (dlqIds: string[]) =>
  broker.run("bulk", makeDeletion({ account: "acme", dlqIds, logRetention }));
const envelope = (id: string) => broker.memory.tables.storedMessages.get(`acme\n${id}`);

test("the id of a dead letter begins with the time of the failure", () => {
  expect(dlqId).toMatch(new RegExp(`^${noon}-\\d{9}$`));
});

describe("a retried dead letter", () => {
  test("is a new message with the same contents, due now, and leaves the dead letter queue", async () => {
    broker.now += hour;
    const [again, ...others] = await retry([dlqId]);
    expect(others).toEqual([]);
    expect(again).toEqual({ dlqId, messageId: expect.stringMatching(/^msg_/) });
    const fresh = envelope(again?.messageId ?? "");
    expect(fresh).toEqual({
      ...envelope(id),
      id: again?.messageId,
      createdAt: broker.now,
      notBefore: broker.now,
      deduplication: null,
    });
    expect(broker.deliveries).toMatchObject([{ message: { id: again?.messageId }, attempt: 0 }]);
    expect(broker.deadLetters).toEqual([]);
  });

  test("waits behind messages in the waitlist of its host", async () => {
    const { capacity } = broker;
    broker.capacity = noCapacity;
    await broker.publish();
    await broker.run("claim", { limit: 10 });
    broker.capacity = capacity;
    const [again] = await retry([dlqId]);
    expect(broker.deliveries).toEqual([]);
    expect(broker.state(again?.messageId ?? "")).toMatchObject({ state: "pending" });
  });

  test("gets the overrides, and keeps its other settings", async () => {
    const [again] = await retry([dlqId], { retries: 5, delay: 2 * hour });
    expect(envelope(again?.messageId ?? "")).toMatchObject({
      retries: 5,
      notBefore: noon + 2 * hour,
      labels: ["a"],
      headers: [["X-A", "1"]],
    });
  });

  test("hides more headers up to the limit, and stays as it is beyond it", async () => {
    const hide = (name: string, length: number) => ({
      redaction: { body: false, headers: [name.repeat(length)] },
    });
    const old = await broker.publish({ retries: 0, ...hide("A", 40_000) });
    await broker.settle(old);
    const own = broker.deadLetters.find(({ messageId }) => messageId === old)?.id ?? "";
    await expect(retry([own], hide("B", 25_537))).rejects.toThrow(/"code":"limit-exceeded"/);
    expect(broker.deadLetters.map((one) => one.id)).toContain(own);
    const [again] = await retry([own], hide("B", 25_536));
    expect(envelope(again?.messageId ?? "")?.redaction).toEqual({
      body: false,
      headers: ["A".repeat(40_000), "B".repeat(25_536)],
    });
  });

  test("of which too many headers are hidden is still sent again unless a request hides more", async () => {
    const redaction = { body: false, headers: ["A".repeat(70_000)] };
    const old = await broker.publish({ retries: 0, redaction });
    await broker.settle(old);
    const own = broker.deadLetters.find(({ messageId }) => messageId === old)?.id ?? "";
    const [again] = await retry([own], { retries: 1 });
    expect(envelope(again?.messageId ?? "")).toMatchObject({ retries: 1, redaction });
  });

  test("counts once, no matter how often it is named; missing dead letters are skipped", async () => {
    expect(await retry([dlqId, dlqId, "unknown"])).toHaveLength(1);
    expect(await retry([dlqId])).toEqual([]);
  });

  test("still reports to its dead letter if it was a failure callback", async () => {
    const failed = await broker.publish({ retries: 0, failureCallback: callbackTo("https://told.example") });
    await broker.settle(failed);
    const told = broker.listReporters(failed)[0]?.id ?? "";
    await broker.settle(told, { status: 489, headers: [["Svc-Nonretryable-Error", "true"]] });
    const own = broker.deadLetters.find(({ messageId }) => messageId === told)?.id ?? "";
    const [again] = await retry([own]);
    await broker.settle(again?.messageId ?? "", { status: 200 });
    expect(broker.deadLetters.find(({ messageId }) => messageId === failed)?.failureCallback).toMatchObject({
      state: "CALLBACK_SUCCESS",
    });
  });
});

describe("a deleted dead letter", () => {
  test("counts once, and the log of its message stays", async () => {
    expect(await remove([dlqId, dlqId, "unknown"])).toEqual({
      done: 1,
      failures: [{ id: "unknown", reason: "the dead letter does not exist" }],
      results: [],
    });
    expect(broker.deadLetters).toEqual([]);
    expect(envelope(id)).toBeDefined();
    expect(broker.log(id)).toBe("ERROR FAILED");
  });

  test("removes its stored message if the log entry is gone, not if it has only expired", async () => {
    broker.now += logRetention + 1;
    const kept = { ...broker.memory.tables.deadLetters.get(`acme\n${dlqId}`) };
    await remove([dlqId]);
    expect(envelope(id)).toBeDefined();
    broker.memory.tables.deadLetters.set(`acme\n${dlqId}`, kept as DeadLetter);
    const retention = { log: logRetention, deadLetters: 1e12 };
    await broker.run("expire", { account: "acme", retention, now: broker.now, limit: 100 });
    expect(envelope(id)).toBeDefined();
    await remove([dlqId]);
    expect(envelope(id)).toBeUndefined();
  });

  test("removes its stored message once the log has expired, if it is damaged", async () => {
    const { deadLetters } = broker.memory.tables;
    for (const [key, { logId: _logId, ...letter }] of deadLetters) deadLetters.set(key, letter);
    broker.now += logRetention + 1;
    await remove([dlqId]);
    expect(envelope(id)).toBeUndefined();
  });
});

test("dead letters of another account do not exist for an account", async () => {
  await broker.run("createAccount", {
    id: "other",
    name: "other",
    password: "",
    token: "t",
    tokenHash: "h",
    signingKeys: { current: "a", next: "b" },
  });
  expect(await broker.run("bulk", makeDeletion({ account: "other", dlqIds: [dlqId], logRetention }))).toEqual(
    {
      done: 0,
      failures: [{ id: dlqId, reason: "the dead letter does not exist" }],
      results: [],
    },
  );
  expect(
    await broker.run("retryDeadLetters", { account: "other", dlqIds: [dlqId], logRetention, overrides: {} }),
  ).toEqual([]);
  expect(broker.deadLetters).toHaveLength(1);
});
