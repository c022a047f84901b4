import { describe, expect, test } from "vitest";
import type { TestServer, Reply } from "../../api/testServer.ts";
import { testTime, createTestServer, otherToken } from "../../api/testServer.ts";

const brands = ["svc", "qstash"] as const;
const basic = (user: string, password = "pass"): string =>
  `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`;
const minute = 60_000;
const day = 24 * 60 * minute;

const statistics = async (
  server: TestServer,
  query = "",
  { account = "acc_1", brand = "svc" } = {},
): Promise<Reply> =>
  server.ask("GET", `/v2/${brand}/stats/${account}${query}`, {
    token: null,
    headers: { authorization: basic(account) },
  });
const publish = (server: TestServer, headers: Record<string, string> = {}, token?: string): Promise<Reply> =>
  server.ask("POST", "/v2/publish/https://e.example/x", {
    body: "hello",
    headers,
    ...(token === undefined ? {} : { token }),
  });
const sum = (points: readonly { y: number }[]): number => points.reduce((total, { y }) => total + y, 0);
const x = (time: number): string =>
  `${new Date(time).toISOString().replace("T", " ").replace("Z", "")} +0000 UTC`;

describe.each(brands)("/v2/%s/stats/{id}", (brand) => {
  test("shows zeros at all points and days for an account without activity", async () => {
    const { status, body } = await statistics(await createTestServer(), "", { brand });
    expect(status).toBe(200);
    // The test starts at 15 January 2027, 08:00 UTC.
    expect(body.days).toHaveLength(31);
    expect([body.days[0], body.days[14], body.days[30]]).toEqual(["Friday", "Friday", "Sunday"]);
    expect(body.daily_requests[0]).toEqual({
      x: "2027-01-01 00:00:00.000 +0000 UTC",
      y: 0,
      workflow_message: 0,
      workflow_run: 0,
    });
    for (const name of ["daily_requests", "daily_billings", "daily_bandwidths"])
      expect(body[name], name).toHaveLength(31);
    for (const name of ["daily_used", "daily_used_workflow", "daily_bandwidth_used"])
      expect(body[name], name).toHaveLength(60);
    for (const name of [`daily_${brand}_messages`, "daily_workflow_messages"]) {
      expect(
        body[name].map(({ id, data_points }: { id: string; data_points: unknown[] }) => [
          id,
          data_points.length,
        ]),
      ).toEqual([
        ["delivered", 60],
        ["failed", 60],
        ["canceled", 60],
      ]);
    }
    expect([body.dlq_message_count, body.total_monthly_billing]).toEqual([0, 0]);
    expect([body.storage_bytes, body.max_storage_bytes]).toEqual([0, 500_000_000_000_000]);
    expect(Object.keys(body)).toHaveLength(13);
  });

  test.each([
    ["1h", 60, 1],
    ["3h", 60, 3],
    ["12h", 60, 12],
    ["1d", 60, 24],
    ["3d", 60, 72],
    ["7d", 60, 168],
    ["30d", 240, 180],
  ])("counts within %s in %i points, %i minutes apart", async (period, points, minutes) => {
    const server = await createTestServer();
    const step = minutes * minute;
    const last = Math.floor(testTime / step) * step;
    // One message before the period, one in its first point, and one in its last.
    for (const time of [last - (points - 1) * step - 1, last - (points - 1) * step, testTime]) {
      server.clock.now = time;
      await publish(server);
    }
    const { body } = await statistics(server, `?period=${period}`, { brand });
    expect(body.daily_used).toHaveLength(points);
    expect(body.daily_used[0]).toEqual({ x: x(last - (points - 1) * step), y: 1 });
    expect(body.daily_used.at(-1)).toEqual({ x: x(last), y: 1 });
    expect(sum(body.daily_used)).toBe(2);
    expect(sum(body.daily_bandwidth_used)).toBe(20);
  });
});

