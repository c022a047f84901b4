import { describe, expect, test } from "vitest";
import { testTime, createTestServer, token } from "../../testServer.ts";
import { listen, parseReply, request, send } from "../../wire.ts";
import { codeFields } from "../../errorFields.ts";

const url = "https://e.example/hook";

/** Enqueues over a socket, which sends the target byte for byte. */
async function enqueue(target: string, method = "POST") {
  const server = await createTestServer();
  const headers = [`Authorization: Bearer ${token}`];
  const reply = parseReply(
    await send(await listen(server), request(`${method} /v2/enqueue/${target} HTTP/1.1`, headers, "b")),
  );
  return {
    status: reply.status,
    json: JSON.parse(reply.body),
    message: server.deliveries[0]?.message,
    server,
  };
}

describe("an enqueue", () => {
  test("returns the id of a message that shows its queue", async () => {
    const server = await createTestServer();
    const reply = await server.ask("POST", `/v2/enqueue/orders/${url}`, {
      headers: { "upstash-retries": "1" },
      body: "x",
    });
    const { message } = server.delivery();
    expect(reply).toMatchObject({ status: 200, body: { messageId: message.id } });
    expect(message).toMatchObject({ url, queue: "orders", retries: 1, brand: "upstash" });
    expect((await server.ask("GET", `/v2/messages/${message.id}`)).body).toMatchObject({
      queueName: "orders",
      body: "x",
    });
    const { events } = (await server.ask("GET", `/v2/events?messageId=${message.id}`)).body;
    expect(events.map(({ queueName }: { queueName?: string }) => queueName)).toEqual(["orders", "orders"]);
  });

  test("creates a queue that sends one message at a time, also to a URL group", async () => {
    const server = await createTestServer();
    const endpoints = [{ url: "https://a.example" }, { url: "https://b.example" }];
    await server.ask("POST", "/v2/topics/group/endpoints", { body: JSON.stringify({ endpoints }) });
    const reply = await server.ask("POST", "/v2/enqueue/orders/group", { body: "x" });
    expect(reply.body).toMatchObject([{ url: "https://a.example" }, { url: "https://b.example" }]);
    await server.ask("POST", `/v2/enqueue/orders/${url}`);
    const first = server.delivery();
    expect(first.message).toMatchObject({ queue: "orders", group: "group", url: "https://a.example" });
    await server.settle(first, { status: 200 });
    await server.store.execute("claim", { limit: 10 });
    expect(server.delivery().message).toMatchObject({ group: "group", url: "https://b.example" });
  });

  test("with a delay takes its place in the queue when the delay is over", async () => {
    const server = await createTestServer();
    await server.ask("POST", `/v2/enqueue/orders/${url}/late`, { headers: { "svc-delay": "10s" } });
    await server.ask("POST", `/v2/enqueue/orders/${url}/early`);
    const early = server.delivery();
    expect(early.message).toMatchObject({ url: `${url}/early`, notBefore: testTime });
    await server.settle(early, { status: 200 });
    await server.store.execute("claim", { limit: 10 });
    expect(server.deliveries).toEqual([]);
    server.clock.now += 10_000;
    await server.store.execute("claim", { limit: 10 });
    expect(server.delivery().message).toMatchObject({ url: `${url}/late`, notBefore: testTime + 10_000 });
  });
});

