import { describe, expect, test } from "vitest";
import { testTime, createTestServer, token } from "../../testServer.ts";
import type { TestServer } from "../../testServer.ts";
import { listen, parseReply, request, send } from "../../wire.ts";

const every5 = "*/5 * * * *";
const read = async ({ ask }: TestServer, id: string) => (await ask("GET", `/v2/schedules/${id}`)).body;

async function fire(server: TestServer): Promise<void> {
  server.clock.now = testTime + 5 * 60_000;
  await server.store.execute("claim", { limit: 10 });
}

describe("a publish with a cron expression", () => {
  test.each(["svc", "upstash"])("creates the same schedule as POST /v2/schedules, with %s", async (brand) => {
    const server = await createTestServer();
    const flow = { [`${brand}-flow-control-key`]: "k", [`${brand}-flow-control-value`]: "parallelism=2" };
    const headers = {
      [`${brand}-cron`]: every5,
      [`${brand}-queue-name`]: "q",
      [`${brand}-forward-a`]: "1",
      ...flow,
      "content-type": "text/plain",
    };
    const made = await Promise.all(
      ["publish", "schedules"].map((way) =>
        server.ask("POST", `/v2/${way}/https://e.example/x?y=1`, { headers, body: "x" }),
      ),
    );
    for (const reply of made)
      expect(reply).toMatchObject({ status: 200, body: { scheduleId: expect.stringMatching(/^scd_/) } });
    const [one, other] = await Promise.all(made.map(({ body }) => read(server, body.scheduleId)));
    expect(one).toEqual({ ...other, scheduleId: one.scheduleId });
    expect(one).toMatchObject({
      cron: every5,
      destination: "https://e.example/x?y=1",
      queueName: "q",
      body: "x",
      parallelism: 2,
      period: 1,
    });
    expect(server.deliveries).toEqual([]);
  });

  test.each([
    ["svc-cron=*/5+*+*+*+*", "svc"],
    ["UPSTASH%2dCR%4fN=*%2F5%20*%20*%20*%20*", "upstash"],
  ])("may have the expression in the query: %s", async (parameter, brand) => {
    const server = await createTestServer();
    const { body } = await server.ask("POST", `/v2/Publish/https://e.example/?x=1&${parameter}&cron=2`);
    expect(await read(server, body.scheduleId)).toMatchObject({
      cron: every5,
      destination: "https://e.example/?x=1&cron=2",
    });
    await fire(server);
    expect(server.delivery().message).toMatchObject({
      brand,
      url: "https://e.example/?x=1&cron=2",
      scheduleId: body.scheduleId,
    });
  });

  test("is recognized on a connection that only publishes", async () => {
    const server = await createTestServer();
    const port = await listen(server);
    const bearer = `Authorization: Bearer ${token}`;
    const post = async (target: string, headers: string[]) =>
      JSON.parse(
        parseReply(
          await send(port, request(`POST /v2/publish/${target} HTTP/1.1`, [bearer, ...headers], "x")),
        ).body,
      );
    const schedule = { scheduleId: expect.stringMatching(/^scd_/) };
    expect(await post("https://e.example/", [])).toMatchObject({ messageId: expect.any(String) });
    expect(await post("https://e.example/", ["uPSTASH-cRON: 0 9 * * *"])).toEqual(schedule);
    expect(await post("https://e.example/?svc-cron=0+9+*+*+*", [])).toEqual(schedule);
    expect(await post("https://e.example/cron?cron=%25", ["Upstash-Norc: x"])).toMatchObject({
      messageId: expect.any(String),
    });
  });

  test("is recorded in the audit log, and requires the rights for a schedule", async () => {
    const server = await createTestServer();
    const headers = { "svc-cron": every5, "svc-schedule-id": "s" };
    await server.ask("POST", "/v2/publish/https://e.example", { headers });
    expect([...server.memory.tables.audit.values()].map(({ what }) => what)).toEqual(["schedule.create"]);
    const asked = { name: "p", verbs: ["publish"] };
    const { body } = await server.ask("POST", "/v2/tokens", { body: JSON.stringify(asked) });
    expect(
      (await server.ask("POST", "/v2/publish/https://e.example", { headers, token: body.token })).status,
    ).toBe(403);
    await server.store.execute("changeAccount", { account: "acc_1", change: { state: "passive" } });
    expect(
      (await server.ask("POST", "/v2/publish/https://e.example", { headers: { "svc-cron": every5 } })).status,
    ).toBe(403);
  });

  test.each([
    ["svc-cron=x", {}, /^svc-cron: /],
    ["svc-cron=%zz", {}, /^svc-cron: the percent-encoding is malformed/],
    ["", { "svc-cron": "* * * *" }, /^svc-cron: /],
    ["", { "svc-cron": every5, "svc-not-before": "1900000000" }, /^not-before: not valid for a schedule/],
    [
      "",
      { "svc-cron": every5, "svc-workflow-runid": "r", "svc-workflow-init": "true" },
      /only valid for messages of a workflow run/,
    ],
  ])("is refused if its settings are not valid for a schedule: ?%s %j", async (query, headers, error) => {
    const server = await createTestServer();
    const reply = await server.ask("POST", `/v2/publish/https://e.example/?${query}`, { headers });
    expect(reply).toMatchObject({ status: 400, body: { error: expect.stringMatching(error) } });
    expect(server.memory.tables.schedules.size).toBe(0);
  });

  test("is refused through a queue and in a batch", async () => {
    const server = await createTestServer();
    const headers = { "svc-cron": every5 };
    const error = expect.stringContaining(
      "svc-cron: only valid for schedules; use POST /v2/schedules/{destination}",
    );
    expect(await server.ask("POST", "/v2/enqueue/q/https://e.example", { headers })).toMatchObject({
      status: 400,
      body: { error },
    });
    const body = JSON.stringify([{ destination: "https://e.example", headers }]);
    expect(await server.ask("POST", "/v2/batch", { body })).toMatchObject({ status: 400, body: { error } });
  });
});