test("a day counts messages, retries, callbacks, outcomes, dead letters and bytes exactly", async () => {
  const server = await createTestServer();
  await publish(server);
  await server.settle(server.delivery(), { status: 200 });
  await publish(server, { "svc-retries": "1" });
  await server.settle(server.delivery(), { status: 500 });
  await publish(server, { "svc-retries": "0" });
  await server.settle(server.delivery(), { status: 500 });
  const { body: waiting } = await publish(server, { "svc-delay": "1d" });
  await server.ask("DELETE", `/v2/messages/${waiting.messageId}`);
  const { body } = await statistics(server);
  expect(body.daily_requests[14]).toEqual({
    x: "2027-01-15 00:00:00.000 +0000 UTC",
    y: 5,
    workflow_message: 0,
    workflow_run: 0,
  });
  expect(body.daily_bandwidths[14].y).toBe(4 * 5 + 3 * 5);
  const ends = body.daily_svc_messages.map(
    ({ id, data_points }: { id: string; data_points: { y: number }[] }) => [id, sum(data_points)],
  );
  expect(ends).toEqual([
    ["delivered", 1],
    ["failed", 1],
    ["canceled", 1],
  ]);
  expect([sum(body.daily_used), sum(body.daily_used_workflow), body.dlq_message_count]).toEqual([5, 0, 1]);
});

test("workflows are counted separately", async () => {
  const server = await createTestServer();
  await server.ask("POST", "/v2/trigger/https://w.example/flow", { body: "{}" });
  await publish(server);
  const { body } = await statistics(server);
  expect(body.daily_requests[14]).toMatchObject({ y: 1, workflow_message: 1, workflow_run: 1 });
  expect([sum(body.daily_used), sum(body.daily_used_workflow)]).toEqual([1, 1]);
});

test("a month is shown until it ends, and the next one begins with zeros", async () => {
  const server = await createTestServer();
  server.clock.now = Date.UTC(2027, 1, 1) - 1;
  await publish(server);
  expect((await statistics(server)).body.daily_requests[30]).toMatchObject({ y: 1 });
  server.clock.now++;
  const { body } = await statistics(server, "?period=30d");
  expect([body.days.length, sum(body.daily_requests), sum(body.daily_used)]).toEqual([28, 0, 1]);
  await publish(server);
  expect((await statistics(server)).body.daily_requests[0]).toMatchObject({
    x: "2027-02-01 00:00:00.000 +0000 UTC",
    y: 1,
  });
});

test("the cost follows from the prices of messages and bytes", async () => {
  const server = await createTestServer({
    prices: { messages: 100_000, workflowMessages: 200_000, gigabyte: 1e9 },
  });
  await publish(server);
  await server.ask("POST", "/v2/trigger/https://w.example/flow", { body: "{}" });
  server.clock.now += day;
  await publish(server, { "svc-delay": "1d" });
  const { body } = await statistics(server);
  const flow = 2 + 2 * (await bytesOf(server));
  expect([body.daily_billings[14].y, body.daily_billings[15].y]).toEqual([1 + 10 + flow, 1 + 5]);
  expect(body.total_monthly_billing).toBe(1 + 10 + flow + 1 + 5);
});

/** Half of the bytes of a run's first message: the payload comes in, and the history with it goes out. */
async function bytesOf(server: TestServer): Promise<number> {
  const rows = await server.store.read.usage("acc_1", "3h", 0);
  const total = rows.reduce((all, { bytesIn, bytesOut }) => all + bytesIn + bytesOut, 0);
  return (total - 15) / 2;
}

test("two accounts are counted separately and cannot see each other's numbers", async () => {
  const server = await createTestServer();
  for (let count = 0; count < 3; count++) await publish(server, {}, otherToken);
  await publish(server);
  expect(sum((await statistics(server)).body.daily_used)).toBe(1);
  expect(sum((await statistics(server, "", { account: "acc_2" })).body.daily_used)).toBe(3);
  const theirs = await server.ask("GET", "/v2/svc/stats/acc_2", {
    token: null,
    headers: { authorization: basic("acc_1") },
  });
  expect(theirs).toMatchObject({ status: 404, body: { code: "not-found" } });
  const none = await server.ask("GET", "/v2/svc/stats/acc_3", {
    token: null,
    headers: { authorization: basic("acc_1") },
  });
  expect(none.body.message).toBe(theirs.body.message.replace("acc_2", "acc_3"));
});

