import { beforeEach, describe, expect, test } from "vitest";
import { createTestServer, otherToken, testTime } from "../../testServer.ts";
import type { TestServer } from "../../testServer.ts";

let server: TestServer;
beforeEach(async () => {
  server = await createTestServer();
});

async function post(path: string, headers: Record<string, string> = {}): Promise<string> {
  const { status, body } = await server.ask("POST", path, { headers, body: "hello" });
  expect(status, JSON.stringify(body)).toBe(200);
  return String(body.messageId);
}
const publish = (headers: Record<string, string> = {}, url = "https://e.example/x") =>
  post(`/v2/publish/${url}`, headers);
const list = async (query = "", token?: string) =>
  (await server.ask("GET", `/v2/messages${query}`, token === undefined ? {} : { token })).body;
const idsOf = (body: { messages: { messageId: string }[] }) =>
  body.messages.map(({ messageId }) => messageId);

describe("a listed message", () => {
  test.each(["svc", "upstash"])(
    "with settings of the brand %s has all its fields, without its body",
    async (brand) => {
      const id = await publish({
        [`${brand}-delay`]: "1m",
        [`${brand}-retries`]: "5",
        [`${brand}-label`]: "a,b",
        [`${brand}-flow-control-key`]: "k",
        [`${brand}-flow-control-value`]: "parallelism=1",
        [`${brand}-forward-authorization`]: "s3cret",
      });
      expect(await list()).toEqual({
        messages: [
          {
            messageId: id,
            state: "pending",
            url: "https://e.example/x",
            method: "POST",
            flowControlKey: "k",
            label: "a",
            labels: ["a", "b"],
            callerIP: "127.0.0.1",
            size: 5,
            createdAt: testTime,
            dueAt: testTime + 60_000,
            attempts: 0,
            maxRetries: 5,
            waitingOn: {
              reason: "not-due",
              text: "due at 2027-01-15T08:01:00.000Z",
              until: testTime + 60_000,
            },
          },
        ],
        total: 1,
      });
    },
  );

  test("has its last result while it waits for a retry and while it is sent again", async () => {
    await publish({ "svc-retry-delay": "60000" });
    await server.settle(server.delivery(), { status: 503 });
    expect((await list()).messages[0]).toMatchObject({
      state: "retrying",
      attempts: 1,
      responseStatus: 503,
      dueAt: testTime + 60_000,
      waitingOn: { reason: "retry", text: "retry 1 of 3 at 2027-01-15T08:01:00.000Z, after status 503" },
    });
    server.clock.now += 60_000;
    await server.store.execute("claim", { limit: 10 });
    const [again] = (await list()).messages;
    expect(again).toMatchObject({
      state: "delivering",
      attempts: 1,
      responseStatus: 503,
      waitingOn: { reason: "sending" },
    });
    expect(again).not.toHaveProperty("dueAt");
    await server.settle(server.delivery(), { status: null, error: "connection refused" });
    const [refused] = (await list()).messages;
    expect(refused).toMatchObject({ state: "retrying", attempts: 2, error: "connection refused" });
    expect(refused).not.toHaveProperty("responseStatus");
  });

  test("at a gate names the gate, and whether it is paused", async () => {
    await server.ask("POST", "/v2/queues", { body: JSON.stringify({ queueName: "q", parallelism: 1 }) });
    await post("/v2/enqueue/q/https://e.example/x");
    const held = await post("/v2/enqueue/q/https://e.example/x");
    await server.store.execute("claim", { limit: 10 });
    expect((await list("?gate=queue")).messages).toMatchObject([
      {
        messageId: held,
        state: "held",
        gate: "queue",
        queueName: "q",
        waitingOn: { reason: "queue", text: "queue q: 1 of 1 slots in use", used: 1, limit: 1 },
      },
    ]);
    await server.ask("POST", "/v2/queues/q/pause");
    expect((await list("?state=held")).messages).toEqual([]);
    expect((await list("?state=paused")).messages).toMatchObject([
      { messageId: held, state: "paused", gate: "queue", waitingOn: { reason: "queue-paused" } },
    ]);
  });

  test("of a run has the id of the run, by which it is found while the run is active", async () => {
    const started = await server.ask("POST", "/v2/trigger/https://e.example/flow", { body: "{}" });
    expect(started.status).toBe(200);
    const runId = String(started.body.workflowRunId);
    await publish({ "svc-delay": "1h" });
    expect((await list(`?workflowRunId=${runId}`)).messages).toMatchObject([{ workflowRunId: runId }]);
    expect(await list("?workflowRunId=wfr_none")).toEqual({ messages: [], total: 0 });
    expect(await list(`?workflowRunId=${runId}`, otherToken)).toEqual({ messages: [], total: 0 });
  });
});

