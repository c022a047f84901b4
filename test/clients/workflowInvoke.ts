import type { WorkflowContext } from "@upstash/workflow";
import { expect, test } from "vitest";
import type { WorkflowUser } from "./workflowTestServer.ts";
import { waitForCount, waitForEnd, createGate, waitForResult } from "./workflowTestServer.ts";

/** Tests of workflows that invoke workflows. */
export function invokes(createUser: () => WorkflowUser): void {
  testResults(createUser);
  testFailures(createUser);
  testDepth(createUser);
  testSettings(createUser);
}

function testResults(createUser: () => WorkflowUser): void {
  test("an invoked workflow returns a result of any kind and knows who invoked it", async () => {
    const user = createUser();
    const ids: string[] = [];
    const { parent, child } = user.serveMany((byName) => ({
      parent: async (context) => {
        const object = await context.invoke("object", {
          workflow: byName("child"),
          body: { give: { ü: "€" } },
        });
        const text = await context.invoke("text", { workflow: byName("child"), body: { give: "text" } });
        const nothing = await context.invoke("nothing", { workflow: byName("child"), body: {} });
        return [object, text, nothing];
      },
      child: async (context: WorkflowContext<{ give?: unknown }>) => {
        await context.run("note", () => void ids.push(context.workflowRunId));
        return context.requestPayload.give;
      },
    }));
    const run = await user.workflows.trigger({ url: parent.url });
    expect(await waitForResult(user, run)).toEqual([
      { body: { ü: "€" }, isCanceled: false, isFailed: false },
      { body: "text", isCanceled: false, isFailed: false },
      { isCanceled: false, isFailed: false },
    ]);
    const told = await waitForEnd(user, run);
    for (const workflowRunId of ids) {
      expect((await waitForEnd(user, { workflowRunId })).invoker).toEqual({
        workflowRunId: run.workflowRunId,
        workflowUrl: parent.url,
        workflowRunCreatedAt: told.workflowRunCreatedAt,
      });
    }
    expect(ids).toHaveLength(3);
    expect(child.calls.map(({ headers }) => headers["upstash-workflow-invoke-count"])).toEqual(
      Array(6).fill("1"),
    );
    // An invocation costs one more call.
    expect(await waitForCount(parent, 4)).toBe(4);
    expect(await waitForCount(child, 6)).toBe(6);
  });

  test("workflows are invoked in parallel and nested, and third parties get the depth", async () => {
    const user = createUser();
    const other = user.answer(() => Response.json("called"));
    const { parent, child, grandchild } = user.serveMany((byName) => ({
      parent: async (context) => {
        const all = await Promise.all(
          ["a", "b"].map((body) => context.invoke(body, { workflow: byName("child"), body })),
        );
        return all.map(({ body }) => body);
      },
      child: async (context: WorkflowContext<string>) => {
        const { body } = await context.invoke("deeper", {
          workflow: byName("grandchild"),
          body: context.requestPayload,
        });
        return `child of ${String(body)}`;
      },
      grandchild: async (context: WorkflowContext<string>) => {
        await context.call("call", { url: other.url });
        return context.requestPayload;
      },
    }));
    expect(await waitForResult(user, await user.workflows.trigger({ url: parent.url }))).toEqual([
      "child of a",
      "child of b",
    ]);
    expect(other.calls.map(({ headers }) => headers["upstash-workflow-invoke-count"])).toEqual(["2", "2"]);
    expect(
      await Promise.all([waitForCount(parent, 5), waitForCount(child, 4), waitForCount(grandchild, 6)]),
    ).toEqual([5, 4, 6]);
  });
}

