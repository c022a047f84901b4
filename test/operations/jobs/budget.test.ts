import { expect, test } from "vitest";
import { toMonthRange } from "../../../src/engine/core/accounts/statistics.ts";
import { type Job, readWait } from "../../../src/operations/jobs/job.ts";
import { listDeadLetters } from "../../api/routes/deadLetters/deadLetters.ts";
import { failRun } from "../../api/routes/lists/failedRunLists.ts";
import { createTestServer, type TestServer } from "../../api/testServer.ts";
import { createJobOf, createRunner, failMany, finish, readJob } from "./jobRunners.ts";

const setBudget = ({ store }: TestServer, budget: number) =>
  store.execute("changeAccount", { account: "acc_1", change: { budget } });

/** The account has spent ten dollars this month, and may spend ten. */
async function spendBudget(server: TestServer): Promise<void> {
  await setBudget(server, 10);
  const { from: month } = toMonthRange(server.clock.now);
  await server.store.execute("recordSpending", { account: "acc_1", dollars: 10, month });
}

/** Does the next rounds of a job. */
async function doRounds({ clock }: TestServer, runner: ReturnType<typeof createRunner>): Promise<void> {
  for (let round = 0; round < 3; round++) clock.now = Math.max(clock.now, await runner.round());
}

/** A server with a job that waits for the budget of its account before it retries dead letters. */
async function startWaitingRetry({ count, canary }: { count: number; canary?: number }) {
  const server = await createTestServer();
  await failMany(server, count);
  await spendBudget(server);
  const jobId = await createJobOf(server, { action: "dlq.retry", filter: {}, canary });
  const runner = createRunner(server, server.store);
  await doRounds(server, runner);
  return { server, jobId, runner };
}

test.each(["dlq.retry", "runs.resume", "runs.restart"] as const)(
  "a job with the action %s waits while the budget of its account is spent, and then continues",
  async (action) => {
    const server = await createTestServer();
    if (action === "dlq.retry") await failMany(server, 6);
    else for (const runId of ["a", "b", "c", "d", "e", "f"]) await failRun(server, runId);
    const jobId = await createJobOf(server, { action, filter: {} });
    const runner = createRunner(server, server.store);
    await runner.round();
    await runner.round();
    const { done } = await readJob(server, jobId);
    expect(done).toBeGreaterThan(0);
    await spendBudget(server);
    await doRounds(server, runner);
    const waiting = await readJob(server, jobId);
    expect(waiting).toMatchObject({ state: "waiting", waitingFor: "budget", total: 6, done, failed: 0 });
    expect(server.memory.tables.deadLetters.size).toBe(6 - done);
    await setBudget(server, 11);
    const ended = await finish(server, jobId, runner);
    expect(ended).toMatchObject({ state: "done", total: 6, done: 6, failed: 0 });
    expect(ended).not.toHaveProperty("waitingFor");
    expect(server.memory.tables.deadLetters.size).toBe(0);
  },
);

test("a job that waits for a budget continues in the next month", async () => {
  const { server, jobId, runner } = await startWaitingRetry({ count: 2 });
  const now = new Date(server.clock.now);
  server.clock.now = Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1) - 1;
  await runner.round();
  expect(await readJob(server, jobId)).toMatchObject({ state: "waiting", waitingFor: "budget", done: 0 });
  server.clock.now += 30_000;
  await runner.round();
  expect(await readJob(server, jobId)).toMatchObject({ state: "done", done: 2, failed: 0 });
});

test("a job that waits for a budget can be stopped", async () => {
  const { server, jobId, runner } = await startWaitingRetry({ count: 2 });
  const { body } = await server.ask("DELETE", `/v2/jobs/${jobId}`);
  expect(body).toMatchObject({ state: "stopped", done: 0, failed: 0 });
  expect(body).not.toHaveProperty("waitingFor");
  await setBudget(server, 0);
  server.clock.now += 60_000;
  await runner.round();
  expect((await listDeadLetters(server)).messages).toHaveLength(2);
});

test("a job still waits for its canary after it has waited for a budget", async () => {
  const { server, jobId, runner } = await startWaitingRetry({ count: 3, canary: 1 });
  expect(await readJob(server, jobId)).toMatchObject({ state: "waiting", waitingFor: "budget", done: 0 });
  await setBudget(server, 0);
  server.clock.now += 30_000;
  await doRounds(server, runner);
  expect(await readJob(server, jobId)).toMatchObject({ state: "waiting", waitingFor: "canary", done: 1 });
  for (const delivery of server.deliveries.splice(0)) await server.settle(delivery, { status: 200 });
  expect(await finish(server, jobId, runner)).toMatchObject({ state: "done", done: 3, failed: 0 });
});

/** Returns what version 0.1.0 takes a waiting job to wait for. A canary without results passes there. */
const readWaitIn010 = ({ waitsForDisk }: Pick<Job, "waitsForDisk">): string =>
  waitsForDisk ? "disk" : "canary";

test("a node of version 0.1.0 takes no wait for a budget for that of a canary", async () => {
  const { server, jobId } = await startWaitingRetry({ count: 3, canary: 1 });
  const job = server.memory.tables.jobs.get(`acc_1\n${jobId}`);
  expect(job).toMatchObject({ state: "waiting", waitsForBudget: true, canaryPassed: false });
  expect(job && readWaitIn010(job)).toBe("disk");
  // If such a node then moves the job to its canary, it leaves a field that it does not know.
  const { waitsForDisk: _, ...left } = job as Job;
  expect(readWait({ ...left, dueAt: 0 })).toBe("canary");
});

test("a job that sends nothing needs no budget", async () => {
  const server = await createTestServer();
  await failMany(server, 2);
  await spendBudget(server);
  const jobId = await createJobOf(server, { action: "dlq.delete", filter: {} });
  expect(await finish(server, jobId)).toMatchObject({ state: "done", done: 2 });
});

test("a job of a disabled account ends, even if the budget is spent", async () => {
  const server = await createTestServer();
  await failMany(server, 2);
  await spendBudget(server);
  const jobId = await createJobOf(server, { action: "dlq.retry", filter: {} });
  await server.store.execute("changeAccount", { account: "acc_1", change: { state: "passive" } });
  expect(await finish(server, jobId)).toMatchObject({ state: "failed", done: 0, failed: 0 });
});