describe("the list", () => {
  test("has pages, in the order of acceptance or of due times", async () => {
    const ids = [
      await publish({ "svc-delay": "3m" }),
      await publish({ "svc-delay": "1m" }),
      await publish({ "svc-delay": "2m" }),
    ];
    const first = await list("?count=2");
    expect(first).toMatchObject({ total: 3 });
    expect(idsOf(first)).toEqual(ids.slice(0, 2));
    const second = await list(`?count=2&cursor=${first.cursor}`);
    expect(idsOf(second)).toEqual(ids.slice(2));
    expect(second).not.toHaveProperty("cursor");
    expect(idsOf(await list("?order=latestFirst"))).toEqual(ids.toReversed());
    expect(idsOf(await list("?sort=due"))).toEqual([ids[1], ids[2], ids[0]]);
    expect(idsOf(await list(`?sort=due&dueFrom=${testTime + 60_001}&dueTo=${testTime + 120_000}`))).toEqual([
      ids[2],
    ]);
  });

  test("with ids has these messages, and ignores the other filters", async () => {
    const id = await publish({ "svc-delay": "3m" });
    await publish({ "svc-delay": "3m" });
    expect(idsOf(await list(`?messageIds=${id},msg_none,%2e%2e&state=held`))).toEqual([id]);
    expect(await list(`?messageIds=${id}`, otherToken)).toEqual({ messages: [], total: 0 });
  });

  test("is empty for a message of another account, also with its cursor", async () => {
    await publish({ "svc-delay": "3m" });
    await publish({ "svc-delay": "3m" });
    const { cursor } = await list("?count=1");
    expect(await list(`?cursor=${cursor}`, otherToken)).toEqual({ messages: [], total: 0 });
    expect(await list("", otherToken)).toEqual({ messages: [], total: 0 });
  });

  test.each([
    ["state=waiting", "state: must be one of pending, retrying, delivering, acknowledging, held, paused"],
    ["gate=host", "gate: must be one of queue, key, endpoint, account, capacity"],
    ["sort=age", "sort: must be one of created, due"],
    ["minAttempts=0", "minAttempts: must be at least 1"],
    ["minAttempts=x", "minAttempts: is not a whole number"],
    ["dueFrom=2&dueTo=1", "dueFrom: is later than dueTo; swap them"],
    ["fromDate=2&toDate=1", "fromDate: is later than toDate; swap them"],
    ["dueTo=99999999999999999999", "dueTo: is not a whole number"],
    ["cursor=msg_1%27", "cursor: unknown; use the cursor of the previous page"],
    ["cursor=1-msg_1", "cursor: unknown; use the cursor of the previous page"],
    ["sort=due&cursor=msg_1", "cursor: unknown; use the cursor of the previous page"],
    ["status=held", "status: unknown parameter; did you mean state?"],
  ])("with %s is refused", async (query, error) => {
    expect(await server.ask("GET", `/v2/messages?${query}`)).toMatchObject({ status: 400, body: { error } });
  });

  test("with values of any size returns a page", async () => {
    await publish({ "svc-delay": "3m" });
    for (const query of [
      "dueTo=999999999999999",
      "toDate=999999999999999",
      `sort=due&cursor=999999999999999-msg_${"z".repeat(64)}&order=latestFirst`,
      `cursor=msg_${"z".repeat(64)}&order=latestFirst`,
      "minAttempts=1&count=1",
      "sort=due&order=latestFirst&dueFrom=0",
    ])
      expect([query, (await server.ask("GET", `/v2/messages?${query}`)).status]).toEqual([query, 200]);
    expect((await list("?dueTo=999999999999999")).messages).toHaveLength(1);
  });

  test("is for tokens that may read", async () => {
    const make = async (verb: string) =>
      String(
        (await server.ask("POST", "/v2/tokens", { body: JSON.stringify({ name: verb, verbs: [verb] }) })).body
          .token,
      );
    expect((await server.ask("GET", "/v2/messages", { token: await make("read") })).status).toBe(200);
    for (const verb of ["publish", "manage"])
      expect((await server.ask("GET", "/v2/messages", { token: await make(verb) })).status).toBe(403);
  });
});
