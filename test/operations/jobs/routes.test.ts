import { describe, expect, test } from "vitest";
import type { JobPortion } from "../../../src/operations/jobs/commands.ts";
import type { Store } from "../../../src/engine/store/store.ts";
import { createTestServer, otherToken } from "../../api/testServer.ts";
import type { TestServer } from "../../api/testServer.ts";
import { listDeadLetters } from "../../api/routes/deadLetters/deadLetters.ts";
import { failRun, start } from "../../api/routes/lists/failedRunLists.ts";
import { createJobOf as create, createRunner, failMany, finish, readJob } from "./jobRunners.ts";

/** Damages a dead letter, so that a retry of it is refused. */
function damage({ memory: { tables } }: TestServer, dlqId: string | undefined): void {
  const deadLetter = tables.deadLetters.get(`acc_1\n${dlqId}`);
  if (deadLetter) tables.deadLetters.set(`acc_1\n${dlqId}`, { ...deadLetter, damaged: true });
}

describe("a job", () => {
  test("retries each dead letter that existed at its start, once", async () => {
    const server = await createTestServer();
    await failMany(server, 10);
    const jobId = await create(server, { action: "dlq.retry", filter: {} });
    const runner = createRunner(server, server.store);
    await runner.round();
    await runner.round();
    // The retried messages fail again. They do not belong to the job.
    for (const delivery of server.deliveries.splice(0))
      await server.settle(delivery, { status: 489, headers: [["Svc-NonRetryable-Error", "true"]] });
    const job = await finish(server, jobId, runner);
    expect(job).toEqual({
      jobId,
      action: "dlq.retry",
      state: "done",
      total: 10,
      done: 10,
      failed: 0,
      createdAt: expect.any(Number),
      endedAt: expect.any(Number),
      startedBy: { kind: "token", token: "main" },
    });
    expect((await listDeadLetters(server)).messages).toHaveLength(4);
    expect(server.deliveries).toHaveLength(6);
  });

  test("applies its filter, and only to its own account", async () => {
    const server = await createTestServer();
    await failMany(server, 3);
    const jobId = await create(server, { action: "dlq.delete", filter: { label: ["n0", "n2"] } });
    expect((await server.ask("GET", `/v2/jobs/${jobId}`, { token: otherToken })).status).toBe(404);
    expect((await server.ask("DELETE", `/v2/jobs/${jobId}`, { token: otherToken })).status).toBe(404);
    expect((await server.ask("GET", "/v2/jobs", { token: otherToken })).body).toEqual({ jobs: [] });
    expect(await finish(server, jobId)).toMatchObject({ state: "done", total: 2, done: 2 });
    expect((await listDeadLetters(server)).messages).toHaveLength(1);
    expect((await server.ask("GET", "/v2/jobs")).body.jobs).toMatchObject([{ jobId, state: "done" }]);
  });

  test("with dryRun only counts the entries", async () => {
    const server = await createTestServer();
    await failMany(server, 3);
    const { status, body } = await server.ask("POST", "/v2/jobs", {
      body: JSON.stringify({ action: "dlq.delete", filter: { label: "n1" }, dryRun: true }),
    });
    expect({ status, body }).toMatchObject({ status: 200, body: { dryRun: true, count: 1 } });
    expect((await server.ask("GET", "/v2/jobs")).body).toEqual({ jobs: [] });
  });

  test("cancels messages and runs that existed at its start", async () => {
    const server = await createTestServer();
    const publish = () =>
      server.ask("POST", "/v2/publish/https://one.example", { headers: { "svc-delay": "1d" } });
    for (let at = 0; at < 3; at++) await publish();
    for (const runId of ["a", "b"]) await start(server, runId);
    const messages = await create(server, { action: "messages.cancel", filter: { host: "one.example" } });
    const runs = await create(server, { action: "runs.cancel", filter: {} });
    server.clock.now += 1;
    await publish();
    await start(server, "c");
    expect(await finish(server, messages)).toMatchObject({ state: "done", total: 3, done: 3, failed: 0 });
    expect(await finish(server, runs)).toMatchObject({ state: "done", total: 2, done: 2, failed: 0 });
    expect([...server.memory.tables.activeRuns.values()].map(({ runId }) => runId)).toEqual(["c"]);
  });

  test.each(["runs.resume", "runs.restart"])(
    "of the action %s continues each failed run once",
    async (action) => {
      const server = await createTestServer();
      for (const runId of ["a", "b", "c"]) await failRun(server, runId);
      const jobId = await create(server, { action, filter: {} });
      expect(await finish(server, jobId)).toMatchObject({ state: "done", total: 3, done: 3 });
      expect(server.memory.tables.activeRuns.size).toBe(3);
    },
  );

  test("deletes failed runs with source: workflow", async () => {
    const server = await createTestServer();
    await failRun(server, "a");
    await failMany(server, 1);
    const jobId = await create(server, {
      action: "dlq.delete",
      filter: { source: "workflow", workflowRunId: "a" },
    });
    expect(await finish(server, jobId)).toMatchObject({ state: "done", done: 1 });
    expect((await listDeadLetters(server)).messages).toHaveLength(1);
  });

  test("keeps its rate", async () => {
    const server = await createTestServer();
    await failMany(server, 9);
    const jobId = await create(server, { action: "dlq.delete", filter: {}, rate: 3 });
    const runner = createRunner(server, server.store);
    await runner.round();
    await runner.round();
    await runner.round();
    expect(await readJob(server, jobId)).toMatchObject({ state: "running", done: 3 });
    server.clock.now += 999;
    await runner.round();
    expect(await readJob(server, jobId)).toMatchObject({ done: 3 });
    server.clock.now += 1;
    await runner.round();
    expect(await readJob(server, jobId)).toMatchObject({ done: 6 });
  });

  test("keeps its rate after a portion that was refused", async () => {
    const server = await createTestServer();
    await failMany(server, 6);
    damage(server, (await listDeadLetters(server)).messages[1]?.dlqId);
    const jobId = await create(server, { action: "dlq.retry", filter: {}, rate: 4 });
    const runner = createRunner(server, server.store);
    await runner.round();
    await runner.round();
    expect(await readJob(server, jobId)).toMatchObject({ state: "running", done: 3, failed: 1 });
    server.clock.now += 999;
    await runner.round();
    expect(await readJob(server, jobId)).toMatchObject({ done: 3, failed: 1 });
    server.clock.now += 1;
    await runner.round();
    expect(await readJob(server, jobId)).toMatchObject({ state: "done", done: 5, failed: 1 });
  });

  test("can be stopped; the audit log has who started it and who stopped it", async () => {
    const server = await createTestServer();
    await failMany(server, 8);
    const jobId = await create(server, { action: "dlq.retry", filter: {}, rate: 4 });
    const runner = createRunner(server, server.store);
    await runner.round();
    await runner.round();
    const { body: made } = await server.ask("POST", "/v2/tokens", {
      body: JSON.stringify({ verbs: ["manage"] }),
    });
    const { status, body } = await server.ask("DELETE", `/v2/jobs/${jobId}`, { token: made.token });
    expect({ status, body }).toMatchObject({
      status: 200,
      body: { state: "stopped", done: 4, stoppedBy: { kind: "token", token: made.tokenId } },
    });
    server.clock.now += 10_000;
    await runner.round();
    expect((await listDeadLetters(server)).messages).toHaveLength(4);
    expect((await server.ask("DELETE", `/v2/jobs/${jobId}`)).body).toEqual(body);
    const { entries } = (await server.ask("GET", `/v2/audit?object=${jobId}`)).body;
    expect(entries).toMatchObject([
      { action: "job.stop", count: 4, by: { token: made.tokenId } },
      { action: "dlq.retry", by: { token: "main" } },
    ]);
  });

  test("counts entries that are refused or gone, with the reasons", async () => {
    const server = await createTestServer();
    await failMany(server, 5);
    const [first, second, third] = (await listDeadLetters(server)).messages;
    const jobId = await create(server, { action: "dlq.retry", filter: {} });
    const runner = createRunner(server, server.store);
    await runner.round();
    damage(server, first?.dlqId);
    let isFirstCall = true;
    const racing: Store = {
      ...server.store,
      execute: async (name, input, options) => {
        if (name === "continueJob" && isFirstCall) {
          isFirstCall = false;
          await server.ask("DELETE", `/v2/dlq/${third?.dlqId}`);
        }
        return server.store.execute(name, input, options);
      },
    };
    expect(await finish(server, jobId, createRunner(server, racing))).toMatchObject({
      state: "done",
      done: 3,
      failed: 2,
      failures: [
        { id: first?.dlqId, reason: expect.stringContaining("is damaged in the store") },
        { id: third?.dlqId, reason: "the dead letter does not exist any more" },
      ],
    });
    expect(second).toBeDefined();
  });

  test("fails if its account may no longer send", async () => {
    const server = await createTestServer();
    await failMany(server, 2);
    const jobId = await create(server, { action: "dlq.retry", filter: {} });
    await server.store.execute("changeAccount", { account: "acc_1", change: { state: "passive" } });
    expect(await finish(server, jobId)).toMatchObject({
      state: "failed",
      done: 0,
      error: expect.stringContaining("disabled"),
    });
    expect((await listDeadLetters(server)).messages).toHaveLength(2);
  });

  test("is continued by another node, and two nodes at the same time do each entry once", async () => {
    const server = await createTestServer();
    await failMany(server, 40);
    const jobId = await create(server, { action: "dlq.retry", filter: {} });
    const runners = ["nod_1", "nod_2", "nod_3"].map((node) => createRunner(server, server.store, node));
    // The node that created the job does nothing, so the others take over.
    server.clock.now += 10_000;
    for (let round = 0; round < 100; round++) {
      await Promise.all(runners.map((runner) => runner.round()));
      server.clock.now += 5_000;
    }
    expect(await readJob(server, jobId)).toMatchObject({ state: "done", total: 40, done: 40, failed: 0 });
    expect(server.deliveries).toHaveLength(40);
  });

  test("leaves a job to the node that does it", async () => {
    const server = await createTestServer();
    await failMany(server, 1);
    const jobId = await create(server, { action: "dlq.delete", filter: {} });
    server.clock.now += 4_999;
    await createRunner(server, server.store, "nod_2").round();
    expect(await readJob(server, jobId)).not.toHaveProperty("total");
    server.clock.now += 1;
    await createRunner(server, server.store, "nod_2").round();
    expect(await readJob(server, jobId)).toMatchObject({ total: 1 });
  });
});

