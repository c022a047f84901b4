import { expect, test } from "vitest";
import type { WorkflowUser } from "./workflowTestServer.ts";
import { eventually } from "./clientTestServer.ts";
import { ask, createGate, waitForCount, waitForEnd, waitForResult } from "./workflowTestServer.ts";

/** Tests of requests to third parties: `context.call`. */
export function calls(createUser: () => WorkflowUser): void {
  testResponses(createUser);
  testRequests(createUser);
  testWorkflowCalls(createUser);
  testEndedRuns(createUser);
}

type CallResult = { status: number; body: unknown; header: Record<string, string[]> };

function testResponses(createUser: () => WorkflowUser): void {
  const cases = [
    ["200 with a string", () => new Response("pong", { headers: { "x-theirs": "a" } }), "pong"],
    [
      "401 with a string",
      () => new Response("99999999", { status: 401, headers: { "x-theirs": "a" } }),
      99999999,
    ],
    [
      "300 with nothing",
      () =>
        new Response(null, { status: 300, headers: { "x-theirs": "a", location: "http://127.0.0.1:1/" } }),
      "",
    ],
    [
      "400 with JSON",
      () => Response.json({ problem: "ü €" }, { status: 400, headers: { "x-theirs": "a" } }),
      { problem: "ü €" },
    ],
    [
      "503 with a string",
      () => new Response("later", { status: 503, headers: { "x-theirs": "a" } }),
      "later",
    ],
  ] as const;
  test.each(cases)(
    "a response of %s arrives unchanged, costs two calls and does not fail the run",
    async (_, answer, body) => {
      const user = createUser();
      const other = user.answer(answer);
      const work = user.serve((context) => context.call("ask", { url: other.url }));
      const result = (await waitForResult(
        user,
        await user.workflows.trigger({ url: work.url }),
      )) as CallResult;
      expect(result).toEqual({
        status: answer().status,
        body,
        header: expect.objectContaining({ "X-Theirs": ["a"] }),
      });
      expect(other.calls.map(({ method }) => method)).toEqual(["GET"]);
      expect(await waitForCount(work, 3)).toBe(3);
    },
  );

  test("bytes that are not text arrive unchanged", async () => {
    const user = createUser();
    const bytes = Uint8Array.from({ length: 256 }, (_, index) => index);
    const other = user.answer(
      () => new Response(bytes, { headers: { "content-type": "application/octet-stream" } }),
    );
    const work = user.serve(async (context) => (await context.call<string>("ask", { url: other.url })).body);
    const text = (await waitForResult(user, await user.workflows.trigger({ url: work.url }))) as string;
    expect(Buffer.from(text, "latin1")).toEqual(Buffer.from(bytes));
  });

  test("a third party that is down or does not answer in time does not fail the run", async () => {
    const user = createUser();
    const never = user.answer(() => new Promise<Response>(() => {}));
    const work = user.serve(async (context) => {
      const [gone, slow] = await Promise.all([
        context.call("gone", { url: "http://127.0.0.1:1/" }),
        context.call("slow", { url: never.url, timeout: 1 }),
      ]);
      return [gone, slow].map(({ status }) => status);
    });
    expect(await waitForResult(user, await user.workflows.trigger({ url: work.url }))).toEqual([-1, -1]);
    expect(never.calls).toHaveLength(1);
  });
}

function testEndedRuns(createUser: () => WorkflowUser): void {
  test.each([200, 500])(
    "a response %i after the end of the run is not sent to its endpoint",
    async (status) => {
      const user = createUser();
      const started = createGate();
      const go = createGate();
      const other = user.answer(
        () => (started.resolve(), go.promise.then(() => new Response("late", { status }))),
      );
      const work = user.serve((context) => context.call("late", { url: other.url }));
      const run = await user.workflows.trigger({ url: work.url });
      await started.promise;
      expect(await user.workflows.cancel(run.workflowRunId)).toEqual({ cancelled: 1 });
      go.resolve();
      // An outcome and its consequences are one transaction, so a result would have its message by then.
      const { events } = await eventually(
        async () =>
          (await ask(user, `GET workflows/messageLogs?workflowRunId=${run.workflowRunId}`)).body as LogPage,
        (page) => page.events.filter(({ state }) => state === "DELIVERED" || state === "ERROR").length === 2,
      );
      const sent = events.flatMap(({ messageId }) => (messageId === undefined ? [] : [messageId]));
      expect(new Set(sent).size, "messages of the start and of the call").toBe(2);
      expect(work.calls).toHaveLength(1);
    },
  );
}

type LogPage = { events: { state: string; messageId?: string }[] };

