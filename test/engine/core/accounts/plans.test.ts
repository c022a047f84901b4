import { beforeEach, describe, expect, test } from "vitest";
import { limits as house } from "../../../../src/engine/core/values/limits.ts";
import { limitNames, readLimits, planNames, plans } from "../../../../src/engine/core/accounts/plans.ts";
import { retentionFor } from "../../../../src/engine/core/accounts/retention.ts";
import type { LimitName, Terms } from "../../../../src/engine/core/model/accountTerms.ts";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import { CommandRunner, bytes, callbackTo, makeInput, noon } from "../commandRunner.ts";

const second = 1000;

let broker: CommandRunner;
beforeEach(async () => {
  broker = await CommandRunner.open();
});

function grant(terms: Terms): void {
  const { accounts } = broker.memory.tables;
  for (const [key, account] of accounts) accounts.set(key, { ...account, ...terms });
}

describe("the limits of an account", () => {
  test("are those of the server if the account was created without a plan", () => {
    const { messageBytes, retries, delay, timeout, schedules, groups, endpoints, sources, parallelism } =
      readLimits({});
    expect({
      messageBytes,
      retries,
      delay,
      timeout,
      schedules,
      groups,
      endpoints,
      sources,
      parallelism,
    }).toEqual({
      messageBytes: 64 * 1024 * 1024,
      retries: house.retries,
      delay: house.delay,
      timeout: house.timeout,
      schedules: house.schedules,
      groups: house.groups,
      endpoints: house.endpoints,
      sources: house.sources,
      parallelism: house.parallelism,
    });
  });

  test("are those of its plan unless it has its own, and never exceed those of the server", () => {
    expect(readLimits({ plan: "free" })).toEqual(plans.free);
    expect(readLimits({ plan: "free", limits: { retries: 5 } })).toEqual({ ...plans.free, retries: 5 });
    expect(readLimits({ limits: { retries: house.retries + 1 } }).retries).toBe(house.retries);
    expect(readLimits({ plan: "paid", limits: { requestsPerDayHard: 70 } })).toMatchObject({
      requestsPerDay: 70,
      requestsPerDayHard: 70,
    });
    expect(readLimits({ limits: { requestsPerDay: 90, requestsPerDayHard: 70 } }).requestsPerDay).toBe(70);
    expect(readLimits({ limits: { requestsPerDay: 60, requestsPerDayHard: 70 } }).requestsPerDay).toBe(60);
  });

  // Operators sell plans by these numbers.
  test("have the promised values for each plan", () => {
    const day = 86_400 * second;
    const most = 1_000_000_000;
    const free = {
      messageBytes: 1_048_576,
      retries: 999,
      delay: 7 * day,
      timeout: 900 * second,
      parallelism: 2,
      queues: 10,
      schedules: 10,
      groups: 1,
      endpoints: 100,
      sources: 1,
      tokens: 5,
      deadLetterRetention: 3 * day,
      logRetention: 3 * day,
      auditRetention: 30 * day,
      globalParallelism: 10,
      deadLetters: 1_000_000,
      logEntries: 10_000,
      auditEntries: 10_000,
      requestsPerSecond: 100,
      requestsPerDay: 1_000,
      requestsPerDayHard: 1_000,
      storageBytes: 500_000_000_000_000,
    };
    const paid = {
      ...free,
      messageBytes: 10_485_760,
      delay: 366 * day,
      timeout: 7_200 * second,
      parallelism: 100,
      queues: 1_000,
      schedules: 1_000,
      groups: 1_000,
      sources: 100,
      tokens: 100,
      deadLetterRetention: 7 * day,
      logRetention: 7 * day,
      auditRetention: 90 * day,
      globalParallelism: 100,
      logEntries: 100_000,
      auditEntries: 100_000,
      requestsPerDay: 500_000,
      requestsPerDayHard: 1_000_000,
    };
    const fixed = {
      ...paid,
      messageBytes: 52_428_800,
      logRetention: 14 * day,
      auditRetention: 365 * day,
      timeout: 43_200 * second,
      queues: 10_000,
      schedules: 10_000,
      sources: 1_000,
      tokens: 1_000,
      requestsPerSecond: 1_000,
    };
    const million = 1_000_000;
    const requests = (perDay: number) => ({ requestsPerDay: perDay, requestsPerDayHard: 2 * perDay });
    expect(plans.free).toEqual(free);
    expect(plans.paid).toEqual(paid);
    expect(plans.fixed_1m).toEqual({
      ...fixed,
      ...requests(million),
      globalParallelism: 200,
      deadLetterRetention: 30 * day,
    });
    expect(plans.fixed_10m).toEqual({
      ...fixed,
      ...requests(10 * million),
      globalParallelism: 500,
      deadLetterRetention: 30 * day,
    });
    expect(plans.fixed_100m).toEqual({
      ...fixed,
      ...requests(100 * million),
      globalParallelism: 1_000,
      deadLetterRetention: 90 * day,
    });
    expect(plans.selfHosted).toMatchObject({
      queues: most,
      globalParallelism: most,
      deadLetters: most,
      logEntries: most,
      auditEntries: most,
      requestsPerSecond: most,
      requestsPerDay: most,
      requestsPerDayHard: most,
      storageBytes: 500_000_000_000_000,
      tokens: 1_000,
      deadLetterRetention: 3_650 * day,
      logRetention: 3_650 * day,
      auditRetention: 3_650 * day,
    });
  });

  test.each(planNames)("of the plan %s are whole numbers within the limits of the server", (name) => {
    for (const limit of limitNames) {
      expect(Number.isSafeInteger(plans[name][limit]) && plans[name][limit] > 0, limit).toBe(true);
      expect(plans[name][limit], limit).toBeLessThanOrEqual(plans.selfHosted[limit]);
    }
  });
});

