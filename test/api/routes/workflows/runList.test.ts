import { beforeEach, describe, expect, test } from "vitest";
import { bytes, makeEventWait } from "../../../engine/core/commandRunner.ts";
import type { TestServer } from "../../testServer.ts";
import { createTestServer, otherToken, testTime } from "../../testServer.ts";
import { finish, settleStep, startInvoked } from "./runLogFixtures.ts";
import { endpoint, start, step } from "./workflow.ts";
import { resume } from "./resumedRuns.ts";

let server: TestServer;
beforeEach(async () => {
  server = await createTestServer();
});

const list = async (query = "", token?: string) =>
  (await server.ask("GET", `/v2/workflows/runs${query}`, token === undefined ? {} : { token })).body;
const idsOf = ({ runs }: { runs: { workflowRunId: string }[] }) =>
  runs.map(({ workflowRunId }) => workflowRunId);
/** Starts a run one second after the run before. */
async function startNext(runId: string, more: Parameters<typeof start>[2] = {}): Promise<string> {
  server.clock.now += 1_000;
  return start(server, runId, more);
}

describe("a listed run", () => {
  test("has its fields, and neither its steps nor its result", async () => {
    await start(server, "a", {
      labels: ["red", "big"],
      callerIp: "192.0.2.1",
      flowControl: { key: "k", parallelism: 5, rate: null, period: 1 },
    });
    await step(server, "a", { out: "1" });
    await server.store.execute("wait", { account: "acc_1", runId: "a", waiter: makeEventWait("paid", 2) });
    const fields = {
      workflowRunId: "a",
      workflowUrl: endpoint,
      workflowRunCreatedAt: testTime,
      workflowRunCallerIp: "192.0.2.1",
      label: "red",
      labels: ["red", "big"],
      flowControlKey: "k",
      historyEntries: 2,
    };
    expect(await list()).toEqual({ runs: [{ ...fields, workflowState: "RUN_STARTED", waitingSteps: 1 }] });
    server.clock.now += 500;
    await finish(server, "a", "secret result");
    expect(await list()).toEqual({
      runs: [{ ...fields, workflowState: "RUN_SUCCESS", workflowRunCompletedAt: testTime + 500 }],
    });
  });

  test("has its progress on request: the steps that are done, and why it waits", async () => {
    await start(server, "a");
    await step(server, "a", { out: "1" });
    await server.store.execute("wait", { account: "acc_1", runId: "a", waiter: makeEventWait("paid", 2) });
    const [run] = (await list("?progress=true")).runs;
    expect(run.progress).toEqual({
      stepsDone: 1,
      stepsOpen: 0,
      waitingOn: {
        reason: "event",
        stepName: expect.any(String),
        eventId: "paid",
        since: testTime,
        until: expect.any(Number),
      },
    });
    expect((await list("?progress=false")).runs[0]).not.toHaveProperty("progress");
    expect((await list("?progress=true", otherToken)).runs).toEqual([]);
    expect(await list("?progress=yes")).toMatchObject({ error: expect.stringMatching(/^progress: /) });
  });

  test("that failed has its error and its dead letter, and the run that resumed it", async () => {
    const first = await start(server, "a", { retries: 0 });
    await settleStep(server, first, { status: 500, body: bytes("boom") });
    const [{ dlqId, error, workflowState }] = (await list()).runs;
    expect({ workflowState, error }).toEqual({
      workflowState: "RUN_FAILED",
      error: expect.stringMatching(/500/),
    });
    server.clock.now += 1_000;
    const { body } = await resume(server, `/${dlqId}`);
    const [resumed, failed] = (await list()).runs;
    expect(failed).toMatchObject({
      workflowRunId: "a",
      resumedAs: { workflowRunId: body.workflowRunId, workflowRunCreatedAt: testTime + 1_000 },
    });
    expect(failed).not.toHaveProperty("dlqId");
    expect(resumed).toMatchObject({ resumedFrom: { workflowRunId: "a", workflowRunCreatedAt: testTime } });
  });

  test("names the run that invoked it; the log of that run names it", async () => {
    await start(server, "parent");
    await startInvoked(server, "child", {
      step: { stepId: 1, stepName: "inv", stepType: "Invoke", concurrent: 1 },
    });
    const parent = { workflowRunId: "parent", workflowUrl: endpoint, workflowRunCreatedAt: testTime };
    const child = {
      workflowRunId: "child",
      workflowUrl: `${endpoint}/child`,
      workflowRunCreatedAt: testTime,
    };
    const { runs } = await list("?workflowRunId=child");
    expect(runs).toMatchObject([{ invoker: parent }]);
    const readParent = async () =>
      (await server.ask("GET", "/v2/workflows/logs?workflowRunId=parent")).body.runs[0];
    expect(await readParent()).toMatchObject({ invoked: [{ ...child, workflowState: "RUN_STARTED" }] });
    await finish(server, "child");
    expect(await readParent()).toMatchObject({ invoked: [{ ...child, workflowState: "RUN_SUCCESS" }] });
    const childLog = (await server.ask("GET", "/v2/workflows/logs?workflowRunId=child")).body.runs[0];
    expect(childLog).toMatchObject({ invoker: parent });
    expect(childLog).not.toHaveProperty("invoked");
  });
});

