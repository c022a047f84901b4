import { describe, expect, test } from "vitest";
import { takeHistories } from "./workflow.ts";
import { createTestServer, otherToken } from "../../testServer.ts";
import { wait, waiting, waitingRun } from "./waitingRuns.ts";

describe("notifying", () => {
  test("reaches all waiting steps of the account's runs, and no other account", async () => {
    const server = await createTestServer();
    for (let n = 0; n < 120; n++) {
      await waitingRun(server, `r${n}`);
      await wait(server, `r${n}`, { event: n === 7 ? "other" : "paid" });
    }
    await waitingRun(server, "theirs", { as: "acc_2" });
    await server.ask("POST", "/v2/wait/paid", { ...waiting("theirs"), token: otherToken });
    const reply = await server.ask("POST", "/v2/notify/paid", { body: "x" });
    expect(reply.status).toBe(200);
    expect(reply.headers).not.toHaveProperty("waypost-more");
    expect(reply.body.map(({ workflowRunId }: { workflowRunId: string }) => workflowRunId)).toEqual(
      Array.from({ length: 120 }, (_, n) => `r${n}`).filter((id) => id !== "r7"),
    );
    expect((await server.ask("GET", "/v2/waiters/paid", { token: otherToken })).body).toHaveLength(1);
    expect((await server.ask("POST", "/v2/notify/nothing")).body).toEqual([]);
  });

  test("sets Waypost-More if more steps wait than one request can notify", { tags: "long" }, async () => {
    const server = await createTestServer();
    const body = Buffer.alloc(10 * 1024 * 1024, "a");
    // The last one may exceed the limit.
    const most = Math.ceil((256 * 1024 * 1024) / body.length);
    for (let n = 0; n < most + 1; n++) {
      await waitingRun(server, `r${n}`, { delay: null });
      await wait(server, `r${n}`);
    }
    const lists = [];
    for (let n = 0; n < 2; n++) {
      const { headers, body: notified } = await server.ask("POST", "/v2/notify/paid", { body });
      lists.push([notified.length, headers["waypost-more"]]);
      server.deliveries.splice(0);
    }
    expect(lists).toEqual([
      [most, "true"],
      [1, undefined],
    ]);
  });

  test("one run that does not wait yet keeps the events, oldest first", async () => {
    const server = await createTestServer();
    await waitingRun(server, "wfr_1");
    for (const body of ["first", "second"])
      expect(await server.ask("POST", "/v2/notify/wfr_1/paid", { body })).toMatchObject({
        status: 200,
        body: [{ workflowRunId: "wfr_1" }],
      });
    expect((await server.ask("POST", "/v2/notify/paid", { body: "lost" })).body).toEqual([]);
    expect((await wait(server, "wfr_1", { stepId: 1 })).body).toEqual({ waits: false });
    expect((await wait(server, "wfr_1", { stepId: 2 })).body).toEqual({ waits: false });
    expect((await wait(server, "wfr_1", { stepId: 3 })).body).toEqual({ waits: true });
    expect(
      takeHistories(server)
        .at(-1)
        ?.slice(1)
        .map((text) => atob(JSON.parse(text).out)),
    ).toEqual(["first", "second"]);
  });

  test("a run that has ended, does not exist or is another account's is 404", async () => {
    const server = await createTestServer();
    await waitingRun(server, "wfr_1");
    await server.ask("DELETE", "/v2/workflows/runs/wfr_1");
    await waitingRun(server, "theirs", { as: "acc_2" });
    for (const runId of ["wfr_1", "unknown", "theirs"])
      expect(await server.ask("POST", `/v2/notify/${runId}/paid`, { body: "x" })).toMatchObject({
        status: 404,
        body: { error: expect.stringContaining(runId) },
      });
  });

  test("a run that does not wait keeps at most 1,000 events", async () => {
    const server = await createTestServer();
    await waitingRun(server, "wfr_1");
    for (let n = 0; n < 1_000; n++)
      await server.store.execute("notify", {
        account: "acc_1",
        event: `e${n % 7}`,
        body: Buffer.from("x"),
        runId: "wfr_1",
        kind: "event",
      });
    expect(await server.ask("POST", "/v2/notify/wfr_1/paid", { body: "x" })).toMatchObject({
      status: 412,
      body: { error: expect.stringContaining("1000") },
    });
    expect((await wait(server, "wfr_1", { event: "e3" })).body).toEqual({ waits: false });
    expect((await server.ask("POST", "/v2/notify/wfr_1/paid", { body: "x" })).status).toBe(200);
  });

  test("with a body larger than a message is 413", async () => {
    const server = await createTestServer();
    await waitingRun(server, "wfr_1");
    const body = Buffer.alloc(10 * 1024 * 1024 + 1);
    for (const path of ["/v2/notify/paid", "/v2/notify/wfr_1/paid"])
      expect((await server.ask("POST", path, { body })).status).toBe(413);
  });
});
