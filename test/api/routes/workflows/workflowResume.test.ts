import { callbackTo } from "../../../engine/core/commandRunner.ts";
import { describe, expect, test } from "vitest";
import {
  bytes,
  takeDelivery,
  failRunAndRead,
  listHistoryBodies,
  start,
  step,
  workflowAnswer,
} from "../lists/failedRunLists.ts";
import { createTestServer } from "../../testServer.ts";
import type { TestServer } from "../../testServer.ts";
import { countFailedRuns, restart, resume, takeDeliveries } from "./resumedRuns.ts";

const nonRetryable = { status: 489, headers: [["Upstash-Nonretryable-Error", "true"]] } as const;

/** Creates a run whose first step succeeded and whose second step failed. Returns the id of its entry. */
async function failedAtTwo(server: TestServer, runId: string): Promise<string> {
  await server.settle(takeDelivery(server, await start(server, runId)), workflowAnswer);
  await server.settle(takeDelivery(server, await step(server, runId, { stepName: "one" })), {
    ...nonRetryable,
  });
  const { messages } = (await server.ask("GET", `/v2/workflows/dlq?workflowRunId=${runId}`)).body;
  return messages[0].dlqId;
}

describe("a failed run", () => {
  test("is resumed as a new run with its results, and its entry is removed", async () => {
    const server = await createTestServer();
    const dlqId = await failedAtTwo(server, "wfr_1");
    server.clock.now += 5_000;
    const { status, body } = await resume(server, `/${dlqId}`);
    expect([status, body]).toEqual([
      200,
      { workflowRunId: expect.stringMatching(/^wfr_/), workflowCreatedAt: server.clock.now, dlqId },
    ]);
    expect(body.workflowRunId).not.toBe("wfr_1");
    const [delivery, ...others] = takeDeliveries(server);
    expect(others).toEqual([]);
    expect(delivery && listHistoryBodies(delivery)).toEqual([
      "payload",
      expect.stringContaining('"stepName":"one"'),
    ]);
    expect(delivery?.message.run).toMatchObject({
      runId: body.workflowRunId,
      createdAt: server.clock.now,
      stepKey: "r1",
      position: 1,
    });
    expect(await countFailedRuns(server)).toBe(0);
    expect(await resume(server, `/${dlqId}`)).toMatchObject({ status: 404 });
  });

  test("and the run that resumes it name each other, and the removed entry is no longer shown", async () => {
    const server = await createTestServer();
    const { now } = server.clock;
    const dlqId = await failedAtTwo(server, "wfr_1");
    const readViews = async (runId: string) => {
      const { runs } = (await server.ask("GET", `/v2/workflows/logs?workflowRunId=${runId}`)).body;
      const { events } = (await server.ask("GET", `/v2/workflows/events?workflowRunId=${runId}`)).body;
      const status = (await server.ask("GET", `/v2/workflows/runs/${runId}/status`)).body;
      return { events, both: [runs[0], status], status };
    };
    expect(JSON.stringify(await readViews("wfr_1"))).toContain(`"dlqId":"${dlqId}"`);
    server.clock.now += 5_000;
    const { workflowRunId } = (await resume(server, `/${dlqId}`)).body;
    const older = await readViews("wfr_1");
    const newer = await readViews(workflowRunId);
    for (const one of older.both)
      expect(one).toMatchObject({
        workflowState: "RUN_FAILED",
        resumedAs: { workflowRunId, workflowRunCreatedAt: now + 5_000 },
      });
    for (const one of newer.both)
      expect(one).toMatchObject({ resumedFrom: { workflowRunId: "wfr_1", workflowRunCreatedAt: now } });
    expect(older.status.text).toMatch(new RegExp(`^failed at .*; resumed as ${workflowRunId}$`));
    expect(newer.status.text).toMatch(/^running since .*, resumes wfr_1, 1 step done; /);
    for (const one of [...older.both, ...newer.both])
      expect(Object.keys(one).filter((key) => key.startsWith("resumed"))).toHaveLength(1);
    expect(older.events.length).toBeGreaterThan(3);
    expect(JSON.stringify([older, newer])).not.toContain('"dlqId"');
  });

  test("can be restarted instead, without its results", async () => {
    const server = await createTestServer();
    const { body } = await restart(server, `/${await failedAtTwo(server, "wfr_1")}`);
    const deliveries = takeDeliveries(server);
    expect(deliveries.map(listHistoryBodies)).toEqual([["payload"]]);
    expect(deliveries[0]?.message.run).toMatchObject({
      runId: body.workflowRunId,
      stepKey: "i",
      first: "detect",
    });
  });

  test("can fail and be resumed repeatedly, and then be restarted", async () => {
    const server = await createTestServer();
    let dlqId = await failedAtTwo(server, "wfr_1");
    for (let round = 0; round < 3; round++) {
      const { body } = await resume(server, `/${dlqId}`);
      const [delivery] = takeDeliveries(server);
      if (delivery) await server.settle(delivery, { ...nonRetryable });
      ({ dlqId } = (
        await server.ask("GET", `/v2/workflows/dlq?workflowRunId=${body.workflowRunId}`)
      ).body.messages[0]);
      expect(delivery && listHistoryBodies(delivery)).toHaveLength(2);
    }
    const { body } = await restart(server, `/${dlqId}`);
    const [delivery] = takeDeliveries(server);
    expect(delivery && listHistoryBodies(delivery)).toEqual(["payload"]);
    expect(await step(server, body.workflowRunId, { stepName: "one" })).toMatch(/^msg_/);
    expect(await countFailedRuns(server)).toBe(0);
  });

  test("whose endpoint is not a workflow fails again when it is resumed", async () => {
    const server = await createTestServer();
    const dlqId = await failRunAndRead(server, "wfr_1", {
      outcome: { status: 200, headers: [], body: bytes("hello") },
    });
    await resume(server, `/${dlqId}`);
    const [delivery] = takeDeliveries(server);
    if (delivery) await server.settle(delivery, { status: 200, headers: [], body: bytes("hello") });
    const { messages } = (await server.ask("GET", "/v2/workflows/dlq")).body;
    expect(messages).toMatchObject([
      { error: expect.stringMatching(/^detected a non-workflow destination/) },
    ]);
  });

  test("resumed twice at the same time becomes one new run", async () => {
    const server = await createTestServer();
    const dlqId = await failedAtTwo(server, "wfr_1");
    const replies = await Promise.all([
      resume(server, `/${dlqId}`),
      restart(server, `/${dlqId}`),
      resume(server, `?dlqIds=${dlqId}`),
    ]);
    expect(replies.map(({ status }) => status)).toEqual([200, 404, 200]);
    expect(replies[2]?.body).toEqual({
      workflowRuns: [],
      cursor: "",
      failed: [{ id: dlqId, reason: expect.stringContaining("no failed run") }],
    });
    expect(takeDeliveries(server)).toHaveLength(1);
  });

  test("keeps its settings when it is resumed, except for those that are given", async () => {
    const server = await createTestServer();
    const failureCallback = {
      ...callbackTo("https://app.example/failed"),
      headers: [["Upstash-Workflow-Is-Failure", "true"]] as const,
    };
    const given = {
      labels: ["a"],
      flowControl: { key: "k", parallelism: 3, rate: null, period: null },
      failureCallback,
    };
    const ids: string[] = [];
    for (let n = 0; n < 5; n++)
      ids.push(await failRunAndRead(server, `wfr_${n}`, { ...given, retryDelay: "1000" }));
    takeDeliveries(server);
    const runOf = async (dlqId: string | undefined, headers: Record<string, string>) => {
      const { status, body } = await resume(server, `/${dlqId}`, { headers });
      expect(status).toBe(200);
      const [delivery] = takeDeliveries(server);
      const going = await server.store.read.activeRun("acc_1", body.workflowRunId);
      if (delivery) await server.settle(delivery, workflowAnswer);
      return { run: going?.run, message: delivery?.message };
    };
    const plain = await runOf(ids[0], {});
    expect(plain.run).toMatchObject({
      labels: ["a"],
      settings: { retries: 0, retryDelay: "1000", flowControl: given.flowControl, failureCallback },
    });
    const other = await runOf(ids[1], {
      "Upstash-Retries": "7",
      "Upstash-Retry-Delay": "5",
      "svc-label": "b,c",
      "Svc-Workflow-RunId": "mine",
    });
    expect(other.run).toMatchObject({
      runId: "mine",
      labels: ["b", "c"],
      settings: { retries: 7, retryDelay: "5" },
    });
    expect(other.message).toMatchObject({
      labels: ["b", "c"],
      retries: 7,
      headers: expect.arrayContaining([["Upstash-Label", "b,c"]]),
    });
    const key = await runOf(ids[2], { "Upstash-Flow-Control-Key": "other" });
    expect(key.run?.settings.flowControl).toEqual({ ...given.flowControl, key: "other" });
    const limits = await runOf(ids[3], { "Upstash-Flow-Control-Value": "rate=9, period=1m" });
    expect(limits.run?.settings.flowControl).toEqual({
      key: "k",
      parallelism: null,
      rate: 9,
      period: 60_000,
    });
    const url = await runOf(ids[4], { "Svc-Failure-Callback": "https://new.example" });
    expect(url.run?.settings.failureCallback).toEqual({ ...failureCallback, url: "https://new.example" });
  });

  test("without a failure callback gets one with the headers that endpoints expect", async () => {
    const server = await createTestServer();
    const dlqId = await failRunAndRead(server, "wfr_1", {});
    await resume(server, `/${dlqId}`, { headers: { "svc-failure-callback": "https://new.example" } });
    const [delivery] = takeDeliveries(server);
    if (delivery) await server.settle(delivery, { ...nonRetryable });
    expect(takeDeliveries(server).map(({ message: { url, headers } }) => [url, headers])).toEqual([
      [
        "https://new.example",
        [
          ["Content-Type", "application/json"],
          ["Upstash-Workflow-Is-Failure", "true"],
          ["Upstash-Workflow-Failure-Callback", "true"],
        ],
      ],
    ]);
  });

  test("is resumed after the given delay", async () => {
    const server = await createTestServer();
    const dlqId = await failedAtTwo(server, "wfr_1");
    const { body } = await resume(server, `/${dlqId}`, { headers: { "svc-delay": "10s" } });
    expect(takeDeliveries(server)).toEqual([]);
    const going = await server.store.read.activeRun("acc_1", body.workflowRunId);
    const states = await server.store.read.listRunMessages("acc_1", going?.run.id ?? "");
    expect(states.map(({ dueAt }) => dueAt)).toEqual([server.clock.now + 10_000]);
  });

  test.each([
    [{ "svc-timeout": "1s" }, "svc-timeout: cannot be changed"],
    [{ "svc-forward-x": "1" }, "forward-X: cannot be changed"],
    [{ "svc-method": "GET" }, "svc-method: cannot be changed"],
    [{ "svc-workflow-init": "true" }, "svc-workflow-init: cannot be changed"],
    [
      { "svc-failure-callback": "https://f.example", "svc-failure-callback-retries": "1" },
      "svc-failure-callback-retries: cannot be changed",
    ],
    [{ "svc-retries": "many" }, 'svc-retries: "many" is not a whole number'],
    [{ "svc-flow-control-value": "parallelism=1" }, "flow-control-value: requires Flow-Control-Key"],
    [
      { "svc-flow-control-key": "k" },
      "flow-control-key: requires Flow-Control-Value, for example parallelism=10",
    ],
    [{ "svc-workflow-runid": "going" }, 'workflow-runid: the run "going" has not ended'],
  ])(
    "is not resumed with %o, and stays in the dead letter queue",
    async (headers: Record<string, string>, error) => {
      const server = await createTestServer();
      const dlqId = await failRunAndRead(server, "wfr_1");
      await start(server, "going");
      const reply = await resume(server, `/${dlqId}`, { headers });
      expect(reply).toMatchObject({ status: 400, body: { error: expect.stringContaining(error) } });
      expect(await countFailedRuns(server)).toBe(1);
    },
  );

  test.each(["/v2/workflows/dlq/resume/", "/v2/workflows/dlq/restart/"])(
    "must be a run: %s refuses a message with the path that retries it",
    async (path) => {
      const server = await createTestServer();
      const { body } = await server.ask("POST", "/v2/publish/https://m.example", {
        headers: { "svc-retries": "0" },
      });
      await server.settle(takeDelivery(server, body.messageId), { status: 500 });
      const [{ dlqId }] = (await server.ask("GET", "/v2/dlq")).body.messages;
      const error = expect.stringContaining(`POST /v2/dlq/retry/${dlqId}`);
      expect(await server.ask("POST", `${path}${dlqId}`)).toMatchObject({ status: 400, body: { error } });
    },
  );
});
