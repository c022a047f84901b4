import { beforeEach, describe, expect, test } from "vitest";
import { createTestServer, otherToken, testTime } from "../../testServer.ts";
import type { TestServer } from "../../testServer.ts";

let server: TestServer;
beforeEach(async () => {
  server = await createTestServer();
});

const url = "https://e.example/x";
async function post(path: string, headers: Record<string, string> = {}): Promise<string> {
  const { status, body } = await server.ask("POST", path, { headers });
  expect(status, JSON.stringify(body)).toBe(200);
  return String(body.messageId);
}
const get = async (path: string, token?: string) =>
  server.ask("GET", path, token === undefined ? {} : { token });

describe("the holders of a queue", () => {
  test("are named, with what they do, and who waits is counted", async () => {
    const first = await post(`/v2/enqueue/q/${url}`, { "svc-callback": "https://back.example/" });
    await post(`/v2/enqueue/q/${url}`);
    const holder = { messageId: first, url, createdAt: testTime, attempts: 0 };
    expect(await get("/v2/queues/q/holders")).toMatchObject({ status: 200 });
    expect((await get("/v2/queues/q/holders")).body).toEqual({
      ...{ used: 1, limit: 1, waiting: 1, paused: false },
      holders: [
        { ...holder, text: expect.stringMatching(`^message ${first} \\(being sent by node nod_\\w+\\)$`) },
      ],
    });
    await server.settle(server.delivery(), { status: 200 });
    const callback = server.delivery().message.id;
    expect((await get("/v2/queues/q/holders")).body.holders).toEqual([
      {
        ...holder,
        callbackId: callback,
        url: "https://back.example/",
        text: expect.stringContaining(`its callback ${callback}: being sent`),
      },
    ]);
  });

  test("come in pages", async () => {
    await server.ask("POST", "/v2/queues", { body: JSON.stringify({ queueName: "q", parallelism: 3 }) });
    const ids = [];
    for (let index = 0; index < 3; index++) ids.push(await post(`/v2/enqueue/q/${url}`));
    const { body: first } = await get("/v2/queues/q/holders?count=2");
    const { body: second } = await get(`/v2/queues/q/holders?count=2&cursor=${first.cursor}`);
    const shown = [...first.holders, ...second.holders].map(
      ({ messageId }: { messageId: string }) => messageId,
    );
    expect(shown).toEqual(ids);
    expect(second).not.toHaveProperty("cursor");
  });
});

test.each(["svc", "upstash"])(
  "the holders of a key are named, with settings of the brand %s",
  async (brand) => {
    const headers = {
      [`${brand}-flow-control-key`]: "k/1",
      [`${brand}-flow-control-value`]: "parallelism=2",
    };
    const ids = [await post(`/v2/publish/${url}`, headers), await post(`/v2/publish/${url}`, headers)];
    await post(`/v2/publish/${url}`, headers);
    const { body } = await get("/v2/flowControl/k%2F1/holders");
    expect(body).toMatchObject({ used: 2, limit: 2, waiting: 1, paused: false });
    expect(body.holders.map(({ messageId }: { messageId: string }) => messageId)).toEqual(ids);
    expect(body.holders[0].text).toMatch(/being sent by node/);
  },
);

test("a key without a parallelism has no limit", async () => {
  const headers = { "svc-flow-control-key": "k", "svc-flow-control-value": "rate=5" };
  await post(`/v2/publish/${url}`, headers);
  const { body } = await get("/v2/flowControl/k/holders");
  expect(body).toMatchObject({ used: 1, holders: [{}] });
  expect(body).not.toHaveProperty("limit");
});

describe("a request for holders is refused", () => {
  test.each([
    ["/v2/queues/none/holders", 404, "queue: "],
    ["/v2/queues/a%2Fb/holders", 400, "queue: "],
    ["/v2/flowControl/none/holders", 404, "flowControlKey: "],
    ["/v2/flowControl/%00/holders", 404, "flowControlKey: "],
    ["/v2/queues/q/holders?cursor=..%2F", 400, "cursor: "],
    [`/v2/queues/q/holders?cursor=${"x".repeat(3_000)}`, 400, "cursor: "],
    ["/v2/queues/q/holders?count=0", 400, "count: "],
    ["/v2/queues/q/holders?state=held", 400, "state: "],
  ])("%s", async (path, status, error) => {
    await post(`/v2/enqueue/q/${url}`);
    expect(await get(path)).toMatchObject({ status, body: { error: expect.stringContaining(error) } });
  });

  test("for a queue or key of another account", async () => {
    await post(`/v2/enqueue/q/${url}`, {
      "svc-flow-control-key": "k",
      "svc-flow-control-value": "parallelism=2",
    });
    expect((await get("/v2/queues/q/holders", otherToken)).status).toBe(404);
    expect((await get("/v2/flowControl/k/holders", otherToken)).status).toBe(404);
    expect((await get("/v2/flowControl/k/holders")).status).toBe(200);
  });
});
