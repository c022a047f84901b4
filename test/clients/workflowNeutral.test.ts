import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Arrival } from "../server/waypost.ts";
import { startDestination } from "../server/waypost.ts";
import type { ClientTestServer, TestUser } from "./clientTestServer.ts";
import { eventually, startClientTestServer } from "./clientTestServer.ts";
import { ask } from "./workflowTestServer.ts";

const isWorkflow = { "svc-workflow-sdk-version": "1", "svc-workflow-sdk": "v1.3.2" };

/** The protocol under the neutral names, without any client. */
describe("without a client, under neutral names", () => {
  let house: ClientTestServer;
  beforeAll(async () => void (house = await startClientTestServer("SQLite")));
  afterAll(() => house.close());

  test("a run completes after a step, a sleep, a call, a wait and two parallel steps", async () => {
    const { endpoint, begin, post, steps, who } = await work(house.createUser());
    const runId = await begin({
      "svc-forward-x-mine": "m",
      "svc-label": "by-hand",
      "svc-forward-svc-label": "by-hand",
    });
    expect(await endpoint.next()).toMatchObject({
      method: "POST",
      path: "/work",
      history: ["payload"],
      headers: {
        "svc-workflow-runid": runId,
        "svc-workflow-sdk-version": "1",
        "svc-workflow-createdat": expect.stringMatching(/^\d{13}$/),
        "x-mine": "m",
        "svc-label": "by-hand",
        "svc-message-id": expect.any(String),
        "svc-signature": expect.any(String),
        "content-type": "application/json",
        "user-agent": "Svc-Queue",
      },
    });

    const one = { stepId: 1, stepName: "one", stepType: "Run", out: "1", concurrent: 1 };
    const [{ messageId } = { messageId: "" }] = await post([{ body: one }]);
    expect(await endpoint.next()).toMatchObject({
      history: ["payload", one],
      headers: { "svc-message-id": messageId, "x-mine": "m" },
    });
    const nap = { stepId: 2, stepName: "nap", stepType: "SleepFor", sleepFor: 1, concurrent: 1 };
    await post([{ body: nap, headers: { "svc-delay": "1s" } }]);
    expect(await steps()).toHaveLength(3);
    expect(await endpoint.next()).toMatchObject({ history: ["payload", one, nap] });

    await post([callOf({ runId, destination: `${endpoint.url}/third`, callback: `${endpoint.url}/work` })]);
    const third = await endpoint.next();
    expect(third).toMatchObject({
      method: "PUT",
      path: "/third",
      text: "question",
      headers: { "x-call": "c" },
    });
    expect(Object.keys(third.headers).filter((name) => /workflow|x-mine/.test(name))).toEqual([]);
    const back = await endpoint.next();
    expect(back).toMatchObject({
      path: "/work",
      headers: {
        "svc-workflow-callback": "true",
        "svc-workflow-stepid": "3",
        "svc-workflow-runid": runId,
        "x-mine": "m",
      },
    });
    expect(back.headers).not.toHaveProperty("svc-workflow-sdk-version");
    expect(JSON.parse(back.text)).toMatchObject({ status: 418, body: btoa("teapot"), maxRetries: 0 });
    const called = { stepId: 3, stepName: "call", stepType: "Call", out: "{}", concurrent: 1 };
    await post([{ body: called }]);
    expect((await endpoint.next()).callTypes).toEqual([
      "step",
      "step",
      "step",
      "toCallback",
      "fromCallback",
      "step",
    ]);

    const step = { stepId: 4, stepType: "Wait", stepName: "wait", concurrent: 1 };
    const timeoutHeaders = {
      "Svc-Workflow-RunId": [runId],
      "Svc-Workflow-Init": ["false"],
      "Svc-Workflow-Url": [`${endpoint.url}/work`],
    };
    const url = `${endpoint.url}/work`;
    const waiting = { url, timeout: "1d", timeoutUrl: url, timeoutHeaders, step };
    expect(
      await ask(who, "POST wait/paid", { headers: ofRun(runId, url), body: JSON.stringify(waiting) }),
    ).toMatchObject({
      status: 200,
    });
    expect((await ask(who, "GET waiters/paid")).body).toMatchObject([
      { url, timeoutUrl: url, deadline: expect.any(Number) },
    ]);
    const told = await ask(who, "POST notify/paid", { body: "yes" });
    expect(told.body).toMatchObject([
      { waiter: { url }, workflowRunId: runId, messageId: expect.any(String) },
    ]);
    expect((await endpoint.next()).history.at(-1)).toMatchObject({
      ...step,
      waitEventId: "paid",
      out: btoa("yes"),
      waitTimeout: false,
    });

    const plan = (targetStep: number) => ({
      stepId: 0,
      stepName: `s${targetStep}`,
      stepType: "Run",
      concurrent: 2,
      targetStep,
    });
    await post([{ body: plan(5) }, { body: plan(6) }]);
    const ends = [(await endpoint.next()).history.at(-1), (await endpoint.next()).history.at(-1)];
    expect(new Set(ends)).toEqual(new Set([plan(5), plan(6)]));
    for (const stepId of [6, 5]) {
      const result = { stepId, stepName: `s${stepId}`, stepType: "Run", out: "1", concurrent: 2 };
      await post([{ body: result }]);
      expect((await endpoint.next()).history.at(-1)).toEqual(result);
    }
    expect(await ask(who, `DELETE workflows/runs/${runId}?cancel=false`, { body: '"done"' })).toMatchObject({
      status: 200,
    });
    expect(await ask(who, `GET workflows/runs/${runId}`)).toMatchObject({ status: 404 });
    const { body } = await ask(who, "GET workflows/logs?label=by-hand");
    expect(body.runs).toMatchObject([
      { workflowRunId: runId, workflowState: "RUN_SUCCESS", workflowRunResponse: '"done"' },
    ]);
    expect(body.runs[0].steps.map(({ type }: { type: string }) => type)).toEqual([
      ...Array(5).fill("sequential"),
      "parallel",
    ]);
    const late = await ask(who, "POST batch", {
      headers: { "content-type": "application/json" },
      body: JSON.stringify([{ destination: url, headers: ofRun(runId, url), body: JSON.stringify(one) }]),
    });
    expect(late.status).toBe(400);
  });

  test("a failed run calls its failure callback and is resumed from the dead letter queue", async () => {
    const { endpoint, begin, who, fail, mend } = await work(house.createUser());
    fail();
    const runId = await begin({
      "svc-failure-callback": `${endpoint.url}/failed`,
      "svc-failure-callback-forward-svc-workflow-is-failure": "true",
      "svc-failure-callback-forward-x-desk": "d",
      "svc-failure-callback-workflow-runid": "wfr_hand",
    });
    await endpoint.next();
    const told = await endpoint.next();
    expect(told).toMatchObject({
      path: "/failed",
      headers: { "svc-workflow-is-failure": "true", "x-desk": "d", "svc-workflow-runid": runId },
    });
    expect(JSON.parse(told.text)).toMatchObject({
      status: 489,
      workflowRunId: runId,
      sourceBody: btoa("payload"),
      dlqId: expect.any(String),
    });
    const list = async () => (await ask(who, "GET workflows/dlq")).body.messages;
    const [deadLetter] = await eventually(
      list,
      ([one]) => one?.failureCallbackInfo?.state === "CALLBACK_SUCCESS",
    );
    expect(deadLetter).toMatchObject({
      workflowRunId: runId,
      responseStatus: 489,
      workflowUrl: `${endpoint.url}/work`,
    });
    // Otherwise the new run would fail as well and appear in the list.
    mend();
    const { body } = await ask(who, `POST workflows/dlq/resume?dlqIds=${deadLetter.dlqId}`);
    expect(body.workflowRuns).toEqual([
      {
        workflowRunId: expect.stringMatching(/^wfr_/),
        workflowCreatedAt: expect.any(Number),
        dlqId: deadLetter.dlqId,
      },
    ]);
    expect(await endpoint.next()).toMatchObject({
      history: ["payload"],
      headers: { "svc-workflow-runid": body.workflowRuns[0].workflowRunId },
    });
    expect(await list()).toEqual([]);
    await ask(who, "DELETE workflows/runs");
  });
});

