import { callbackTo } from "../../../core/commandRunner.ts";
import { describe, expect, test } from "vitest";
import type { Delivery } from "../../../../src/core/model/message.ts";
import { Refusal } from "../../../../src/core/values/errors.ts";
import type { Store } from "../../../../src/store/store.ts";
import { bytes, takeDelivery, failRun, failRunAndRead, listHistoryBodies, start, step, workflowAnswer } from "../lists/failedRunLists.ts";
import { createTestServer } from "../../testServer.ts";
import type { TestServer, Reply } from "../../testServer.ts";

const resume = (home: TestServer, rest: string, more: Parameters<TestServer["ask"]>[2] = {}): Promise<Reply> =>
  home.ask("POST", `/v2/workflows/dlq/resume${rest}`, more);
const restart = (home: TestServer, rest: string): Promise<Reply> => home.ask("POST", `/v2/workflows/dlq/restart${rest}`);
const entries = async ({ ask }: TestServer): Promise<number> => (await ask("GET", "/v2/workflows/dlq")).body.messages.length;
const nonRetryable = { status: 489, headers: [["Upstash-Nonretryable-Error", "true"]] } as const;

/** What goes out, without what came of earlier requests. */
const sent = ({ deliveries }: TestServer): Delivery[] => deliveries.splice(0);

/** A run whose first step came through and whose second one failed. Answers the id of its entry. */
async function failedAtTwo(home: TestServer, runId: string): Promise<string> {
  await home.settle(takeDelivery(home, await start(home, runId)), workflowAnswer);
  await home.settle(takeDelivery(home, await step(home, runId, { stepName: "one" })), { ...nonRetryable });
  const { messages } = (await home.ask("GET", `/v2/workflows/dlq?workflowRunId=${runId}`)).body;
  return messages[0].dlqId;
}