function testRequests(createUser: () => WorkflowUser): void {
  test("a third party gets the call and nothing of the run", async () => {
    const user = createUser();
    const other = user.answer(() => Response.json({ ok: true }));
    const work = user.serve(async (context) => {
      const body = JSON.stringify({ amount: 1 });
      const { status } = await context.call("pay", {
        url: `${other.url}?a=1`,
        method: "PUT",
        body,
        headers: { "x-call": "c", "content-type": "text/x-mine" },
      });
      return [status, context.headers.get("x-user")];
    });
    const run = await user.workflows.trigger({ url: work.url, headers: { "x-user": "secret" } });
    expect(await waitForResult(user, run)).toEqual([200, "secret"]);
    const [call, ...more] = other.calls;
    expect(more).toEqual([]);
    expect(call).toMatchObject({
      method: "PUT",
      body: '{"amount":1}',
      headers: { "x-call": "c", "content-type": "text/x-mine" },
    });
    expect(call?.path).toMatch(/\?a=1$/);
    for (const name of [
      "x-user",
      "upstash-workflow-sdk-version",
      "upstash-workflow-runid",
      "upstash-workflow-init",
    ])
      expect(call?.headers).not.toHaveProperty(name);
    // All calls of the endpoint have the headers. The call with the third party's response is not a step and
    // is marked.
    expect(work.calls.map(({ headers }) => headers["x-user"])).toEqual(["secret", "secret", "secret"]);
    expect(work.calls.map(({ headers }) => headers["upstash-workflow-sdk-version"])).toEqual([
      "1",
      undefined,
      "1",
    ]);
    expect(work.calls.map(({ headers }) => headers["upstash-workflow-runid"])).toEqual(
      Array(3).fill(run.workflowRunId),
    );
  });

  test("a call is retried as often as it says, and the endpoint gets only the last response", async () => {
    const user = createUser();
    const other = user.answer(() => new Response("no", { status: other.calls.length < 3 ? 500 : 201 }));
    const work = user.serve(
      async (context) => (await context.call("ask", { url: other.url, retries: 4, retryDelay: "10" })).status,
    );
    expect(await waitForResult(user, await user.workflows.trigger({ url: work.url }))).toBe(201);
    expect(other.calls.map(({ headers }) => headers["upstash-retried"])).toEqual(["0", "1", "2"]);
    expect(await waitForCount(work, 3)).toBe(3);
  });

  test("a response that forbids retries is the last one, even if retries are left", async () => {
    const user = createUser();
    const never = { "upstash-nonretryable-error": "true" };
    const other = user.answer(() => new Response("no", { status: 489, headers: never }));
    const work = user.serve(
      async (context) => (await context.call("ask", { url: other.url, retries: 2 })).status,
    );
    expect(await waitForResult(user, await user.workflows.trigger({ url: work.url }))).toBe(489);
    expect(other.calls).toHaveLength(1);
  });

  test("parallel calls with a flow-control key do not exceed its parallelism", async () => {
    const user = createUser();
    let now = 0;
    let max = 0;
    const other = user.answer(async () => {
      max = Math.max(max, ++now);
      await new Promise((resolve) => setTimeout(resolve, 20));
      now--;
      return new Response("ok");
    });
    const flowControl = { key: "third-party", parallelism: 2 };
    const work = user.serve(async (context) => {
      const all = await Promise.all(
        Array.from({ length: 6 }, (_, index) =>
          context.call(`ask ${index}`, { url: other.url, flowControl }),
        ),
      );
      return all.map(({ status }) => status);
    });
    expect(await waitForResult(user, await user.workflows.trigger({ url: work.url }))).toEqual(
      Array(6).fill(200),
    );
    expect(max).toBeLessThanOrEqual(2);
    expect(other.calls).toHaveLength(6);
    // The start, and for each call a plan, the response and the result.
    expect(await waitForCount(work, 19)).toBe(19);
  });
}

function testWorkflowCalls(createUser: () => WorkflowUser): void {
  test("a called workflow starts its own run and responds with its id", async () => {
    const user = createUser();
    const { caller, called } = user.serveMany((byName) => ({
      caller: async (context) => {
        const { body, status } = await context.call("begin", {
          workflow: byName("called"),
          body: "hello",
          headers: { "x-call": "c" },
        });
        return { body, status };
      },
      called: (context) =>
        context.run("greet", () => [context.requestPayload, context.headers.get("x-call")]),
    }));
    const result = (await waitForResult(user, await user.workflows.trigger({ url: caller.url }))) as {
      body: { workflowRunId: string };
    };
    expect(result).toEqual({
      status: 200,
      body: { workflowRunId: expect.stringMatching(/^wfr_/), finishCondition: "success" },
    });
    expect(await waitForResult(user, result.body)).toEqual(["hello", "c"]);
    expect((await waitForEnd(user, result.body)).invoker).toBeUndefined();
    // The call, the start of its run, and the step.
    expect(await waitForCount(called, 3)).toBe(3);
    expect(await waitForCount(caller, 3)).toBe(3);
  });
}