const features = "LazyFetch,InitialBody,WF_DetectTrigger,WF_TriggerOnConfig";

/** Returns the headers of a post for a run. */
const ofRun = (runId: string, url: string, init = false): Record<string, string> => ({
  "svc-workflow-init": String(init),
  "svc-workflow-runid": runId,
  "svc-workflow-url": url,
  "svc-feature-set": features,
  "svc-workflow-sdk-version": "1",
  "svc-forward-svc-workflow-sdk-version": "1",
  "content-type": "application/json",
});

const callOf = ({
  runId,
  destination,
  callback,
}: {
  runId: string;
  destination: string;
  callback: string;
}) => ({
  destination,
  body: "question",
  headers: {
    "svc-method": "PUT",
    "svc-retries": "0",
    "svc-workflow-calltype": "toCallback",
    "svc-workflow-runid": runId,
    "svc-workflow-init": "false",
    "svc-feature-set": "WF_NoDelete,InitialBody",
    "svc-workflow-sdk-version": "1",
    "svc-workflow-url": callback,
    "svc-forward-x-call": "c",
    "svc-callback": callback,
    "svc-callback-workflow-runid": runId,
    "svc-callback-workflow-calltype": "fromCallback",
    "svc-callback-workflow-init": "false",
    "svc-callback-workflow-url": callback,
    "svc-callback-feature-set": features,
    "svc-callback-forward-svc-workflow-callback": "true",
    "svc-callback-forward-svc-workflow-stepid": "3",
    "svc-callback-forward-svc-workflow-stepname": "call",
    "svc-callback-forward-svc-workflow-steptype": "Call",
    "svc-callback-forward-svc-workflow-concurrent": "1",
    "svc-callback-forward-svc-workflow-contenttype": "text/plain",
    "svc-forward-svc-workflow-sdk-version": undefined,
  },
});

