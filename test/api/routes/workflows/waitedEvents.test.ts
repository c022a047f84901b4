import { describe, expect, test } from "vitest";
import { createTestServer, otherToken, testTime } from "../../testServer.ts";
import { startInvoked } from "./runLogFixtures.ts";
import { wait, waitingRun } from "./waitingRuns.ts";

describe("GET /v2/waiters", () => {
  test("lists the events that runs wait for, and not the runs that wait for other runs", async () => {
    const server = await createTestServer();
    await waitingRun(server, "parent");
    await waitingRun(server, "r1");
    await wait(server, "r1", { event: "paid" });
    await waitingRun(server, "r2");
    await wait(server, "r2", { event: "paid", timeout: "1h" });
    await wait(server, "r2", { event: "order shipped", stepId: 2 });
    await startInvoked(server, "child", {
      step: { stepId: 1, stepName: "inv", stepType: "Invoke", concurrent: 1 },
    });
    const week = 7 * 86_400_000;
    const { status, body } = await server.ask("GET", "/v2/waiters");
    expect({ status, body }).toEqual({
      status: 200,
      body: {
        events: [
          {
            eventId: "order shipped",
            waiting: 1,
            oldestRun: { workflowRunId: "r2", kind: "event", since: testTime, timeoutAt: testTime + week },
          },
          {
            eventId: "paid",
            waiting: 2,
            oldestRun: { workflowRunId: "r1", kind: "event", since: testTime, timeoutAt: testTime + week },
          },
        ],
      },
    });
    const first = (await server.ask("GET", "/v2/waiters?count=1")).body;
    expect(first).toMatchObject({ events: [{ eventId: "order shipped" }], cursor: "order shipped" });
    const second = await server.ask("GET", `/v2/waiters?count=1&cursor=${encodeURIComponent(first.cursor)}`);
    expect(second.body).toMatchObject({ events: [{ eventId: "paid" }] });
    expect(second.body).not.toHaveProperty("cursor");
    await server.ask("POST", "/v2/notify/paid");
    expect((await server.ask("GET", "/v2/waiters")).body.events).toHaveLength(1);
    expect((await server.ask("GET", "/v2/waiters", { token: otherToken })).body).toEqual({ events: [] });
  });

  test.each([
    [`cursor=${"x".repeat(3_000)}`, "cursor: "],
    ["cursor=a%00b", "cursor: "],
    ["count=0", "count: "],
    ["event=paid", "event: "],
  ])("refuses %s", async (query, error) => {
    const server = await createTestServer();
    const { status, body } = await server.ask("GET", `/v2/waiters?${query}`);
    expect({ status, error: body.error }).toEqual({ status: 400, error: expect.stringContaining(error) });
  });
});
