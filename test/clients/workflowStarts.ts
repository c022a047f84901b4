import type { WorkflowContext } from "@upstash/workflow";
import { serve } from "@upstash/workflow";
import { createWorkflow } from "@upstash/workflow/cloudflare";
import { expect, test } from "vitest";
import type { WorkflowUser, RecordedUrl } from "./workflowTestServer.ts";
import { ask, waitForCount, findDeadLetter, waitForEnd, waitForResult } from "./workflowTestServer.ts";

/** Tests of runs that start without a client, and of endpoints that do not serve a workflow. */
export function starts(createUser: () => WorkflowUser): void {
  testPlainStart(createUser);
  testUnknownClients(createUser);
  testOtherEndpoints(createUser);
}

const serveWork = (user: WorkflowUser): RecordedUrl =>
  user.serve(async (context: WorkflowContext) => {
    const echo = await context.run("echo", () => context.requestPayload);
    await context.run("more", () => 1);
    return [echo, context.headers.get("x-mine"), context.label ?? null];
  });

/**
 * Triggers a run without the client. The headers of the run's messages have the brand of the request, and the
 * package knows only one brand.
 */
const trigger = async (
  user: WorkflowUser,
  url: string,
  { headers = {}, body = '{"n":1}' }: { headers?: Record<string, string>; body?: string } = {},
) => {
  const answer = await ask(user, `POST trigger/${url}`, {
    headers: { "content-type": "application/json", ...headers },
    body,
  });
  expect(answer).toMatchObject({
    status: 200,
    body: { workflowRunId: expect.any(String), workflowCreatedAt: expect.any(Number) },
  });
  return answer.body as { workflowRunId: string; workflowCreatedAt: number; deduplicated?: boolean };
};

function testPlainStart(createUser: () => WorkflowUser): void {
  test("a trigger over plain HTTP takes as many calls as the client's", async () => {
    const user = createUser();
    const byClient = serveWork(user);
    const byHand = serveWork(user);
    const first = await user.workflows.trigger({
      url: byClient.url,
      body: { n: 1 },
      headers: { "X-Mine": "m" },
      label: "l",
    });
    const second = await trigger(user, byHand.url, {
      headers: {
        "upstash-forward-x-mine": "m",
        "upstash-label": "l",
        "upstash-retries": "1",
      },
    });
    expect(second.workflowRunId).toMatch(/^wfr_/);
    for (const run of [first, second]) expect(await waitForResult(user, run)).toEqual([{ n: 1 }, "m", "l"]);
    expect(await Promise.all([waitForCount(byClient, 3), waitForCount(byHand, 3)])).toEqual([3, 3]);
    expect(await waitForEnd(user, second)).toMatchObject({
      workflowRunCreatedAt: second.workflowCreatedAt,
      labels: ["l"],
    });
  });

  test("a trigger can choose the id, which identifies one run at a time", async () => {
    const user = createUser();
    const work = user.serve((context) => context.waitForEvent("wait", "go", { timeout: "1h" }));
    const first = await trigger(user, work.url, { headers: { "upstash-workflow-runid": "wfr_hand" } });
    expect(first).toMatchObject({ workflowRunId: "wfr_hand" });
    expect(
      await trigger(user, work.url, { headers: { "upstash-workflow-runid": "wfr_hand" } }),
    ).toMatchObject({
      ...first,
      deduplicated: true,
    });
    expect(await waitForCount(work, 1)).toBe(1);
    expect(await user.workflows.cancel("wfr_hand")).toEqual({ cancelled: 1 });
  });

  test("many are triggered over plain HTTP in one request", async () => {
    const user = createUser();
    const work = serveWork(user);
    const items = ["a", "b"].map((body) => ({
      destination: work.url,
      headers: { "upstash-forward-x-mine": body },
      body,
    }));
    const answer = await ask(user, "POST batch/trigger", {
      headers: { "content-type": "application/json" },
      body: JSON.stringify(items),
    });
    expect(answer.status).toBe(201);
    expect(answer.body).toHaveLength(2);
    const [one, two] = answer.body as { workflowRunId: string }[];
    if (!one || !two) throw new Error("two runs");
    expect(await Promise.all([waitForResult(user, one), waitForResult(user, two)])).toEqual([
      ["a", "a", null],
      ["b", "b", null],
    ]);
  });

  test("a failure is reported to the workflow or to the chosen failure URL", async () => {
    const user = createUser();
    const told: unknown[] = [];
    const route = (context: WorkflowContext) =>
      context.run("fail", () => {
        throw new Error("sorry");
      });
    const work = user.serve(route, {
      failureFunction: ({ context, failResponse }) => void told.push([failResponse, context.requestPayload]),
    });
    const desk = user.answer(() => new Response("noted"));
    await trigger(user, work.url, { headers: { "upstash-retries": "0" } });
    await trigger(user, work.url, {
      headers: { "upstash-retries": "0", "upstash-failure-callback": desk.url },
    });
    expect(await Promise.all([waitForCount(work, 3), waitForCount(desk, 1)])).toEqual([3, 1]);
    expect(told).toEqual([["sorry", { n: 1 }]]);
    expect(desk.calls[0]?.headers).toMatchObject({ "upstash-workflow-is-failure": "true" });
  });
}

