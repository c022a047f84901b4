import { describe, expect, test } from "vitest";
import { Refusal } from "../../../../src/engine/core/values/errors.ts";
import type { Store } from "../../../../src/engine/store/store.ts";
import { failMessage, failThree, listDeadLetters } from "../deadLetters/deadLetters.ts";
import { createTestServer } from "../../testServer.ts";
import type { TestServer } from "../../testServer.ts";
import { failRunAndRead, start } from "./failedRunLists.ts";

/** Starts a server whose storage fails after some more portions of bulk actions, and then works again. */
async function startFailing(left: { portions: number }): Promise<TestServer> {
  const wrap = (store: Store): Store => ({
    ...store,
    execute: async (name, input) => {
      if (name === "bulk" && left.portions-- === 0)
        throw new Refusal("unavailable", "the storage cannot be reached");
      return store.execute(name, input);
    },
  });
  return createTestServer({ wrap });
}

/** Returns the audit entries of an action, the oldest first. */
const readAudit = async (
  { ask }: TestServer,
  action: string,
): Promise<{ object: string; count?: number }[]> =>
  (await ask("GET", `/v2/audit?action=${action}`)).body.entries
    .map(({ object, count }: { object: string; count?: number }) => ({ object, count }))
    .reverse();

describe("a bulk action in several portions", () => {
  test("on messages reports a storage failure, and what was cancelled before stays cancelled", async () => {
    const left = { portions: 1 };
    const server = await startFailing(left);
    for (let at = 0; at < 502; at++)
      await server.ask("POST", "/v2/publish/https://e.example", { headers: { "svc-delay": "1d" } });
    const ids = [...server.memory.tables.messages.values()].map(({ id }) => id).sort();
    const named = JSON.stringify({ messageIds: ids });
    expect((await server.ask("DELETE", "/v2/messages", { body: named })).status).toBe(503);
    expect(server.memory.tables.messages.size).toBe(2);
    left.portions = 0;
    expect((await server.ask("DELETE", "/v2/messages")).status).toBe(503);
    expect((await server.ask("DELETE", "/v2/messages")).body).toEqual({ cancelled: 2 });
    expect(await readAudit(server, "message.cancel")).toEqual([
      { object: ids[0], count: 500 },
      { object: ids[500], count: 2 },
    ]);
  });

  test("on runs reports a storage failure, and what was cancelled before stays cancelled", async () => {
    const left = { portions: 1 };
    const server = await startFailing(left);
    for (let at = 0; at < 52; at++) await start(server, `run-${at}`);
    expect((await server.ask("DELETE", "/v2/workflows/runs")).status).toBe(503);
    expect(server.memory.tables.activeRuns.size).toBe(2);
    const [one, two] = [...server.memory.tables.activeRuns.values()].map(({ runId }) => runId);
    const named = [one, "none", two, one].map((runId) => `workflowRunIds=${runId}`).join("&");
    expect((await server.ask("DELETE", `/v2/workflows/runs?details=true&${named}`)).body).toEqual({
      cancelled: 2,
      failed: [{ id: "none", reason: "no active run has this id" }],
    });
    const entries = await readAudit(server, "run.cancel");
    expect(entries.map(({ count }) => count)).toEqual([50, 2]);
    expect(entries[1]?.object).toBe(one);
  });

  test("reports a storage failure if all entries before it were refused", async () => {
    const left = { portions: Infinity };
    const server = await startFailing(left);
    for (let at = 0; at < 5; at++) await failMessage(server, "https://e.example");
    const headers = { "svc-callback-retries": "1" };
    // The first portion is refused, as a whole and then each of its entries.
    left.portions = 5;
    expect((await server.ask("POST", "/v2/dlq/retry", { headers })).status).toBe(503);
    for (const runId of ["a", "b"]) await failRunAndRead(server, runId);
    left.portions = 1;
    const ofKey = { "svc-flow-control-value": "parallelism=5" };
    expect((await server.ask("POST", "/v2/workflows/dlq/resume", { headers: ofKey })).status).toBe(503);
    expect(server.memory.tables.deadLetters.size).toBe(7);
  });

  test.each([
    {
      done: "sent again, then refused",
      timeouts: [1, 51, 2],
      portions: 3,
      sent: [0],
      failed: [1],
      left: [2],
    },
    {
      done: "refused, then sent again",
      timeouts: [51, 1, 2],
      portions: 3,
      sent: [1],
      failed: [0],
      left: [2],
    },
    { done: "sent again", timeouts: [1, 51, 2], portions: 2, sent: [0], failed: [], left: [1, 2] },
  ])(
    "answers with the entries of a refused portion that were $done before the storage failed",
    async (row) => {
      const left = { portions: Infinity };
      const server = await startFailing(left);
      for (const seconds of row.timeouts)
        await failMessage(server, "https://e.example", { headers: { "svc-timeout": `${seconds}s` } });
      const ids = (await listDeadLetters(server)).messages
        .map(({ dlqId }: { dlqId: string }) => dlqId)
        .sort();
      const toIds = (places: readonly number[]) => places.map((at) => ids[at]);
      const change = { limits: { timeout: 40_000 } };
      await server.store.execute("changeAccount", { account: "acc_1", change });
      left.portions = row.portions;
      const first = await server.ask("POST", "/v2/dlq/retry");
      const listed = ({ body }: typeof first) => ({
        sent: body.responses.map(({ dlqId }: { dlqId: string }) => dlqId),
        failed: (body.failed ?? []).map(({ id }: { id: string }) => id),
      });
      expect(first.status).toBe(201);
      expect(listed(first)).toEqual({ sent: toIds(row.sent), failed: toIds(row.failed) });
      expect(first.body.cursor).not.toBe("");
      const rest = await server.ask("POST", `/v2/dlq/retry?cursor=${first.body.cursor}`);
      const { sent, failed } = listed(rest);
      expect(new Set([...sent, ...failed])).toEqual(new Set(toIds(row.left)));
      expect(rest.body.cursor).toBe("");
      expect(server.deliveries).toHaveLength(2);
    },
  );

  test("answers with what was sent again even if the reasons for other ids cannot be read", async () => {
    let isOver = false;
    const wrap = (store: Store): Store => ({
      ...store,
      execute: async (name, input) => {
        const done = await store.execute(name, input);
        isOver ||= name === "bulk";
        return done;
      },
      read: {
        ...store.read,
        deadLetters: async (query) => {
          if (isOver) throw new Refusal("too-slow", "the bulk action was stopped");
          return store.read.deadLetters(query);
        },
      },
    });
    const server = await createTestServer({ wrap });
    await failMessage(server, "https://e.example");
    const dlqId = (await listDeadLetters(server)).messages[0]?.dlqId;
    const { status, body } = await server.ask("POST", `/v2/dlq/retry?dlqIds=${dlqId}&dlqIds=none`);
    expect({ status, body }).toMatchObject({
      status: 201,
      body: {
        responses: [{ dlqId }],
        failed: [{ id: "none", reason: "not retried; the reason could not be read" }],
      },
    });
    expect(server.deliveries).toHaveLength(1);
  });

  test("reports a storage failure after the only entry that was done one by one was refused", async () => {
    const left = { portions: Infinity };
    const server = await startFailing(left);
    for (const seconds of [51, 1])
      await failMessage(server, "https://e.example", { headers: { "svc-timeout": `${seconds}s` } });
    const change = { limits: { timeout: 40_000 } };
    await server.store.execute("changeAccount", { account: "acc_1", change });
    left.portions = 2;
    expect((await server.ask("POST", "/v2/dlq/retry")).status).toBe(503);
    expect(server.deliveries).toEqual([]);
  });
});