test("a long search of one job does not delay the jobs of other accounts", async () => {
  const server = await createTestServer();
  let isEndless = true;
  const store: Store = {
    ...server.store,
    read: {
      ...server.store.read,
      deadLetters: async (query) =>
        query.account === "acc_1" && isEndless
          ? { entries: [], cursor: "1800000000000-000000000" }
          : server.store.read.deadLetters(query),
    },
  };
  const runner = createRunner(server, store);
  await failMany(server, 3);
  const request = JSON.stringify({ action: "dlq.delete", filter: {} });
  const finishOther = async () => {
    const { body } = await server.ask("POST", "/v2/jobs", { body: request, token: otherToken });
    for (let round = 0; round < 3; round++) await runner.round();
    const { state } = (await server.ask("GET", `/v2/jobs/${body.jobId}`, { token: otherToken })).body;
    expect(state).toBe("done");
  };
  const jobId = await create(server, { action: "dlq.delete", filter: {} });
  await finishOther();
  expect(await readJob(server, jobId)).not.toHaveProperty("total");
  await server.store.execute("noteJob", { account: "acc_1", jobId, note: { total: 3 } });
  await finishOther();
  expect(await readJob(server, jobId)).toMatchObject({ state: "running", done: 0 });
  isEndless = false;
  expect(await finish(server, jobId, runner)).toMatchObject({ state: "done", total: 3, done: 3 });
});

