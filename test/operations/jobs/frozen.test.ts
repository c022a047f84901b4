import { describe, expect, test } from "vitest";
import { createTestServer } from "../../api/testServer.ts";
import type { TestServer } from "../../api/testServer.ts";
import { failMessage, listDeadLetters } from "../../api/routes/deadLetters/deadLetters.ts";
import { start } from "../../api/routes/lists/failedRunLists.ts";
import type { Filter } from "../../../src/engine/core/search/filter.ts";
import { matchesFilter } from "../../../src/engine/core/search/filter.ts";
import { createJobOf as create, failMany, finish } from "./jobRunners.ts";

const count = async ({ ask }: TestServer, request: object) => {
  const { status, body } = await ask("POST", "/v2/jobs", {
    body: JSON.stringify({ ...request, dryRun: true }),
  });
  expect(status).toBe(200);
  return body as { count: number; last: string };
};

const publish = (server: TestServer, path: string, headers: Record<string, string> = {}) =>
  server.ask("POST", path, { headers: { "svc-delay": "1d", ...headers } });

describe("a job with the bound of its dry run", () => {
  test.each(["dlq.retry", "dlq.delete"])("%s leaves out what failed after it", async (action) => {
    const server = await createTestServer();
    await failMany(server, 9);
    const request = { action, filter: {} };
    const { count: counted, last } = await count(server, request);
    expect(counted).toBe(9);
    await failMany(server, 5);
    const jobId = await create(server, { ...request, last });
    expect(await finish(server, jobId)).toMatchObject({ state: "done", total: 9, done: 9 });
    expect((await listDeadLetters(server)).messages).toHaveLength(5);
  });

  test.each(["dlq.delete", "messages.cancel", "runs.cancel"])(
    "%s has nothing if nothing existed",
    async (action) => {
      const server = await createTestServer();
      const { last } = await count(server, { action, filter: {} });
      expect(last).toBe("");
      await failMany(server, 1);
      await publish(server, "/v2/publish/https://one.example");
      await start(server, "a");
      const jobId = await create(server, { action, filter: {}, last });
      expect(await finish(server, jobId)).toMatchObject({ state: "done", total: 0, done: 0 });
    },
  );

  test("leaves out messages and runs that were added after it", async () => {
    const server = await createTestServer();
    const add = async () => {
      server.clock.now += 1;
      await publish(server, "/v2/publish/https://one.example");
      await start(server, `run ${server.clock.now}`);
    };
    await add();
    await add();
    const requests = [
      { action: "messages.cancel", filter: { host: "one.example" } },
      { action: "runs.cancel", filter: {} },
    ];
    const bounds = [];
    for (const request of requests) bounds.push({ ...request, last: (await count(server, request)).last });
    await add();
    for (const request of bounds)
      expect(await finish(server, await create(server, request))).toMatchObject({ total: 2, done: 2 });
    for (const request of requests) expect(await count(server, request)).toMatchObject({ count: 1 });
  });

  test.each(["x", "msg_", "zzz", "9999999999999", "run_1 ", "~"])(
    "is refused with the bound %j",
    async (last) => {
      const server = await createTestServer();
      await failMany(server, 1);
      for (const action of ["dlq.delete", "messages.cancel", "runs.cancel"])
        expect(
          await server.ask("POST", "/v2/jobs", { body: JSON.stringify({ action, filter: {}, last }) }),
        ).toMatchObject({ status: 400, body: { error: expect.stringMatching(/^last: not the field last/) } });
    },
  );
});

describe("jobs select by", () => {
  test("cause, which an older server takes for nothing", async () => {
    const server = await createTestServer();
    await failMessage(server, "https://one.example");
    await failMessage(server, "https://two.example");
    const { groups } = (await server.ask("GET", "/v2/dlq/groups")).body as { groups: { cause: string }[] };
    const filter = { cause: groups[0]?.cause };
    const jobId = await create(server, { action: "dlq.delete", filter });
    const [job] = [...server.memory.tables.jobs.values()];
    const { causes: _unknown, ...known } = { ...(job?.filter as Filter) };
    expect(known).not.toEqual({});
    for (const message of server.memory.tables.storedMessages.values())
      expect(matchesFilter(known, { message, time: message.createdAt })).toBe(false);
    expect(await finish(server, jobId)).toMatchObject({ state: "done", total: 1, done: 1 });
    expect((await listDeadLetters(server)).messages).toMatchObject([{ url: "https://one.example" }]);
  });

  test("state, gate and host of messages, and never by a run", async () => {
    const server = await createTestServer();
    const pause = (name: string) => server.ask("POST", `/v2/queues/${name}/pause`);
    await publish(server, "/v2/publish/https://one.example");
    await pause("q");
    for (const host of ["one", "two", "two"])
      await publish(server, `/v2/enqueue/q/https://${host}.example`, { "svc-delay": "0s" });
    const counts = async (filter: object) =>
      (await count(server, { action: "messages.cancel", filter })).count;
    expect(await counts({})).toBe(4);
    expect(await counts({ state: "pending" })).toBe(1);
    expect(await counts({ state: ["held", "paused"] })).toBe(3);
    expect(await counts({ state: "paused", host: "two.example" })).toBe(2);
    expect(await counts({ gate: "key" })).toBe(0);
    expect(await counts({ minAttempts: 1 })).toBe(0);
    const cancel = (query: string) => server.ask("DELETE", `/v2/messages?${query}`);
    expect((await cancel("state=delivering")).body).toEqual({ cancelled: 0 });
    expect((await cancel("state=none")).status).toBe(400);
    expect((await cancel("state=paused&host=two.example&dryRun=true")).body).toMatchObject({ count: 2 });
    const jobId = await create(server, {
      action: "messages.cancel",
      filter: { state: "paused", host: "two.example" },
    });
    expect(await finish(server, jobId)).toMatchObject({ state: "done", done: 2 });
    expect((await cancel("state=paused")).body).toEqual({ cancelled: 1 });
    expect(await counts({})).toBe(1);
    const ofRun = { action: "messages.cancel", filter: { workflowRunId: "a" } };
    expect((await server.ask("POST", "/v2/jobs", { body: JSON.stringify(ofRun) })).status).toBe(400);
    expect((await cancel("workflowRunId=a")).status).toBe(400);
  });
});