test.each(["2h", "", "1H", "30", "1h,3h", "1h&period=3h", "__proto__", "toString"])(
  "refuses the period %j in the error format of accounts",
  async (period) => {
    const reply = await statistics(await createTestServer(), `?period=${period}`);
    expect(reply).toMatchObject({
      status: 400,
      body: { code: "bad-request", message: expect.stringMatching(/^period: /) },
    });
  },
);

describe("the daily quota", () => {
  const limited = async (soft: number, hard: number): Promise<TestServer> => {
    const server = await createTestServer();
    const limits = { requestsPerDay: soft, requestsPerDayHard: hard };
    await server.store.execute("changeAccount", { account: "acc_1", change: { limits } });
    return server;
  };
  const midnight = String(Date.UTC(2027, 0, 16) / 1000);
  const left = (remaining: number, limit: number) => ({
    "ratelimit-limit": String(limit),
    "ratelimit-remaining": String(remaining),
    "ratelimit-reset": midnight,
  });

  test("is in every response to a publish if it is limited, and in no other response", async () => {
    const server = await limited(10, 10);
    const { headers } = await publish(server);
    expect(headers).toMatchObject(left(9, 10));
    expect(headers).not.toHaveProperty("waypost-warning");
    expect((await publish(server, {}, otherToken)).headers).not.toHaveProperty("ratelimit-limit");
  });

  test("causes a warning above the soft limit", async () => {
    const server = await limited(1, 5);
    await publish(server);
    const { status, headers } = await publish(server);
    expect(status).toBe(200);
    expect(headers).toMatchObject({
      ...left(3, 5),
      "waypost-warning": expect.stringMatching(/^requests: 2 made today; the limit is 1/),
    });
  });

  test("refuses requests above the hard limit until midnight, in the form that clients know", async () => {
    const server = await limited(1, 1);
    await publish(server);
    const refused = {
      status: 429,
      headers: left(0, 1),
      body: {
        error: expect.stringMatching(
          /^requests: 1 made today.*the limit is 1 per day.*--requests-per-day-hard /,
        ),
      },
    };
    expect(await publish(server)).toMatchObject(refused);
    expect(await server.ask("POST", "/v2/enqueue/q/https://e.example", { body: "x" })).toMatchObject(refused);
    const run = { ...refused, body: { error: expect.stringContaining("1 made today") } };
    expect(await server.ask("POST", "/v2/trigger/https://w.example", { body: "x" })).toMatchObject(run);
    expect(
      await server.ask("POST", "/v2/batch/trigger", { body: '[{"destination":"https://w.example"}]' }),
    ).toMatchObject(run);
    expect((await publish(server)).headers).not.toHaveProperty("burst-ratelimit-limit");
    // All other requests are still accepted.
    expect((await server.ask("GET", "/v2/logs")).status).toBe(200);
    server.clock.now = Date.UTC(2027, 0, 16);
    expect((await publish(server)).status).toBe(200);
  });

  test("is also in the response if the token may not publish the last message of a batch", async () => {
    const server = await limited(5, 5);
    const rights = { verbs: ["publish"], destinations: ["https://e.example/*"] };
    const { body } = await server.ask("POST", "/v2/tokens", { body: JSON.stringify(rights) });
    const items = ["https://e.example/a", "https://other.example/"].map((destination) => ({ destination }));
    expect(
      await server.ask("POST", "/v2/batch", { token: body.token, body: JSON.stringify(items) }),
    ).toMatchObject({
      status: 200,
      headers: left(4, 5),
      body: [{ messageId: expect.any(String) }, { error: expect.stringMatching(/^token: /) }],
    });
  });

  test("accepts the messages of a batch that fit, and refuses the batch if none fits", async () => {
    const server = await limited(2, 2);
    const batch = (count: number) =>
      server.ask("POST", "/v2/batch", {
        body: JSON.stringify(Array.from({ length: count }, () => ({ destination: "https://e.example" }))),
      });
    const { status, body, headers } = await batch(3);
    expect([status, headers]).toMatchObject([200, left(0, 2)]);
    expect(body).toMatchObject([
      { messageId: expect.any(String) },
      { messageId: expect.any(String) },
      { error: expect.stringMatching(/^requests: 2/) },
    ]);
    expect(await batch(2)).toMatchObject({
      status: 429,
      headers: left(0, 2),
      body: { error: expect.stringMatching(/^message 1 of 2: requests/) },
    });
  });
});