describe("a bulk action", () => {
  test("does each entry once if its id is given twice, and names unknown ids", async () => {
    const { server, ids } = await failThree();
    const [a, b, c] = ids;
    const given = [b, a, "gone", b, "gone", "%00", "%00"].map((id) => `dlqIds=${id}`).join("&");
    const noId = { id: "\0", reason: expect.stringContaining("there is no dead letter") };
    expect((await server.ask("DELETE", `/v2/dlq?${given}`)).body).toEqual({
      deleted: 2,
      failed: [{ id: "gone", reason: "the dead letter does not exist" }, noId, noId],
    });
    expect(await readAudit(server, "dlq.delete")).toEqual([{ object: b, count: 2 }]);
    const { body } = await server.ask("POST", `/v2/dlq/retry?dlqIds=${c},${a},${c}`);
    expect(body).toEqual({
      cursor: "",
      responses: [{ messageId: expect.any(String), dlqId: c }],
      failed: [{ id: a, reason: `dlqId: there is no dead letter "${a}"` }],
    });
    expect(await readAudit(server, "dlq.retry")).toEqual([{ object: c, count: 1 }]);
  });

  test("on a run has an audit entry without a number", async () => {
    const server = await createTestServer();
    const ids = [await failRunAndRead(server, "a"), await failRunAndRead(server, "b")];
    await server.ask("POST", "/v2/workflows/dlq/resume");
    expect(await readAudit(server, "dlq.resume")).toEqual(
      ids.map((object) => ({ object, count: undefined })),
    );
  });

  test.each([
    ["DELETE", "/v2/dlq?label=none", { deleted: 0 }],
    ["DELETE", "/v2/workflows/dlq?label=none", { deleted: 0 }],
    ["DELETE", "/v2/messages?label=none", { cancelled: 0 }],
    ["DELETE", "/v2/messages?messageIds=none", { cancelled: 0 }],
    ["DELETE", "/v2/workflows/runs?label=none", { cancelled: 0 }],
    ["DELETE", "/v2/workflows/runs?workflowRunIds=none", { cancelled: 0 }],
    ["POST", "/v2/workflows/dlq/restart?label=none", { workflowRuns: [], cursor: "" }],
  ])("without entries does nothing: %s %s", async (method, path, body) => {
    const { server } = await failThree();
    expect(await server.ask(method, path)).toMatchObject({ status: 200, body });
    expect((await listDeadLetters(server)).messages).toHaveLength(3);
    expect((await server.ask("GET", "/v2/audit")).body.entries).toEqual([]);
  });
});