describe("a publish beyond a limit of the account", () => {
  type Beyond = [
    limit: LimitName,
    taken: Partial<MessageInput>,
    refused: Partial<MessageInput>,
    code: string,
    text: string,
  ];

  test.for<Beyond>([
    [
      "delay",
      { delay: 10 * second },
      { delay: 10 * second + 1 },
      "limit-exceeded",
      "delay: 10s1ms exceeds the limit of 10s",
    ],
    [
      "delay",
      { notBefore: noon + 10 * second },
      { notBefore: noon + 11 * second },
      "limit-exceeded",
      "not-before: 11s from now",
    ],
    ["retries", { retries: 2 }, { retries: 3 }, "limit-exceeded", "retries: 3 exceeds the limit of 2"],
    [
      "timeout",
      { timeout: 5 * second },
      { timeout: 6 * second },
      "limit-exceeded",
      "timeout: 6s exceeds the limit of 5s",
    ],
    [
      "messageBytes",
      { body: bytes("12345") },
      { body: bytes("123456") },
      "too-large",
      "body: 6 bytes exceeds the limit of 5",
    ],
    [
      "retries",
      { callback: { ...callbackTo("https://c.example"), retries: 2 } },
      { callback: { ...callbackTo("https://c.example"), retries: 3 } },
      "limit-exceeded",
      "retries: 3 exceeds the limit of 2",
    ],
  ])(
    "is refused with the name, the number and the way to raise the limit: %s %j",
    async ([limit, taken, refused, code, said]) => {
      grant({
        plan: "free",
        limits: { delay: 10 * second, retries: 2, timeout: 5 * second, messageBytes: 5 },
      });
      const inputs = [makeInput({ body: bytes(""), ...taken }), makeInput({ body: bytes(""), ...refused })];
      const [one, other] = await broker.run("publish", { account: "acme", inputs });
      expect(one).toMatchObject({ messageId: expect.any(String) });
      const remedy = { remedy: "raise-limit", account: "acme", plan: "free", limit };
      expect(other).toMatchObject({ refused: code, message: expect.stringContaining(said), remedy });
    },
  );

  test("does not occur by default: a message without settings gets values within the limits", async () => {
    grant({ limits: { retries: 1, timeout: 5 * second } });
    await broker.publish();
    expect(broker.deliveries).toMatchObject([{ message: { retries: 1, timeout: 5 * second } }]);
  });

  test("does not mention the account if the limit is the server's", async () => {
    const [result] = await broker.run("publish", {
      account: "acme",
      inputs: [makeInput({ retries: house.retries + 1 })],
    });
    expect(result).toEqual({
      refused: "limit-exceeded",
      message: `retries: 1001 exceeds the limit of ${house.retries}`,
    });
  });
});