describe("a canary", () => {
  test("must be delivered before the other entries are retried", async () => {
    const server = await createTestServer();
    await failMany(server, 6);
    const jobId = await create(server, { action: "dlq.retry", filter: {}, canary: 2 });
    const runner = createRunner(server, server.store);
    for (let round = 0; round < 4; round++) {
      await runner.round();
      server.clock.now += 2_000;
    }
    expect(await readJob(server, jobId)).toMatchObject({ state: "waiting", done: 2, canary: 2 });
    const sent = server.deliveries.splice(0);
    expect((await readJob(server, jobId)).results.map(({ became }: { became: string }) => became)).toEqual(
      sent.map(({ message }) => message.id),
    );
    for (const delivery of sent) await server.settle(delivery, { status: 200 });
    expect(await finish(server, jobId, runner)).toMatchObject({ state: "done", total: 6, done: 6 });
    expect(server.deliveries).toHaveLength(4);
  });

  test.each([2, 9])("of which one is not delivered ends the job (%i)", async (canary) => {
    const server = await createTestServer();
    await failMany(server, 3);
    const jobId = await create(server, { action: "dlq.retry", filter: {}, canary });
    const runner = createRunner(server, server.store);
    for (let round = 0; round < 4; round++) await runner.round();
    const [one] = server.deliveries.splice(0);
    if (one) await server.settle(one, { status: 489, headers: [["Svc-NonRetryable-Error", "true"]] });
    server.clock.now += 2_000;
    expect(await finish(server, jobId, runner)).toMatchObject({
      state: "failed",
      error: `canary: message ${one?.message.id} was not delivered; the other entries were not handled`,
    });
  });

  test("with all entries ends the job when they succeed", async () => {
    const server = await createTestServer();
    await failMany(server, 2);
    const jobId = await create(server, { action: "dlq.retry", filter: {}, canary: 5 });
    const runner = createRunner(server, server.store);
    for (let round = 0; round < 3; round++) await runner.round();
    for (const delivery of server.deliveries.splice(0)) await server.settle(delivery, { status: 200 });
    expect(await finish(server, jobId, runner)).toMatchObject({ state: "done", done: 2 });
  });

  test("of runs must succeed", async () => {
    const server = await createTestServer();
    for (const runId of ["a", "b"]) await failRun(server, runId);
    const jobId = await create(server, { action: "runs.resume", filter: {}, canary: 1 });
    const runner = createRunner(server, server.store);
    for (let round = 0; round < 3; round++) await runner.round();
    const [{ became }] = (await readJob(server, jobId)).results;
    expect(await readJob(server, jobId)).toMatchObject({ state: "waiting", done: 1 });
    await server.store.execute("finishRun", { account: "acc_1", runId: became, body: new Uint8Array() });
    expect(await finish(server, jobId, runner)).toMatchObject({ state: "done", done: 2 });
  });
});

