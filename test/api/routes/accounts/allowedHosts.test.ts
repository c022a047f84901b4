import { describe, expect, test } from "vitest";
import { createTestServer, operatorPassword, type TestServer } from "../../testServer.ts";
import { failMessage, listDeadLetters } from "../deadLetters/deadLetters.ts";
import { start, step } from "../workflows/workflow.ts";
import { formatBasic } from "./possessions.ts";

const good = "https://good.example/in";
const evil = "https://evil.example/in";

/** Sets the hosts of the account as the operator does. */
async function allow({ ask }: TestServer, allowedHosts: unknown) {
  const authorization = formatBasic("operator", operatorPassword);
  const body = JSON.stringify({ allowedHosts });
  return ask("PATCH", "/v2/admin/accounts/acc_1", { token: null, headers: { authorization }, body });
}

async function createLimitedServer(): Promise<TestServer> {
  const server = await createTestServer();
  expect((await allow(server, ["good.example"])).body.allowedHosts).toEqual(["good.example"]);
  return server;
}

const json = (content: unknown) => ({ body: JSON.stringify(content) });
type Ask = Parameters<TestServer["ask"]>;

/** Every way to give the server a URL, with `url` as that URL. */
const ways: [name: string, (url: string) => Ask][] = [
  ["publish", (url) => ["POST", `/v2/publish/${url}`]],
  ["enqueue", (url) => ["POST", `/v2/enqueue/orders/${url}`]],
  ["callback", (url) => ["POST", `/v2/publish/${good}`, { headers: { "svc-callback": url } }]],
  [
    "failure callback",
    (url) => ["POST", `/v2/publish/${good}`, { headers: { "svc-failure-callback": url } }],
  ],
  [
    "callback of a callback",
    (url) => [
      "POST",
      `/v2/publish/${good}`,
      { headers: { "svc-callback": good, "svc-callback-failure-callback": url } },
    ],
  ],
  ["schedule", (url) => ["POST", `/v2/schedules/${url}`, { headers: { "svc-cron": "* * * * *" } }]],
  [
    "callback of a schedule",
    (url) => ["POST", `/v2/schedules/${good}`, { headers: { "svc-cron": "* * * * *", "svc-callback": url } }],
  ],
  ["endpoint of a group", (url) => ["POST", "/v2/topics/g/endpoints", json({ endpoints: [{ url }] })]],
  ["source", (url) => ["POST", "/v2/sources", json({ name: "s", destination: url })]],
  ["alerts", (url) => ["PUT", "/v2/alerts", json({ url })]],
  ["start of a run", (url) => ["POST", `/v2/trigger/${url}`, json({ any: 1 })]],
];

describe.each(ways)("%s", (_name, toRequest) => {
  test("accepts an allowed host, and refuses any other with the reason", async () => {
    const server = await createLimitedServer();
    expect((await server.ask(...toRequest(good))).status).toBeLessThan(300);
    const { status, body } = await server.ask(...toRequest(evil));
    expect({ status, error: String(body.error ?? body.message) }).toEqual({
      status: 403,
      error: expect.stringContaining(
        "the host evil.example is not allowed for this account; use one of good.example",
      ),
    });
    await allow(server, null);
    expect((await server.ask(...toRequest(evil))).status).toBeLessThan(300);
  });
});

test("a batch refuses the items of other hosts alone", async () => {
  const server = await createLimitedServer();
  const { body } = await server.ask(
    "POST",
    "/v2/batch",
    json([{ destination: evil }, { destination: good }]),
  );
  expect(body).toMatchObject([
    { error: expect.stringContaining("the host evil.example is not allowed") },
    { messageId: expect.any(String) },
  ]);
  expect(server.deliveries.map(({ message }) => message.url)).toEqual([good]);
});

test("a group with a forbidden endpoint gets nothing, and the endpoint is not named", async () => {
  const server = await createTestServer();
  await server.ask("POST", "/v2/topics/g/endpoints", json({ endpoints: [{ url: good }, { url: evil }] }));
  await allow(server, ["good.example"]);
  const { status, body } = await server.ask("POST", "/v2/publish/g");
  expect(status).toBe(403);
  expect(String(body.error)).toContain("the host of an endpoint of the URL group g is not allowed");
  expect(server.deliveries).toEqual([]);
});

test("a message that was accepted before fails for good when it is due, with the reason", async () => {
  const server = await createTestServer();
  await server.ask("POST", `/v2/publish/${evil}`, { headers: { "svc-delay": "10s" } });
  await server.ask("POST", `/v2/publish/${good}`, { headers: { "svc-delay": "10s" } });
  await allow(server, ["good.example"]);
  server.clock.now += 10_000;
  await server.store.execute("claim", { limit: 10 });
  const unsendable = new Map(
    server.deliveries.map((delivery) => [delivery.message.url, delivery.unsendable]),
  );
  expect(unsendable).toEqual(
    new Map([
      [evil, "the host evil.example is not allowed for this account"],
      [good, undefined],
    ]),
  );
});

test("a retry or a replay of a dead letter sends nothing to another host", async () => {
  const server = await createTestServer();
  await failMessage(server, evil, {});
  await failMessage(server, good, {});
  await allow(server, ["good.example"]);
  const { messages } = await listDeadLetters(server);
  const idOf = (url: string) => messages.find((one) => one.url === url)?.dlqId ?? "";
  const refused = [
    await server.ask("POST", `/v2/dlq/retry/${idOf(evil)}`),
    await server.ask("POST", `/v2/dlq/retry/${idOf(good)}`, { headers: { "svc-callback": evil } }),
    await server.ask("POST", `/v2/dlq/${idOf(good)}/replay`, json({ url: evil })),
  ];
  for (const { status, body } of refused)
    expect({ status, text: JSON.stringify(body) }).toEqual({
      status: 403,
      text: expect.stringContaining("the host evil.example is not allowed"),
    });
  expect((await server.ask("POST", `/v2/dlq/${idOf(evil)}/replay`, json({ url: good }))).status).toBeLessThan(
    300,
  );
});

test("a step of a run for another host is refused for good", async () => {
  const server = await createTestServer();
  await start(server, "run_1", { url: good, post: undefined } as never);
  await allow(server, ["good.example"]);
  const refused = step(server, "run_1", { message: { url: evil } });
  await expect(refused).rejects.toThrow("the host evil.example is not allowed");
});

test("a list that is not one is refused", async () => {
  const server = await createTestServer();
  for (const bad of [[], ["https://good.example"], "good.example", [1]]) {
    const { status, body } = await allow(server, bad);
    expect({ status, error: JSON.stringify(body) }).toEqual({
      status: 400,
      error: expect.stringContaining("allowedHosts"),
    });
  }
});
