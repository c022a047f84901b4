import { expect, test } from "vitest";
import { failRun } from "./failedRunLists.ts";
import { createTestServer } from "../../testServer.ts";
import type { TestServer } from "../../testServer.ts";

async function failedMessages(server: TestServer, count: number): Promise<void> {
  for (let number = 0; number < count; number++) {
    server.clock.now += 1_000;
    await server.ask("POST", "/v2/publish/https://e.example", { headers: { "svc-retries": "0" } });
    await server.settle(server.delivery(), { status: 500 });
  }
}

async function failedRuns(server: TestServer, count: number): Promise<void> {
  for (let number = 0; number < count; number++) await failRun(server, `run-${number}`);
  server.deliveries.length = 0;
}

/** Fails all deliveries for good. */
async function failAll(server: TestServer): Promise<void> {
  server.clock.now += 1;
  for (const delivery of server.deliveries.splice(0))
    await server.settle(delivery, { status: 489, headers: [["Upstash-NonRetryable-Error", "true"]] });
}

/**
 * Repeats a bulk request with each cursor until there is none, and calls `between` after each request.
 * Returns how many entries each request handled.
 */
async function repeatToEnd(
  server: TestServer,
  [method, path]: readonly [method: string, path: string],
  between: () => Promise<void>,
): Promise<number[]> {
  const counts: number[] = [];
  for (let cursor = ""; counts.length < 20;) {
    const { status, body } = await server.ask(method, `${path}?count=3${cursor && `&cursor=${cursor}`}`);
    expect(status).toBeLessThan(300);
    counts.push(body.deleted ?? (body.responses ?? body.workflowRuns).length);
    await between();
    cursor = body.cursor ?? "";
    if (cursor === "") return counts;
  }
  return counts;
}

test.each([
  ["/v2/dlq/retry", "/v2/dlq", failedMessages],
  ["/v2/workflows/dlq/resume", "/v2/workflows/dlq", failedRuns],
  ["/v2/workflows/dlq/restart", "/v2/workflows/dlq", failedRuns],
])("%s ends even if everything fails again", async (path, list, make) => {
  const server = await createTestServer();
  await make(server, 8);
  expect(await repeatToEnd(server, ["POST", path], () => failAll(server))).toEqual([3, 3, 2]);
  expect((await server.ask("GET", list)).body.messages).toHaveLength(8);
  // A new sweep covers the entries that failed again.
  expect(await repeatToEnd(server, ["POST", path], () => failAll(server))).toEqual([3, 3, 2]);
});

test("entries that fail during a bulk deletion are not deleted", async () => {
  const server = await createTestServer();
  await failedMessages(server, 5);
  expect(await repeatToEnd(server, ["DELETE", "/v2/dlq"], () => failedMessages(server, 2))).toEqual([3, 2]);
  expect((await server.ask("GET", "/v2/dlq")).body.messages).toHaveLength(4);
});

test("a dry run with a cursor counts what is left of the entries at the first request", async () => {
  const server = await createTestServer();
  await failedMessages(server, 5);
  const { cursor } = (await server.ask("POST", "/v2/dlq/retry?count=3")).body;
  await failAll(server);
  expect((await server.ask("POST", `/v2/dlq/retry?cursor=${cursor}&dryRun=true`)).body).toMatchObject({
    dryRun: true,
    count: 2,
  });
  expect((await server.ask("POST", "/v2/dlq/retry?dryRun=true")).body).toMatchObject({
    dryRun: true,
    count: 5,
  });
});

test.each([
  "1800000000000-1_",
  "1800000000000-1_x",
  "_1800000000000-1",
  "1800000000000-1_1800000000000-1_1800000000000-1",
])("an invalid cursor is refused: %s", async (cursor) => {
  const server = await createTestServer();
  await failedMessages(server, 1);
  for (const [method, path] of [
    ["POST", "/v2/dlq/retry"],
    ["DELETE", "/v2/dlq"],
    ["POST", "/v2/workflows/dlq/resume"],
  ] as const)
    expect(await server.ask(method, `${path}?cursor=${cursor}`)).toMatchObject({
      status: 400,
      body: { error: expect.stringMatching(/^cursor: /) },
    });
  expect((await server.ask("GET", "/v2/dlq")).body.messages).toHaveLength(1);
});
