import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { WorkflowContext } from "@upstash/workflow";
import type { WorkflowTestServer } from "../workflowTestServer.ts";
import { waitForResult, startWorkflowTestServer } from "../workflowTestServer.ts";
import { go, goJson } from "./dialects.ts";
import type { Row } from "./exchange.ts";
import { expectReplay } from "./exchange.ts";
import { reads } from "./goReads.ts";

// The Go workflow client triggers, cancels, notifies and lists workflows. It does not serve them.

const json = { "Content-Type": "application/json" };

/**
 * Returns a trigger. The client writes the two features as two headers of one name. The other rows need only
 * one header of each name.
 */
const trigger = (runId: string, more: Partial<Row> = {}): Row => ({
  call: "Trigger",
  send: "POST /v2/publish/{url}",
  headers: {
    "Upstash-Workflow-Init": "true",
    "Upstash-Workflow-Runid": runId,
    "Upstash-Workflow-Url": "{url}",
    "Upstash-Feature-Set": "LazyFetch",
    "upstash-feature-set": "InitialBody",
    "Upstash-Forward-Upstash-Workflow-Sdk-Version": "1",
    "Upstash-Flow-Control-Key": "go",
    "Upstash-Flow-Control-Value": "rate=100,parallelism=10",
    "Upstash-Retries": "3",
    "Upstash-Forward-Test-Header": "test-value",
  },
  body: goJson({ order: 1 }),
  reads: reads.sent,
  ...more,
});

const lists = (state: string): Row[] => [
  {
    call: "Logs with every filter",
    send:
      "GET /v2/workflows/logs?count=5&fromDate=1000000000000" +
      `&state=${state}&toDate=4102444800000&workflowRunId={run}&workflowUrl={url}`,
    reads: reads.runs,
    await: true,
    gives: { runs: [{ workflowRunId: "{run}", workflowState: state, workflowUrl: "{url}" }] },
  },
];

describe("the Go workflow client", () => {
  let house: WorkflowTestServer;

  beforeAll(async () => {
    house = await startWorkflowTestServer("SQLite");
  });

  afterAll(() => house.close());

  test("starts a run, wakes it with an event and reads its log", async () => {
    const author = house.createUser();
    const work = author.serve(async (context: WorkflowContext<{ order: number }>) => {
      const first = await context.run("first", () => context.requestPayload.order + 1);
      const { eventData } = await context.waitForEvent<string>("wait", "go-event", { timeout: 100 });
      return [first, eventData, context.headers.get("test-header")];
    });
    const memory = { url: work.url, run: "wfr_go" };
    await expectReplay(go, author, {
      rows: [
        trigger("wfr_go"),
        {
          call: "Waiters until one exists",
          send: "GET /v2/waiters/go-event",
          reads: reads.waiters,
          await: true,
          gives: [{ url: "{url}", deadline: expect.any(Number), timeoutUrl: "{url}" }],
        },
        ...lists("RUN_STARTED"),
        {
          call: "Notify",
          send: "POST /v2/notify/go-event",
          body: "paid",
          reads: reads.notified,
          gives: [{ messageId: expect.any(String), waiter: { url: "{url}" } }],
        },
        {
          call: "Notify without a waiter",
          send: "POST /v2/notify/go-event",
          reads: reads.notified,
          gives: [],
        },
        ...lists("RUN_SUCCESS"),
      ],
      memory: memory,
    });
    expect(await waitForResult(author, { workflowRunId: "wfr_go" })).toEqual([2, "paid", "test-value"]);
  });

  test("cancels one run, several, those of a URL and all", async () => {
    const author = house.createUser();
    const work = author.serve((context) => context.sleep("long", 1000));
    const cancel = (call: string, what: object, cancelled: number): Row => ({
      call,
      send: "DELETE /v2/workflows/runs",
      headers: json,
      body: goJson(what),
      reads: reads.cancelled,
      gives: { cancelled },
    });
    await expectReplay(go, author, {
      rows: [
        ...["a", "b", "c", "d", "e"].map((id) => trigger(id)),
        cancel("Cancel", { workflowRunIds: ["a"] }, 1),
        cancel("CancelMany", { workflowRunIds: ["b", "c"] }, 2),
        cancel("CancelWithFilter", { workflowUrl: "{url}" }, 2),
        trigger("f"),
        cancel("CancelAll", {}, 1),
        ...lists("RUN_CANCELED"),
      ],
      memory: { url: work.url, run: "f" },
    });
  });

  test("reads the log of a failed run and of runs that invoke others", async () => {
    const author = house.createUser();
    const { parent, child } = author.serveMany((byName) => ({
      parent: async (context) =>
        context.invoke("child", { workflow: byName("child"), body: "p", retries: 0 }),
      child: async (context: WorkflowContext<string>) => {
        const called = await context.call("call", {
          url: author.url,
          method: "POST",
          body: "b",
          headers: { "x-call": "c" },
        });
        await Promise.all([context.run("left", () => called.status), context.sleep("right", 0)]);
        throw new Error("broken");
      },
    }));
    const ids = { failed: "", parent: "wfr_parent" };
    await expectReplay(go, author, {
      rows: [
        trigger("wfr_parent", {
          headers: {
            ...trigger("wfr_parent").headers,
            "Upstash-Retries": "0",
            "Upstash-Workflow-Url": "{url}",
          },
        }),
        ...lists("RUN_SUCCESS"),
        {
          call: "Logs of the failed run",
          send: "GET /v2/workflows/logs?state=RUN_FAILED",
          reads: reads.runs,
          await: true,
          gives: {
            runs: [
              {
                workflowUrl: child.url,
                invoker: { workflowRunId: "{run}" },
                failureFunction: expect.any(Object),
              },
            ],
          },
        },
      ],
      memory: { url: parent.url, run: ids.parent },
    });
  });
});