describe("the path of an enqueue", () => {
  test.each([
    ["q/https://e.example/a//b/../c?x=1&&y=%zz", "q", "https://e.example/a//b/../c?x=1&&y=%zz"],
    ["q/https://e.example/%zz/%2F%00", "q", "https://e.example/%zz/%2F%00"],
    ["a%2Db/https:/e.example", "a-b", "https://e.example"],
    ["q/https%3A%2F%2Fe.example%2Fa", "q", "https://e.example/a"],
    ["__proto__/https://e.example", "__proto__", "https://e.example"],
    ["pause/https://e.example/v2/enqueue/x/y", "pause", "https://e.example/v2/enqueue/x/y"],
  ])("%s contains the queue and the destination", async (target, queue, destination) => {
    const { status, message } = await enqueue(target);
    expect(status).toBe(200);
    expect(message).toMatchObject({ queue, url: destination });
  });

  test.each([
    ["q", 400, "destination: a non-empty destination must be provided; use a URL or a URL group"],
    ["q/", 400, "destination: a non-empty destination must be provided; use a URL or a URL group"],
    ["q/group", 404, "destination: topic group not found; use an existing URL group or a URL"],
    ["q/https://", 400, 'destination: "https://" is not a valid URL'],
    [
      "a%20b/https://e.example",
      400,
      'queue: "a b" is not a valid name; use at most 512 of A-Z, a-z, 0-9, ".", "_" and "-"',
    ],
    [
      "a%2Fb/https://e.example",
      400,
      'queue: "a/b" is not a valid name; use at most 512 of A-Z, a-z, 0-9, ".", "_" and "-"',
    ],
    [
      "../https://e.example",
      400,
      'queue: ".." is not a valid name; use at most 512 of A-Z, a-z, 0-9, ".", "_" and "-"',
    ],
    ["%zz/https://e.example", 400, "path: the percent-encoding is malformed or not UTF-8"],
  ])("%s is refused with %i", async (target, status, error) => {
    const answer = await enqueue(target);
    const code = status === 404 ? "not-found" : "invalid";
    expect({ status: answer.status, json: answer.json }).toEqual({
      status,
      json: { error, ...codeFields(code) },
    });
    expect(answer.server.deliveries).toEqual([]);
  });

  test("has a queue name of at most 512 characters", async () => {
    expect((await enqueue(`${"q".repeat(512)}/${url}`)).message?.queue).toHaveLength(512);
    expect((await enqueue(`${"q".repeat(513)}/${url}`)).json.error).toMatch(
      /^queue: "q{200}[^q]+" is not a valid name/,
    );
  });

  test("accepts only POST, which the refusal names", async () => {
    expect(await enqueue(`q/${url}`, "GET")).toMatchObject({
      status: 405,
      json: { error: "method: GET is not allowed here; use POST" },
    });
  });

  test("is logged without the path and the query of the destination", async () => {
    const { server } = await enqueue(`q/https://e.example/secret?svc_token=${encodeURIComponent(token)}`);
    expect(server.lines).toMatchObject([{ path: "/v2/enqueue/q/https://e.example", status: 200 }]);
  });
});

describe("the queue, the key and the limits of a message", () => {
  const headers = {
    "svc-flow-control-key": "shop 7",
    "svc-flow-control-value": "parallelism=2, rate=5, period=1d",
    "svc-callback": "https://c.example",
    "svc-callback-flow-control-key": "c",
    "svc-callback-flow-control-value": "rate=9",
  };

  test("are shown on message, dead letter and log, and stay when it is retried", async () => {
    const server = await createTestServer();
    const { ask } = server;
    await ask("POST", "/v2/topics/group/endpoints", {
      body: JSON.stringify({ endpoints: [{ url, name: "one" }] }),
    });
    await ask("POST", "/v2/enqueue/orders/group", { headers: { ...headers, "svc-retries": "0" }, body: "x" });
    const delivery = server.delivery();
    const came = { topicName: "group", endpointName: "one", queueName: "orders", url };
    const shown = { ...came, flowControlKey: "shop 7", parallelism: 2, rate: 5, period: 86_400 };
    expect((await ask("GET", `/v2/messages/${delivery.message.id}`)).body).toMatchObject(shown);
    await server.settle(delivery, { status: 500 });
    server.deliveries.splice(0);
    const [entry] = (await ask("GET", "/v2/dlq")).body.messages;
    expect(entry).toMatchObject(shown);
    const { events } = (await ask("GET", `/v2/events?messageId=${delivery.message.id}`)).body;
    expect(events.length).toBeGreaterThan(2);
    for (const event of events) {
      expect(event).toMatchObject(came);
      expect(event).not.toHaveProperty("flowControlKey");
    }
    const retried = await ask("POST", `/v2/dlq/retry/${entry.dlqId}`);
    expect((await ask("GET", `/v2/messages/${retried.body.messageId}`)).body).toMatchObject(shown);
  });

  test.each([
    ["parallelism=3", { parallelism: 3, period: 1 }],
    ["rate=5", { rate: 5, period: 1 }],
    ["rate=5,period=90", { rate: 5, period: 90 }],
  ])("are shown as they apply: %s", async (value, limits) => {
    const { ask } = await createTestServer();
    const reply = await ask("POST", `/v2/publish/${url}`, {
      headers: { "svc-flow-control-key": "k", "svc-flow-control-value": value },
    });
    const { flowControlKey, parallelism, rate, period, ...others } = (
      await ask("GET", `/v2/messages/${reply.body.messageId}`)
    ).body;
    expect({ flowControlKey, parallelism, rate, period }).toEqual({
      flowControlKey: "k",
      parallelism: undefined,
      rate: undefined,
      ...limits,
    });
    for (const name of ["topicName", "endpointName", "queueName", "scheduleId"])
      expect(others).not.toHaveProperty(name);
  });

  test("are not shown of a callback that holds the queue slot of its message", async () => {
    const server = await createTestServer();
    await server.ask("POST", `/v2/enqueue/orders/${url}`, { headers });
    await server.settle(server.delivery(), { status: 200 });
    await server.store.execute("claim", { limit: 10 });
    const { message } = server.delivery();
    expect(message).toMatchObject({ url: "https://c.example", queue: null, reportsOn: { kind: "callback" } });
    expect((await server.ask("GET", `/v2/messages/${message.id}`)).body).not.toHaveProperty("queueName");
  });
});