function testUnknownClients(createUser: () => WorkflowUser): void {
  // The client knows only one name of the setting. It posts the setting under the other name back with the
  // forwarded headers.
  test.each([
    { "svc-workflow-runid": "neutral", "svc-workflow-unknown-sdk": "true" },
    { "upstash-workflow-runid": "mixed", "svc-workflow-unknown-sdk": "true" },
  ])("a trigger of the neutral brand makes the endpoint start the run itself once", async (headers) => {
    const user = createUser();
    const work = serveWork(user);
    expect(await waitForResult(user, await trigger(user, work.url, { headers }))).toEqual([
      { n: 1 },
      null,
      null,
    ]);
    expect(await waitForCount(work, 4)).toBe(4);
  });

  test("an endpoint of an unknown client starts the run itself with one more call", async () => {
    const user = createUser();
    const work = serveWork(user);
    const run = await trigger(user, work.url, {
      headers: {
        "upstash-workflow-unknown-sdk": "true",
        "upstash-forward-x-mine": "m",
        "upstash-label": "l",
      },
    });
    expect(await waitForResult(user, run)).toEqual([{ n: 1 }, "m", "l"]);
    expect(await waitForCount(work, 4)).toBe(4);
    const seen = work.calls.map(({ headers }) => [
      headers["upstash-workflow-unknown-sdk"],
      headers["upstash-workflow-runid"],
    ]);
    expect(seen).toEqual([
      ["true", run.workflowRunId],
      ...Array.from({ length: 3 }, () => [undefined, run.workflowRunId]),
    ]);
    expect((await user.workflows.logs({ filter: { workflowUrl: work.url } })).runs).toHaveLength(1);
  });

  test("an endpoint starts the run itself if the trigger says that its client is unknown", async () => {
    const user = createUser();
    const work = serveWork(user);
    const headers = { "upstash-workflow-unknown-sdk": "true", "x-mine": "m" };
    const run = await user.workflows.trigger({ url: work.url, body: { n: 1 }, headers, label: "l" });
    expect(await waitForResult(user, run)).toEqual([{ n: 1 }, "m", "l"]);
    expect(await waitForCount(work, 4)).toBe(4);
  });

  test("an id may have any characters, regardless of who starts the run", async () => {
    const user = createUser();
    const work = serveWork(user);
    const byClient = await user.workflows.trigger({
      url: work.url,
      body: { n: 1 },
      workflowRunId: "meiné:1",
    });
    expect(byClient.workflowRunId).toBe("wfr_meiné:1");
    const runid = Buffer.from("日本").toString("latin1");
    const plain = await trigger(user, work.url, { headers: { "upstash-workflow-runid": runid } });
    for (const run of [byClient, plain])
      expect(await waitForResult(user, run)).toEqual([{ n: 1 }, null, null]);
    const unknown = await trigger(user, work.url, {
      headers: {
        "upstash-workflow-runid": runid,
        "upstash-workflow-unknown-sdk": "true",
      },
    });
    expect([plain, unknown]).toMatchObject([{ workflowRunId: "日本" }, { workflowRunId: "日本" }]);
    expect(await waitForResult(user, unknown)).toEqual([{ n: 1 }, null, null]);
    expect(await waitForCount(work, 10)).toBe(10);
    expect(await ask(user, `GET workflows/runs/${encodeURIComponent("日本")}`)).toMatchObject({
      status: 404,
    });
  });
}