function testFailures(createUser: () => WorkflowUser): void {
  test("an invoked run that fails calls its own failure function and returns no body", async () => {
    const user = createUser();
    const failed: string[] = [];
    const { parent, child } = user.serveMany(
      (byName) => ({
        parent: (context) => context.invoke("child", { workflow: byName("child"), retries: 0, body: "p" }),
        child: async (context: WorkflowContext<string>) => {
          await context.run("fail", () => {
            throw new Error("no way");
          });
        },
      }),
      {
        failureFunction: ({ failResponse, context }) =>
          void failed.push(`${failResponse} ${String(context.requestPayload)}`),
      },
    );
    const result = await waitForResult(user, await user.workflows.trigger({ url: parent.url }));
    expect(result).toEqual({ isCanceled: false, isFailed: true });
    // The start and the failure function.
    expect(await waitForCount(child, 2)).toBe(2);
    expect(failed).toEqual(["no way p"]);
  });

  test("an invoked run reports its cancellation, by itself or from outside", async () => {
    const user = createUser();
    const ids: string[] = [];
    const { parent } = user.serveMany((byName) => ({
      parent: (context) =>
        Promise.all(
          ["itself", "outside"].map((name) =>
            context.invoke(name, { workflow: byName("child"), body: name }),
          ),
        ),
      child: async (context: WorkflowContext<string>) => {
        await context.run(
          "note",
          () => void (context.requestPayload === "outside" && ids.push(context.workflowRunId)),
        );
        if (context.requestPayload === "itself") return context.cancel();
        await context.run("cancel", () => user.workflows.cancel(ids).then(() => undefined));
      },
    }));
    expect(await waitForResult(user, await user.workflows.trigger({ url: parent.url }))).toEqual([
      { isCanceled: true, isFailed: false },
      { isCanceled: true, isFailed: false },
    ]);
  });

  test("the end of an invoked run is in the log of a run that has failed in the meantime", async () => {
    const user = createUser();
    const started = createGate();
    const go = createGate();
    const { parent } = user.serveMany((byName) => ({
      parent: (context) =>
        Promise.all([
          context.invoke("child", { workflow: byName("child"), body: undefined }),
          context.run("fail", async () => {
            await started.promise;
            throw new Error("meanwhile");
          }),
        ]),
      child: (context) => context.run("wait", () => (started.resolve(), go.promise)),
    }));
    const run = await user.workflows.trigger({ url: parent.url, retries: 0 });
    expect(await waitForEnd(user, run)).toMatchObject({ workflowState: "RUN_FAILED" });
    const count = await waitForCount(parent, 3);
    go.resolve();
    const groups = async () => (await waitForEnd(user, run)).steps;
    let steps = await groups();
    while (
      !steps.some(
        (group) => group.type === "parallel" && group.steps.some(({ state }) => state === "STEP_SUCCESS"),
      )
    ) {
      await new Promise((resolve) => setTimeout(resolve, 20));
      steps = await groups();
    }
    expect(steps[1]).toMatchObject({
      type: "parallel",
      steps: [
        { stepName: "child", stepType: "Invoke", state: "STEP_SUCCESS" },
        { stepName: "fail", state: "STEP_FAILED" },
      ],
    });
    expect(await waitForCount(parent, count)).toBe(count);
  });
}

function testDepth(createUser: () => WorkflowUser): void {
  test(
    "nested invocations end at a depth of 100, and every invoking run is notified",
    { tags: "long" },
    async () => {
      const user = createUser();
      const depths: number[] = [];
      const { self } = user.serveMany((byName) => ({
        self: async (context: WorkflowContext<number>) => {
          const depth = context.requestPayload;
          if (!depths.includes(depth)) depths.push(depth);
          const { isFailed } = await context.invoke("deeper", {
            workflow: byName("self"),
            body: depth + 1,
            retries: 0,
          });
          return isFailed;
        },
      }));
      const run = await user.workflows.trigger({ url: self.url, body: 0 });
      expect(await waitForResult(user, run)).toBe(false);
      expect(depths.filter((one) => one > 0)).toHaveLength(99);
      const { messages } = await user.workflows.dlq.list();
      expect(messages).toMatchObject([{ responseStatus: 489, responseBody: expect.stringContaining("100") }]);
    },
  );
}

function testSettings(createUser: () => WorkflowUser): void {
  test("an invoked run has its own headers, label, retries and id", async () => {
    const user = createUser();
    const { parent, child } = user.serveMany((byName) => ({
      parent: (context) =>
        context.invoke("child", {
          workflow: byName("child"),
          headers: { "x-child": "c" },
          label: ["one", "two"],
          retries: 1,
          retryDelay: "10",
          body: undefined,
          workflowRunId: "mine",
          flowControl: { key: "child", parallelism: 1 },
        }),
      child: async (context) => {
        await context.run("fail once", () => {
          if (context.retried === 0) throw new Error("once");
        });
        return [
          context.headers.get("x-child"),
          context.headers.get("x-parent"),
          context.labels,
          context.workflowRunId,
        ];
      },
    }));
    const run = await user.workflows.trigger({
      url: parent.url,
      headers: { "x-parent": "p" },
      label: "parent",
    });
    expect(await waitForResult(user, run)).toEqual({
      body: ["c", null, ["one", "two"], "wfr_mine"],
      isCanceled: false,
      isFailed: false,
    });
    expect(await waitForCount(child, 3)).toBe(3);
    expect(child.calls.map(({ status }) => status)).toEqual([500, 200, 200]);
    const { runs } = await user.workflows.logs({ filter: { label: "two" } });
    expect(runs).toMatchObject([
      { workflowRunId: "wfr_mine", label: "one", labels: ["one", "two"], flowControlKey: "child" },
    ]);
  });
}