describe("the list of runs", () => {
  test("is newest first, in pages", async () => {
    for (const runId of ["a", "b", "c"]) await startNext(runId);
    const first = await list("?count=2");
    expect(idsOf(first)).toEqual(["c", "b"]);
    const second = await list(`?count=2&cursor=${first.cursor}`);
    expect(idsOf(second)).toEqual(["a"]);
    expect(second).not.toHaveProperty("cursor");
  });

  test("is oldest first if the request wants it", async () => {
    for (const runId of ["a", "b", "c"]) await startNext(runId);
    const first = await list("?count=2&order=earliestFirst");
    expect(idsOf(first)).toEqual(["a", "b"]);
    const second = await list(`?count=2&order=earliestFirst&cursor=${first.cursor}`);
    expect(idsOf(second)).toEqual(["c"]);
    expect(second).not.toHaveProperty("cursor");
    expect(idsOf(await list("?order=latestFirst"))).toEqual(["c", "b", "a"]);
    expect(await list("?order=random")).toMatchObject({ error: expect.stringMatching(/^order: /) });
  });

  test("has up to 100 runs on a page", async () => {
    for (let index = 0; index < 101; index++) await startNext(`r${index}`);
    expect((await list()).runs).toHaveLength(100);
    const { body, headers } = await server.ask("GET", "/v2/workflows/runs?count=500");
    expect(body.runs).toHaveLength(100);
    expect(JSON.stringify(headers)).toContain("count: 500 exceeds the limit of 100");
  });

  test("takes the filters of the logs", async () => {
    await startNext("a", { labels: ["red"] });
    const message = await startNext("b", { url: "https://b.example/flow", callerIp: "192.0.2.9" });
    await startNext("c", { flowControl: { key: "k", parallelism: 5, rate: null, period: 1 } });
    await finish(server, "c");
    const [c, b, a] = (await list()).runs;
    const cases: [query: string, ids: string[]][] = [
      ["state=RUN_SUCCESS", ["c"]],
      ["state=RUN_SUCCESS,RUN_STARTED", ["c", "b", "a"]],
      ["state=RUN_FAILED", []],
      ["label=red", ["a"]],
      ["workflowUrl=https://b.example/flow", ["b"]],
      ["host=b.example", ["b"]],
      ["path=/flow", ["b"]],
      ["callerIp=192.0.2.9", ["b"]],
      ["flowControlKey=k", ["c"]],
      ["workflowRunId=a", ["a"]],
      [`messageId=${message}`, ["b"]],
      ["messageId=../etc", []],
      [`fromDate=${b.workflowRunCreatedAt}&toDate=${b.workflowRunCreatedAt}`, ["b"]],
      [`workflowCreatedAt=${c.workflowRunCreatedAt}`, ["c"]],
      [`workflowRuns=a@${a.workflowRunCreatedAt},b@1`, ["a"]],
      [`workflowRuns=a@${a.workflowRunCreatedAt}&state=RUN_FAILED`, ["a"]],
    ];
    for (const [query, ids] of cases) expect(idsOf(await list(`?${query}`)), query).toEqual(ids);
  });

  test.each([
    ["state=STEP_RETRY", "state: "],
    ["fromDate=2&toDate=1", "fromDate: "],
    ["cursor=msg_1", "cursor: "],
    ["cursor=run_11111111111111111111:3", "cursor: "],
    [`cursor=${"x".repeat(5_000)}`, "cursor: "],
    ["count=0", "count: "],
    ["workflowRuns=a", "workflowRuns: "],
    ["nonsense=1", "nonsense: "],
  ])("refuses %s", async (query, error) => {
    const { status, body } = await server.ask("GET", `/v2/workflows/runs?${query}`);
    expect({ status, error: body.error }).toEqual({ status: 400, error: expect.stringContaining(error) });
  });

  test("shows no run of another account, also with its cursor and its message", async () => {
    const message = await startNext("a");
    await startNext("b");
    const { cursor } = await list("?count=1");
    for (const query of ["", `?cursor=${cursor}`, `?messageId=${message}`, "?workflowRunId=a"])
      expect(await list(query, otherToken), query).toEqual({ runs: [] });
  });
});
