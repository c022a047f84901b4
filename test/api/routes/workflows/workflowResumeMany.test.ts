import { describe, expect, test } from "vitest";
import { Refusal } from "../../../../src/engine/core/values/errors.ts";
import type { Store } from "../../../../src/engine/store/store.ts";
import { callbackTo, failRun, failRunAndRead } from "../lists/failedRunLists.ts";
import { createTestServer } from "../../testServer.ts";
import type { Reply } from "../../testServer.ts";
import { countFailedRuns, resume, takeDeliveries } from "./resumedRuns.ts";
import { makeDeletion } from "../../../makeDeletion.ts";

describe("many failed runs", () => {
  test("are resumed 50 at a time, oldest first, and continued by the cursor", async () => {
    const server = await createTestServer();
    for (let n = 0; n < 120; n++) await failRun(server, `run-${n}`);
    const sizes: number[] = [];
    const resumedIds = new Set<string>();
    for (let cursor: string | null = null; cursor !== "";) {
      const { body }: Reply = await resume(server, `?count=100${cursor === null ? "" : `&cursor=${cursor}`}`);
      expect(body).not.toHaveProperty("failed");
      for (const { workflowRunId } of body.workflowRuns) resumedIds.add(workflowRunId);
      sizes.push(body.workflowRuns.length);
      ({ cursor } = body);
    }
    expect(sizes).toEqual([50, 50, 20]);
    expect(resumedIds.size).toBe(120);
    expect(takeDeliveries(server)).toHaveLength(120);
    expect(await countFailedRuns(server)).toBe(0);
    expect((await resume(server, "")).body).toEqual({ workflowRuns: [], cursor: "" });
  });

  test("are chosen by filters, in the query or in a body", async () => {
    const server = await createTestServer();
    const ids: string[] = [];
    for (const label of ["a", "b", "a", "c"])
      ids.push(await failRunAndRead(server, `run-${label}`, { labels: [label] }));
    expect((await resume(server, "?label=a")).body.workflowRuns).toHaveLength(2);
    const body = JSON.stringify({ dlqIds: [ids[1], ids[0]] });
    expect((await resume(server, "", { body })).body).toEqual({
      workflowRuns: [
        { workflowRunId: expect.any(String), workflowCreatedAt: expect.any(Number), dlqId: ids[1] },
      ],
      cursor: "",
      failed: [{ id: ids[0], reason: expect.stringContaining("no failed run") }],
    });
    expect(await countFailedRuns(server)).toBe(1);
    expect(await resume(server, "", { body: '{"dlqIds":[]}' })).toMatchObject({ status: 400 });
    for (const run of ["order-1", "order-10", "order-2"]) await failRunAndRead(server, run);
    expect((await resume(server, "?workflowRunId=order-1")).body.workflowRuns).toHaveLength(2);
    expect(await resume(server, "?workflowRunId=none")).toMatchObject({
      status: 200,
      body: { workflowRuns: [], cursor: "" },
    });
  });

  test("do not report redacted parts to a failure callback that their triggers did not choose", async () => {
    const server = await createTestServer();
    const redaction = { body: true, headers: false as const };
    const hidden = await failRunAndRead(server, "hidden", {
      redaction,
      failureCallback: callbackTo("https://known.example"),
    });
    const open = await failRunAndRead(server, "open");
    const to = (url: string) => ({ headers: { "svc-failure-callback": url } });
    expect(await resume(server, `/${hidden}`, to("https://other.example"))).toMatchObject({
      status: 403,
      body: { error: expect.stringContaining("redacted parts") },
    });
    expect((await resume(server, "", to("https://other.example"))).body).toMatchObject({
      workflowRuns: [{ dlqId: open }],
      failed: [{ id: hidden, reason: expect.stringContaining("redacted parts") }],
    });
    expect((await resume(server, `/${hidden}`, to("https://known.example"))).status).toBe(200);
  });

  test("given by ids are also resumed 50 at a time", async () => {
    const server = await createTestServer();
    const ids: string[] = [];
    for (let n = 0; n < 60; n++) ids.push(await failRunAndRead(server, `run-${n}`));
    const query = `?${[...ids]
      .reverse()
      .map((id) => `dlqIds=${id}`)
      .join("&")}&dlqIds=nonsense`;
    const first = (await resume(server, query)).body;
    expect([first.workflowRuns.length, first.cursor, first.failed]).toEqual([
      50,
      ids[49],
      [{ id: "nonsense", reason: expect.any(String) }],
    ]);
    const second = (await resume(server, `${query}&cursor=${first.cursor}`)).body;
    expect([second.workflowRuns.length, second.cursor, second.failed]).toEqual([10, "", undefined]);
  });

  test("are resumed except for one that cannot be, which is reported and stays", async () => {
    const server = await createTestServer();
    const ofKey = { flowControl: { key: "k", parallelism: 1, rate: null, period: null } };
    const a = await failRunAndRead(server, "a", ofKey);
    const b = await failRunAndRead(server, "b");
    const c = await failRunAndRead(server, "c", ofKey);
    const { body } = await resume(server, "", { headers: { "svc-flow-control-value": "parallelism=5" } });
    expect(body).toMatchObject({
      cursor: "",
      failed: [{ id: b, reason: expect.stringContaining("requires Flow-Control-Key") }],
    });
    expect(body.workflowRuns).toHaveLength(2);
    expect((await server.ask("GET", `/v2/workflows/dlq?dlqIds=${a},${b},${c}`)).body.messages).toMatchObject([
      { dlqId: b },
    ]);
  });

  test("are resumed even if one is deleted in between", async () => {
    let hook = async (): Promise<void> => undefined;
    const wrap = (store: Store): Store => ({
      ...store,
      read: {
        ...store.read,
        deadLetters: async (query) => store.read.deadLetters(query).finally(() => hook()),
      },
    });
    const server = await createTestServer({ wrap });
    const ids = [
      await failRunAndRead(server, "a"),
      await failRunAndRead(server, "b"),
      await failRunAndRead(server, "c"),
    ];
    hook = async () => {
      hook = async () => undefined;
      await server.store.execute(
        "bulk",
        makeDeletion({
          account: "acc_1",
          dlqIds: [ids[1] ?? ""],
          logRetention: 0,
        }),
      );
    };
    const { body } = await resume(server, "");
    expect(body.workflowRuns).toHaveLength(2);
    expect(body.failed).toMatchObject([{ id: ids[1] }]);
  });

  test("resumed in part before a storage failure are returned with a cursor", async () => {
    let left = 2;
    const wrap = (store: Store): Store => ({
      ...store,
      execute: async (name, input) => {
        if (name === "bulk" && left-- === 0)
          throw new Refusal("unavailable", "the storage cannot be reached");
        return store.execute(name, input);
      },
    });
    const server = await createTestServer({ wrap });
    const ids = [
      await failRunAndRead(server, "a"),
      await failRunAndRead(server, "b"),
      await failRunAndRead(server, "c"),
      await failRunAndRead(server, "d"),
    ];
    const first = await resume(server, "");
    expect(first).toMatchObject({ status: 200, body: { cursor: `${ids[1]}_${ids[3]}` } });
    expect(first.body.workflowRuns).toHaveLength(2);
    expect((await resume(server, `?cursor=${first.body.cursor}`)).body.workflowRuns).toHaveLength(2);
    left = 0;
    await failRunAndRead(server, "e");
    expect(await resume(server, "")).toMatchObject({ status: 503 });
  });

  test.each([
    ["?workflowRuns=1", "workflowRuns: unknown parameter"],
    ["?dlqIds=1800000000000-1&cursor=x", "cursor: unknown; use the cursor of the previous page"],
    ["?svc-retries=1001", "retries: 1001 exceeds the limit of 1000"],
    ["?svc-workflow-runid=x", "svc-workflow-runid: only valid for a single run"],
  ])("are not resumed with %s", async (query, error) => {
    const server = await createTestServer();
    await failRunAndRead(server, "wfr_1");
    const reply = await resume(server, query);
    expect([400, 412]).toContain(reply.status);
    expect(reply.body.error).toContain(error);
    expect(await countFailedRuns(server)).toBe(1);
  });
});
