import { beforeEach, expect, test } from "vitest";
import type { Terms } from "../../../../src/engine/core/model/accountTerms.ts";
import { CommandRunner, bytes, makeInput } from "../commandRunner.ts";

const minute = 60_000;
const january = Date.UTC(2026, 0, 1);
const february = Date.UTC(2026, 1, 1);

const endpoint = "https://app.example/workflow";
const features = { lazyFetch: true, initialBody: true, detect: true, captured: true };
const startOf = (runId: string) =>
  makeInput({
    url: endpoint,
    post: { kind: "start", runId, url: endpoint, features, origin: "sdk", invoker: null },
  });
const head = { stepId: 1, stepName: "s", stepType: "Run", concurrent: 1 };
const stepOf = (runId: string) =>
  makeInput({ url: endpoint, body: bytes("1"), post: { kind: "step", runId, head } });

let broker: CommandRunner;
beforeEach(async () => {
  broker = await CommandRunner.open();
});

const change = (terms: Pick<Terms, "budget">) =>
  broker.run("changeAccount", { account: "acme", change: terms });
const spend = (dollars: number) => broker.run("recordSpending", { account: "acme", dollars, month: january });
const publish = async () => (await broker.run("publish", { account: "acme", inputs: [makeInput()] }))[0];

const spent = {
  refused: "limit-exceeded",
  message: "budget: 20.50 dollars spent this month; the limit is 20",
  remedy: { remedy: "raise-budget" },
};

test("no dead letter is retried and no run is resumed once the budget is spent", async () => {
  const id = await broker.publish({ retries: 0 });
  await broker.settle(id, { status: 500 });
  const dlqIds = broker.deadLetters.map((letter) => letter.id);
  await change({ budget: 20 });
  await spend(20.5);
  const retry = () =>
    broker.run("retryDeadLetters", { account: "acme", dlqIds, logRetention: minute, overrides: {} });
  await expect(retry()).rejects.toThrow(/20\.50 dollars spent/);
  const resume = { account: "acme", dlqId: dlqIds[0] ?? "", logRetention: minute, overrides: {} } as const;
  for (const from of ["failure", "beginning"] as const)
    await expect(broker.run("resumeRun", { ...resume, from })).rejects.toThrow(/20\.50 dollars spent/);
  await change({ budget: 0 });
  expect(await retry()).toHaveLength(1);
});

test("the spending of an account is recorded only if it has a budget, and only if it changed", async () => {
  expect(await spend(5)).toEqual({ noted: false });
  await change({ budget: 20 });
  expect(await spend(5)).toEqual({ noted: true });
  expect(await spend(5)).toEqual({ noted: false });
  expect(broker.memory.tables.accounts.get("acme")?.spending).toEqual({ month: january, dollars: 5 });
});

test("publishing is refused once the budget is spent, until it is raised or the month ends", async () => {
  await change({ budget: 20 });
  await spend(19.99);
  expect(await publish()).toMatchObject({ messageId: expect.any(String) });
  await spend(20.5);
  expect(await publish()).toEqual(spent);
  await change({ budget: 30 });
  expect(await publish()).toMatchObject({ messageId: expect.any(String) });
  await change({ budget: 20 });
  expect(await publish()).toEqual(spent);
  await change({ budget: 0 });
  expect(await publish()).toMatchObject({ messageId: expect.any(String) });
  await change({ budget: 20 });
  broker.now = february - 1;
  expect(await publish()).toEqual(spent);
  broker.now = february;
  expect(await publish()).toMatchObject({ messageId: expect.any(String) });
});

test("a schedule skips its firings while the budget is spent, and fires as before afterwards", async () => {
  const { body, ...messageInput } = makeInput();
  await broker.run("createSchedule", { account: "acme", id: "tick", cron: "* * * * *", messageInput, body });
  const schedule = () => broker.memory.tables.schedules.get("acme\ntick");
  const made = async (): Promise<number> => {
    const before = broker.memory.tables.storedMessages.size;
    await broker.run("claim", { limit: 10 });
    return broker.memory.tables.storedMessages.size - before;
  };
  const fired = (): Promise<number> => {
    broker.now += minute;
    return made();
  };
  await change({ budget: 20 });
  await spend(19.99);
  expect(await fired()).toBe(1);
  await spend(20.5);
  expect(await fired()).toBe(0);
  const { message, remedy } = spent;
  expect(schedule()).toMatchObject({
    dueAt: broker.now + minute,
    lastAt: broker.now,
    lastMessages: [],
    paused: false,
    passedOver: message,
    remedy,
  });
  await change({ budget: 30 });
  expect(await made(), "skipped firings are not repeated").toBe(0);
  expect(await fired()).toBe(1);
  expect(schedule()).not.toHaveProperty("passedOver");
  expect(schedule()).not.toHaveProperty("remedy");
  await change({ budget: 20 });
  expect(await fired()).toBe(0);
  broker.now = february - minute;
  expect(await fired(), "the month has ended").toBe(1);
});

test("steps of an active run are accepted although the budget is spent, and new runs are not", async () => {
  await broker.run("publish", { account: "acme", inputs: [startOf("wfr_1")] });
  await change({ budget: 20 });
  await spend(20.5);
  expect(await broker.run("publish", { account: "acme", inputs: [stepOf("wfr_1")] })).toMatchObject([
    { messageId: expect.any(String) },
  ]);
  await expect(broker.run("publish", { account: "acme", inputs: [startOf("wfr_2")] })).rejects.toThrow(
    "20.50 dollars spent",
  );
});