describe("a run that is resumed", () => {
  test("goes on as a new one with its results, and its entry is gone", async () => {
    const home = await createTestServer();
    const dlqId = await failedAtTwo(home, "wfr_1");
    home.clock.now += 5_000;
    const { status, body } = await resume(home, `/${dlqId}`);
    expect([status, body]).toEqual([200, { workflowRunId: expect.stringMatching(/^wfr_/), workflowCreatedAt: home.clock.now, dlqId }]);
    expect(body.workflowRunId).not.toBe("wfr_1");
    const [delivery, ...others] = sent(home);
    expect(others).toEqual([]);
    expect(delivery && listHistoryBodies(delivery)).toEqual(["payload", expect.stringContaining('"stepName":"one"')]);
    expect(delivery?.message.run).toMatchObject({ runId: body.workflowRunId, createdAt: home.clock.now, stepKey: "r1", position: 1 });
    expect(await entries(home)).toBe(0);
    expect(await resume(home, `/${dlqId}`)).toMatchObject({ status: 404 });
  });

  test("names the new one, and is named by it, and its entry is told of no more", async () => {
    const home = await createTestServer();
    const { now } = home.clock;
    const dlqId = await failedAtTwo(home, "wfr_1");
    const told = async (runId: string) => {
      const { runs } = (await home.ask("GET", `/v2/workflows/logs?workflowRunId=${runId}`)).body;
      const { events } = (await home.ask("GET", `/v2/workflows/events?workflowRunId=${runId}`)).body;
      const status = (await home.ask("GET", `/v2/workflows/runs/${runId}/status`)).body;
      return { events, both: [runs[0], status], status };
    };
    expect(JSON.stringify(await told("wfr_1"))).toContain(`"dlqId":"${dlqId}"`);
    home.clock.now += 5_000;
    const { workflowRunId } = (await resume(home, `/${dlqId}`)).body;
    const older = await told("wfr_1");
    const newer = await told(workflowRunId);
    for (const one of older.both)
      expect(one).toMatchObject({ workflowState: "RUN_FAILED", resumedAs: { workflowRunId, workflowRunCreatedAt: now + 5_000 } });
    for (const one of newer.both) expect(one).toMatchObject({ resumedFrom: { workflowRunId: "wfr_1", workflowRunCreatedAt: now } });
    expect(older.status.text).toMatch(new RegExp(`^failed at .*; resumed as ${workflowRunId}$`));
    expect(newer.status.text).toMatch(/^goes on since .*, resumes wfr_1, 1 step done; /);
    for (const one of [...older.both, ...newer.both]) expect(Object.keys(one).filter((key) => key.startsWith("resumed"))).toHaveLength(1);
    expect(older.events.length).toBeGreaterThan(3);
    expect(JSON.stringify([older, newer])).not.toContain('"dlqId"');
  });

  test("may be restarted instead, which forgets its results", async () => {
    const home = await createTestServer();
    const { body } = await restart(home, `/${await failedAtTwo(home, "wfr_1")}`);
    const deliveries = sent(home);
    expect(deliveries.map(listHistoryBodies)).toEqual([["payload"]]);
    expect(deliveries[0]?.message.run).toMatchObject({ runId: body.workflowRunId, stepKey: "i", first: "detect" });
  });

  test("can fail and be resumed again, and be restarted then", async () => {
    const home = await createTestServer();
    let dlqId = await failedAtTwo(home, "wfr_1");
    for (let round = 0; round < 3; round++) {
      const { body } = await resume(home, `/${dlqId}`);
      const [delivery] = sent(home);
      if (delivery) await home.settle(delivery, { ...nonRetryable });
      ({ dlqId } = (await home.ask("GET", `/v2/workflows/dlq?workflowRunId=${body.workflowRunId}`)).body.messages[0]);
      expect(delivery && listHistoryBodies(delivery)).toHaveLength(2);
    }
    const { body } = await restart(home, `/${dlqId}`);
    const [delivery] = sent(home);
    expect(delivery && listHistoryBodies(delivery)).toEqual(["payload"]);
    expect(await step(home, body.workflowRunId, { stepName: "one" })).toMatch(/^msg_/);
    expect(await entries(home)).toBe(0);
  });

  test("because its endpoint was no workflow, is looked at again, and fails again while it is none", async () => {
    const home = await createTestServer();
    const dlqId = await failRunAndRead(home, "wfr_1", { outcome: { status: 200, headers: [], body: bytes("hello") } });
    await resume(home, `/${dlqId}`);
    const [delivery] = sent(home);
    if (delivery) await home.settle(delivery, { status: 200, headers: [], body: bytes("hello") });
    const { messages } = (await home.ask("GET", "/v2/workflows/dlq")).body;
    expect(messages).toMatchObject([{ error: expect.stringMatching(/^detected a non-workflow destination/) }]);
  });

  test("twice at the same time is one new run", async () => {
    const home = await createTestServer();
    const dlqId = await failedAtTwo(home, "wfr_1");
    const replies = await Promise.all([resume(home, `/${dlqId}`), restart(home, `/${dlqId}`), resume(home, `?dlqIds=${dlqId}`)]);
    expect(replies.map(({ status }) => status)).toEqual([200, 404, 200]);
    expect(replies[2]?.body).toEqual({
      workflowRuns: [],
      cursor: "",
      failed: [{ id: dlqId, reason: expect.stringContaining("no failed run") }],
    });
    expect(sent(home)).toHaveLength(1);
  });

  test("keeps its settings, but for those that are given", async () => {
    const home = await createTestServer();
    const told = { ...callbackTo("https://app.example/failed"), headers: [["Upstash-Workflow-Is-Failure", "true"]] as const };
    const given = { labels: ["a"], flowControl: { key: "k", parallelism: 3, rate: null, period: null }, failureCallback: told };
    const ids: string[] = [];
    for (let n = 0; n < 5; n++) ids.push(await failRunAndRead(home, `wfr_${n}`, { ...given, retryDelay: "1000" }));
    sent(home);
    const runOf = async (dlqId: string | undefined, headers: Record<string, string>) => {
      const { status, body } = await resume(home, `/${dlqId}`, { headers });
      expect(status).toBe(200);
      const [delivery] = sent(home);
      const going = await home.store.read.activeRun("acc_1", body.workflowRunId);
      if (delivery) await home.settle(delivery, workflowAnswer);
      return { run: going?.run, message: delivery?.message };
    };
    const plain = await runOf(ids[0], {});
    expect(plain.run).toMatchObject({
      labels: ["a"],
      settings: { retries: 0, retryDelay: "1000", flowControl: given.flowControl, failureCallback: told },
    });
    const other = await runOf(ids[1], {
      "Upstash-Retries": "7",
      "Upstash-Retry-Delay": "5",
      "svc-label": "b,c",
      "Svc-Workflow-RunId": "mine",
    });
    expect(other.run).toMatchObject({ runId: "mine", labels: ["b", "c"], settings: { retries: 7, retryDelay: "5" } });
    expect(other.message).toMatchObject({ labels: ["b", "c"], retries: 7, headers: expect.arrayContaining([["Upstash-Label", "b,c"]]) });
    const key = await runOf(ids[2], { "Upstash-Flow-Control-Key": "other" });
    expect(key.run?.settings.flowControl).toEqual({ ...given.flowControl, key: "other" });
    const limits = await runOf(ids[3], { "Upstash-Flow-Control-Value": "rate=9, period=1m" });
    expect(limits.run?.settings.flowControl).toEqual({ key: "k", parallelism: null, rate: 9, period: 60_000 });
    const url = await runOf(ids[4], { "Svc-Failure-Callback": "https://new.example" });
    expect(url.run?.settings.failureCallback).toEqual({ ...told, url: "https://new.example" });
  });

  test("gets a failure callback that endpoints know, where it had none", async () => {
    const home = await createTestServer();
    const dlqId = await failRunAndRead(home, "wfr_1", {});
    await resume(home, `/${dlqId}`, { headers: { "svc-failure-callback": "https://new.example" } });
    const [delivery] = sent(home);
    if (delivery) await home.settle(delivery, { ...nonRetryable });
    expect(sent(home).map(({ message: { url, headers } }) => [url, headers])).toEqual([
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

  test("waits as long as it is told to", async () => {
    const home = await createTestServer();
    const dlqId = await failedAtTwo(home, "wfr_1");
    const { body } = await resume(home, `/${dlqId}`, { headers: { "svc-delay": "10s" } });
    expect(sent(home)).toEqual([]);
    const going = await home.store.read.activeRun("acc_1", body.workflowRunId);
    const states = await home.store.read.listRunMessages("acc_1", going?.run.id ?? "");
    expect(states.map(({ dueAt }) => dueAt)).toEqual([home.clock.now + 10_000]);
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
    [{ "svc-flow-control-value": "parallelism=1" }, "flow-control-value: there is no key"],
    [{ "svc-flow-control-key": "k" }, "flow-control-key: there are no limits that it could come with; give Flow-Control-Value as well"],
    [{ "svc-workflow-runid": "going" }, 'workflow-runid: the run "going" has not ended'],
  ])("is refused with %o, and stays where it is", async (headers: Record<string, string>, error) => {
    const home = await createTestServer();
    const dlqId = await failRunAndRead(home, "wfr_1");
    await start(home, "going");
    const reply = await resume(home, `/${dlqId}`, { headers });
    expect(reply).toMatchObject({ status: 400, body: { error: expect.stringContaining(error) } });
    expect(await entries(home)).toBe(1);
  });

  test.each(["/v2/workflows/dlq/resume/", "/v2/workflows/dlq/restart/"])("at %s is no message", async (path) => {
    const home = await createTestServer();
    const { body } = await home.ask("POST", "/v2/publish/https://m.example", { headers: { "svc-retries": "0" } });
    await home.settle(takeDelivery(home, body.messageId), { status: 500 });
    const [{ dlqId }] = (await home.ask("GET", "/v2/dlq")).body.messages;
    const error = expect.stringContaining(`POST /v2/dlq/retry/${dlqId}`);
    expect(await home.ask("POST", `${path}${dlqId}`)).toMatchObject({ status: 400, body: { error } });
  });
});

describe("many", () => {
  test("are resumed 50 at a time, oldest first, and the cursor tells where to go on", async () => {
    const home = await createTestServer();
    for (let n = 0; n < 120; n++) await failRun(home, `run-${n}`);
    const sizes: number[] = [];
    const resumedIds = new Set<string>();
    for (let cursor: string | null = null; cursor !== "";) {
      const { body }: Reply = await resume(home, `?count=100${cursor === null ? "" : `&cursor=${cursor}`}`);
      expect(body).not.toHaveProperty("failed");
      for (const { workflowRunId } of body.workflowRuns) resumedIds.add(workflowRunId);
      sizes.push(body.workflowRuns.length);
      ({ cursor } = body);
    }
    expect(sizes).toEqual([50, 50, 20]);
    expect(resumedIds.size).toBe(120);
    expect(sent(home)).toHaveLength(120);
    expect(await entries(home)).toBe(0);
    expect((await resume(home, "")).body).toEqual({ workflowRuns: [], cursor: "" });
  });

  test("are chosen by filters, in the query or in a body", async () => {
    const home = await createTestServer();
    const ids: string[] = [];
    for (const label of ["a", "b", "a", "c"]) ids.push(await failRunAndRead(home, `run-${label}`, { labels: [label] }));
    expect((await resume(home, "?label=a")).body.workflowRuns).toHaveLength(2);
    const body = JSON.stringify({ dlqIds: [ids[1], ids[0]] });
    expect((await resume(home, "", { body })).body).toEqual({
      workflowRuns: [{ workflowRunId: expect.any(String), workflowCreatedAt: expect.any(Number), dlqId: ids[1] }],
      cursor: "",
      failed: [{ id: ids[0], reason: expect.stringContaining("no failed run") }],
    });
    expect(await entries(home)).toBe(1);
    expect(await resume(home, "", { body: '{"dlqIds":[]}' })).toMatchObject({ status: 400 });
    for (const run of ["order-1", "order-10", "order-2"]) await failRunAndRead(home, run);
    expect((await resume(home, "?workflowRunId=order-1")).body.workflowRuns).toHaveLength(2);
    expect(await resume(home, "?workflowRunId=none")).toMatchObject({ status: 200, body: { workflowRuns: [], cursor: "" } });
  });

  test("that are named are 50 at a time as well", async () => {
    const home = await createTestServer();
    const ids: string[] = [];
    for (let n = 0; n < 60; n++) ids.push(await failRunAndRead(home, `run-${n}`));
    const query = `?${[...ids]
      .reverse()
      .map((id) => `dlqIds=${id}`)
      .join("&")}&dlqIds=nonsense`;
    const first = (await resume(home, query)).body;
    expect([first.workflowRuns.length, first.cursor, first.failed]).toEqual([
      50,
      ids[49],
      [{ id: "nonsense", reason: expect.any(String) }],
    ]);
    const second = (await resume(home, `${query}&cursor=${first.cursor}`)).body;
    expect([second.workflowRuns.length, second.cursor, second.failed]).toEqual([10, "", undefined]);
  });

  test("go on when one of them cannot, which is told and stays", async () => {
    const home = await createTestServer();
    const ofKey = { flowControl: { key: "k", parallelism: 1, rate: null, period: null } };
    const a = await failRunAndRead(home, "a", ofKey);
    const b = await failRunAndRead(home, "b");
    const c = await failRunAndRead(home, "c", ofKey);
    const { body } = await resume(home, "", { headers: { "svc-flow-control-value": "parallelism=5" } });
    expect(body).toMatchObject({ cursor: "", failed: [{ id: b, reason: expect.stringContaining("no key") }] });
    expect(body.workflowRuns).toHaveLength(2);
    expect((await home.ask("GET", `/v2/workflows/dlq?dlqIds=${a},${b},${c}`)).body.messages).toMatchObject([{ dlqId: b }]);
  });

  test("of which one is deleted between the list and its turn: the others go on", async () => {
    let hook = async (): Promise<void> => undefined;
    const wrap = (store: Store): Store => ({
      ...store,
      read: { ...store.read, deadLetters: async (query) => store.read.deadLetters(query).finally(() => hook()) },
    });
    const home = await createTestServer({ wrap });
    const ids = [await failRunAndRead(home, "a"), await failRunAndRead(home, "b"), await failRunAndRead(home, "c")];
    hook = async () => {
      hook = async () => undefined;
      await home.store.execute("deleteDeadLetters", { account: "acc_1", dlqIds: [ids[1] ?? ""], logRetention: 0 });
    };
    const { body } = await resume(home, "");
    expect(body.workflowRuns).toHaveLength(2);
    expect(body.failed).toMatchObject([{ id: ids[1] }]);
  });

  test("of which some were done before the storage failed: the answer tells them, and where to go on", async () => {
    let left = 2;
    const wrap = (store: Store): Store => ({
      ...store,
      execute: async (name, input) => {
        if (name === "resumeRun" && left-- === 0) throw new Refusal("unavailable", "the storage cannot be reached");
        return store.execute(name, input);
      },
    });
    const home = await createTestServer({ wrap });
    const ids = [
      await failRunAndRead(home, "a"),
      await failRunAndRead(home, "b"),
      await failRunAndRead(home, "c"),
      await failRunAndRead(home, "d"),
    ];
    const first = await resume(home, "");
    expect(first).toMatchObject({ status: 200, body: { cursor: `${ids[1]}_${ids[3]}` } });
    expect(first.body.workflowRuns).toHaveLength(2);
    expect((await resume(home, `?cursor=${first.body.cursor}`)).body.workflowRuns).toHaveLength(2);
    left = 0;
    await failRunAndRead(home, "e");
    expect(await resume(home, "")).toMatchObject({ status: 503 });
  });

  test.each([
    ["?workflowRuns=1", "workflowRuns: there is no such parameter"],
    ["?dlqIds=1800000000000-1&cursor=x", "cursor: not one that this list has given out"],
    ["?svc-retries=1001", "retries: 1001 asked for, the limit is 1000"],
    ["?svc-workflow-runid=x", "svc-workflow-runid: one id cannot be that of several runs"],
  ])("are refused with %s, and none is touched", async (query, error) => {
    const home = await createTestServer();
    await failRunAndRead(home, "wfr_1");
    const reply = await resume(home, query);
    expect([400, 412]).toContain(reply.status);
    expect(reply.body.error).toContain(error);
    expect(await entries(home)).toBe(1);
  });
});