describe("a request for a job", () => {
  test.each([
    [{ action: "dlq.forget", filter: {} }, /^action: must be one of dlq.retry/],
    [{ action: "dlq.retry" }, /^filter: /],
    [{ action: "dlq.retry", filter: { labl: "x" } }, /^labl: unknown parameter; did you mean label/],
    [{ action: "dlq.retry", filter: { workflowRunId: "x" } }, /^workflowRunId: unknown parameter/],
    [{ action: "dlq.delete", filter: { workflowRunId: "x" } }, /^workflowRunId: only valid with source/],
    [{ action: "dlq.delete", filter: {}, canary: 1 }, /^canary: not valid for dlq.delete/],
    [{ action: "dlq.delete", filter: {}, rate: 0 }, /^rate: must be at least 1/],
    [{ action: "dlq.delete", filter: {}, rate: 1_001 }, /^rate: must be at most 1000/],
    [{ action: "dlq.retry", filter: {}, canary: 101 }, /^canary: must be at most 100/],
    [{ action: "dlq.retry", filter: {}, url: "x" }, /^url: unknown field/],
    [
      { action: "dlq.delete", filter: { label: Array(5).fill("l".repeat(16_000)) } },
      /^filter: 80.* the limit is 65536/,
    ],
  ])("%j is refused", async (request, error) => {
    const server = await createTestServer();
    expect(await server.ask("POST", "/v2/jobs", { body: JSON.stringify(request) })).toMatchObject({
      status: 400,
      body: { error: expect.stringMatching(error) },
    });
    expect(server.memory.tables.jobs.size).toBe(0);
  });

  test("beyond the limit replaces the oldest job that has ended, or is refused", async () => {
    const server = await createTestServer();
    const ended = await create(server, { action: "dlq.delete", filter: {} });
    await finish(server, ended);
    for (let at = 0; at < 100; at++) {
      server.clock.now += 1;
      await create(server, { action: "dlq.delete", filter: {} });
    }
    expect((await server.ask("GET", `/v2/jobs/${ended}`)).status).toBe(404);
    expect(
      await server.ask("POST", "/v2/jobs", { body: JSON.stringify({ action: "dlq.delete", filter: {} }) }),
    ).toMatchObject({ status: 412, body: { error: expect.stringMatching(/^jobs: 100 have not ended/) } });
    expect(server.memory.tables.jobs.size).toBe(100);
  });

  test("changes nothing if another node has moved the job", async () => {
    const server = await createTestServer();
    await failMany(server, 2);
    const jobId = await create(server, { action: "dlq.delete", filter: {} });
    const [one, other] = (await listDeadLetters(server)).messages;
    const portion = (entry: typeof one): JobPortion => ({
      account: "acc_1",
      jobId,
      action: "dlq.delete",
      position: "",
      entries: [{ id: entry?.dlqId ?? "" }],
      isEnd: false,
      logRetention: 1,
    });
    expect(await server.store.execute("continueJob", portion(one))).toMatchObject({ done: 1 });
    expect(await server.store.execute("continueJob", portion(other))).toBeNull();
    expect((await listDeadLetters(server)).messages).toEqual([other]);
  });
});