describe("a schedule to a URL group", () => {
  test.each(["schedules", "publish"])(
    "sends the query with which it was created to every endpoint, by /v2/%s",
    async (way) => {
      const server = await createTestServer();
      const add = (url: string) =>
        server.ask("POST", "/v2/topics/orders/endpoints", { body: JSON.stringify({ endpoints: [{ url }] }) });
      await add("https://a.example/?a=1");
      const { body } = await server.ask("POST", `/v2/${way}/orders?x=1&svc-retries=1`, {
        headers: { "svc-cron": every5 },
      });
      await add("https://b.example/");
      await add(`https://c.example/${"x".repeat(16_360)}`);
      expect(await read(server, body.scheduleId)).toMatchObject({ destination: "orders?x=1", retries: 1 });
      await fire(server);
      const urls = server.deliveries.map(({ message }) => message.url);
      expect(urls.slice(0, 2)).toEqual(["https://a.example/?a=1&x=1", "https://b.example/?x=1"]);
    },
  );

  test("has the brand of the group's default headers if its request shows none", async () => {
    const server = await createTestServer({ brand: "svc" });
    await server.ask("POST", "/v2/topics/orders/endpoints", {
      body: JSON.stringify({ endpoints: [{ url: "https://a.example" }] }),
    });
    await server.ask("PATCH", "/v2/topics/orders", {
      body: JSON.stringify({ headers: { "Upstash-Retries": "1" } }),
    });
    await server.ask("POST", "/v2/schedules/orders", { headers: { "upstash-cron": every5 } });
    await server.ask("POST", "/v2/schedules/orders", { headers: { "svc-cron": every5 } });
    await fire(server);
    expect(server.deliveries.map(({ message }) => message.brand).toSorted()).toEqual(["svc", "upstash"]);
  });
});