test("queues and URL groups must keep within the limits of the account", async () => {
  grant({ plan: "free", limits: { parallelism: 2, endpoints: 1 } });
  await broker.run("upsertQueue", { account: "acme", name: "q", parallelism: 2 });
  await expect(broker.run("upsertQueue", { account: "acme", name: "q", parallelism: 3 })).rejects.toThrow(
    /parallelism: 3 exceeds the limit of 2".*"raise-limit".*"limit":"parallelism"/,
  );
  const endpoint = (host: string) => ({ name: null, url: `https://${host}.example` });
  await broker.run("addEndpoints", { account: "acme", name: "g", endpoints: [endpoint("a")] });
  await expect(
    broker.run("addEndpoints", { account: "acme", name: "g", endpoints: [endpoint("b")] }),
  ).rejects.toThrow(/endpoints: 2 in the URL group g exceeds the limit of 1".*"limit":"endpoints"/);
});

test("logs, dead letters and the audit log are kept for the shorter time of account and server", () => {
  const day = 86_400_000;
  const retention = { log: day, deadLetters: 7 * day, audit: 60 * day };
  expect(retentionFor({}, retention)).toEqual(retention);
  expect(retentionFor({}, { log: day, deadLetters: day })).toEqual({
    log: day,
    deadLetters: day,
    audit: 90 * day,
  });
  expect(retentionFor({ plan: "free" }, retention)).toEqual({
    log: day,
    deadLetters: 3 * day,
    audit: 30 * day,
  });
  expect(retentionFor({ plan: "paid" }, retention)).toEqual(retention);
  expect(retentionFor({ plan: "fixed_1m" }, { ...retention, audit: 1_000 * day })).toMatchObject({
    audit: 365 * day,
  });
  expect(retentionFor({ limits: { logRetention: 1_000 } }, retention)).toEqual({ ...retention, log: 1_000 });
  expect(retentionFor({ limits: { deadLetterRetention: 8 * day } }, retention)).toEqual(retention);
  expect(retentionFor({ plan: "free", limits: { auditRetention: 2 * day } }, retention)).toMatchObject({
    audit: 2 * day,
  });
  expect(retentionFor({ limits: { auditRetention: 61 * day } }, retention)).toEqual(retention);
});

describe("a disabled account", () => {
  test("can be deleted, which removes its credentials; an active account cannot be deleted", async () => {
    await expect(broker.run("deleteAccount", { account: "acme" })).rejects.toThrow(/disable it before/);
    await broker.run("changeAccount", { account: "acme", change: { state: "passive" } });
    const left = {
      id: "acme",
      name: "",
      password: "",
      token: "",
      tokenHash: "deleted acme",
      deletedAt: noon,
    };
    expect(await broker.run("deleteAccount", { account: "acme" })).toMatchObject(left);
  });

  test("has no owner, no old key and no daily count left after it is deleted", async () => {
    grant({ limits: { requestsPerDayHard: 5 }, customerId: "team_1" });
    await broker.publish();
    await broker.run("rotateKeys", { account: "acme" });
    await broker.run("changeAccount", { account: "acme", change: { state: "passive" } });
    expect(broker.memory.tables.dayCounts.size).toBe(1);
    const left = await broker.run("deleteAccount", { account: "acme" });
    expect(Object.keys(left)).not.toContain("customerId");
    expect(Object.keys(left)).not.toContain("lastRotation");
    expect(broker.memory.tables.dayCounts.size).toBe(0);
  });

  test("cannot publish or create anything, and the error says how to re-enable it", async () => {
    grant({ state: "passive" });
    const { body, ...messageInput } = makeInput();
    const refused = /forbidden.*"remedy":"enable-account","account":"acme"/;
    await expect(broker.publish()).rejects.toThrow(refused);
    await expect(
      broker.run("createSchedule", { account: "acme", id: "s", cron: "* * * * *", messageInput, body }),
    ).rejects.toThrow(refused);
    await expect(broker.run("upsertQueue", { account: "acme", name: "q" })).rejects.toThrow(refused);
    await expect(broker.run("addEndpoints", { account: "acme", name: "g", endpoints: [] })).rejects.toThrow(
      refused,
    );
    expect(broker.memory.tables.storedMessages.size + broker.memory.tables.schedules.size).toBe(0);
  });

  test("still has its earlier messages delivered, and its schedules skip their firings", async () => {
    const { body, ...messageInput } = makeInput();
    await broker.run("createSchedule", { account: "acme", id: "s", cron: "* * * * *", messageInput, body });
    const id = await broker.publish({ delay: 30 * second });
    grant({ state: "passive" });
    broker.now = noon + 90 * second;
    await broker.run("claim", { limit: 10 });
    expect(broker.deliveries).toMatchObject([{ message: { id } }]);
    expect([...broker.memory.tables.schedules.values()]).toMatchObject([
      { dueAt: noon + 120 * second, lastMessages: [] },
    ]);
    grant({ state: "active" });
    broker.now = noon + 120 * second;
    await broker.run("claim", { limit: 10 });
    expect(broker.deliveries.map(({ message }) => message.scheduleId)).toContain("s");
  });
});