function testOtherEndpoints(createUser: () => WorkflowUser): void {
  const detected =
    "detected a non-workflow destination for trigger/invoke. " +
    "make sure you are sending the request to the correct endpoint";
  const tooOld = "trigger rest api is only usable with sdk versions after v1.0.0 major version";

  const expectFailed = async (
    user: WorkflowUser,
    run: { workflowRunId: string },
    { error, body }: { error: string; body: string },
  ) => {
    const { workflowState, steps } = await waitForEnd(user, run);
    expect(workflowState).toBe("RUN_FAILED");
    expect(steps).toHaveLength(2);
    expect(steps[1]).toMatchObject({
      type: "next",
      steps: [{ state: "STEP_FAILED", errors: [{ error, body, status: 200 }] }],
    });
    expect(steps[1]?.steps).toHaveLength(1);
    expect(steps[1]?.steps[0]).toHaveProperty("errors.length", 1);
    await findDeadLetter(user, run);
  };

  test("an endpoint without a workflow fails the run at once, regardless of its retries", async () => {
    const user = createUser();
    const shop = user.answer(() => new Response("welcome to our shop"));
    const desk = user.answer(() => new Response("noted"));
    const run = await user.workflows.trigger({ url: shop.url, body: "b", failureUrl: desk.url });
    await expectFailed(user, run, { error: detected, body: "welcome to our shop" });
    expect(await waitForCount(shop, 1)).toBe(1);
    expect(await waitForCount(desk, 1)).toBe(1);
  });

  test("a run that invokes such an endpoint gets its failure", async () => {
    const user = createUser();
    const shop = user.answer(() => new Response("welcome"));
    const workflow = {
      ...createWorkflow(async () => undefined),
      workflowId: shop.url.slice(shop.url.lastIndexOf("/") + 1),
    };
    const work = user.serve((context) => context.invoke("shop", { workflow, body: undefined }));
    expect(await waitForResult(user, await user.workflows.trigger({ url: work.url }))).toEqual({
      isCanceled: false,
      isFailed: true,
    });
    // The invoked endpoint gets its own failure, because it may have a failure function.
    expect(await waitForCount(shop, 2)).toBe(2);
  });

  test("an endpoint with a client that is too old for a plain trigger fails the run at once", async () => {
    const user = createUser();
    const old = user.answer(() => new Response("{}", { headers: { "upstash-workflow-sdk-version": "1" } }));
    await expectFailed(user, await trigger(user, old.url), { error: tooOld, body: "{}" });
    // A run without its own failure callback reports the failure to its endpoint as well.
    expect(await waitForCount(old, 2)).toBe(2);
  });

  test("an endpoint that is briefly unavailable is retried", async () => {
    const user = createUser();
    const route = (context: WorkflowContext) => context.run("echo", () => context.requestPayload);
    const { handler } = serve(route, { qstashClient: user.client, receiver: user.receiver, env: {} });
    const place = user.answer((request) =>
      place.calls.length === 1 ? new Response("bad gateway", { status: 502 }) : handler(request),
    );
    const run = await user.workflows.trigger({ url: place.url, body: "b", retryDelay: "10" });
    expect(await waitForResult(user, run)).toBe("b");
    expect(await waitForCount(place, 3)).toBe(3);
    expect(place.calls.map(({ status }) => status)).toEqual([502, 200, 200]);
  });
}