type Item = { destination?: string; body: unknown; headers?: Record<string, string | undefined> };

/** An endpoint that only answers. The test posts its steps instead. */
async function work(who: TestUser) {
  let isFailing = false;
  const refusal = {
    status: 489,
    headers: { ...isWorkflow, "svc-nonretryable-error": "true" },
    body: '{"message":"no"}',
  };
  const destination = await startDestination(({ path }) => {
    if (path === "/third") return { status: 418, body: "teapot" };
    return isFailing && path === "/work" ? refusal : { status: 200, headers: isWorkflow, body: "{}" };
  });
  const url = `${destination.url}/work`;
  let seen = 0;
  const next = async () => {
    const at = seen++;
    await destination.until(({ length }) => length > at);
    return readable(destination.arrivals[at] as Arrival);
  };
  let runId = "";
  const post = async (items: Item[]): Promise<{ messageId: string }[]> => {
    const batch = items.map(({ body, headers, destination: to }) => ({
      destination: to ?? url,
      headers: to ? headers : { ...ofRun(runId, url), ...headers },
      body: typeof body === "string" ? body : JSON.stringify(body),
    }));
    const answer = await ask(who, "POST batch", {
      headers: { "content-type": "application/json" },
      body: JSON.stringify(batch),
    });
    expect(answer).toMatchObject({
      status: 200,
      body: items.map(() => ({ messageId: expect.stringMatching(/^msg_/) })),
    });
    return answer.body;
  };
  const begin = async (headers: Record<string, string>): Promise<string> => {
    runId = "wfr_hand";
    await post([{ body: "payload", headers: { ...headers, "svc-workflow-init": "true" } }]);
    return runId;
  };
  const steps = async () => (await ask(who, `GET workflows/runs/${runId}`)).body as unknown[];
  return {
    who,
    begin,
    post,
    steps,
    endpoint: { url: destination.url, next },
    fail: () => void (isFailing = true),
    mend: () => void (isFailing = false),
  };
}

/** Returns a request that arrived, with its decoded history if it has one. */
function readable(arrival: Arrival) {
  const text = arrival.body.toString();
  const entries: { callType: string; body: string }[] = text.startsWith("[") ? JSON.parse(text) : [];
  const history = entries.map(({ body }) => parsed(atob(body)));
  return { ...arrival, text, history, callTypes: entries.map(({ callType }) => callType) };
}

const parsed = (text: string): unknown => (text.startsWith("{") ? JSON.parse(text) : text);
