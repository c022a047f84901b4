import { describe, expect, test } from "vitest";
import { testTime, createTestServer, otherToken } from "../../testServer.ts";
import type { AccountChange } from "../../../../src/engine/core/model/account.ts";
import { toMonthRange } from "../../../../src/engine/core/accounts/statistics.ts";
import { come, create, makeGroup, minute, post, read } from "./scheduleRequests.ts";

describe("a schedule can be created", () => {
  test("with settings in the query, which are removed from the destination", async () => {
    const server = await createTestServer();
    const target = "https://e.example/a/pause?x=1&svc-cron=0+9+*+*+*&svc-schedule-id=q";
    expect((await server.ask("POST", `/v2/schedules/${target}`)).body).toEqual({ scheduleId: "q" });
    expect(await read(server, "q")).toMatchObject({
      destination: "https://e.example/a/pause?x=1",
      cron: "0 9 * * *",
    });
  });

  test.each([
    "https://e.example/pause",
    "https://pause/resume",
    "https:/pause/resume",
    "https%3A%2F%2Fpause%2Fresume",
    "http://e.example/v2/schedules/x/pause",
  ])("for %s, which is not a request to pause another schedule", async (destination) => {
    const server = await createTestServer();
    const id = await create(server, destination);
    expect((await read(server, id)).destination).toMatch(/^https?:\/\//);
  });

  test("with a body that is not UTF-8", async () => {
    const server = await createTestServer();
    const id = await create(server, "https://e.example", { body: Buffer.from([0xff, 0]) });
    const shown = await read(server, id);
    expect(shown).toMatchObject({ bodyBase64: "/wA=" });
    expect(shown).not.toHaveProperty("body");
    await come(server, testTime + 5 * minute);
    expect(Buffer.from(server.delivery().message.body)).toEqual(Buffer.from([0xff, 0]));
  });

  test("with a body of at most 10 MiB", async () => {
    const server = await createTestServer();
    const most = 10 * 1024 * 1024;
    const id = await create(server, "https://e.example", { body: Buffer.alloc(most, "x") });
    expect((await read(server, id)).body).toHaveLength(most);
    await come(server, testTime + 5 * minute);
    expect(server.delivery().message.body).toHaveLength(most);
    const reply = await post(server, "https://e.example", { body: Buffer.alloc(most + 1) });
    expect(reply).toMatchObject({ status: 413, body: { error: expect.stringContaining("10485760") } });
  });

  test("for a URL group, which may change or be deleted later", async () => {
    const server = await createTestServer();
    await makeGroup(server, ["https://one.example/", "https://two.example/"]);
    await server.store.execute("setGroupHeaders", {
      account: "acc_1",
      name: "shops",
      headers: [["Svc-Retries", "9"]],
    });
    const id = await create(server, "shops", { body: "hello" });
    expect(await read(server, id)).toMatchObject({ destination: "shops", retries: 9, body: "hello" });
    await come(server, testTime + 5 * minute);
    const deliveries = server.deliveries.splice(0);
    for (const delivery of deliveries) await server.settle(delivery, { status: 200 });
    const messages = deliveries.map(({ message }) => message);
    expect(messages.map(({ url, retries }) => [url, retries])).toEqual([
      ["https://one.example/", 9],
      ["https://two.example/", 9],
    ]);
    await server.store.execute("deleteGroup", { account: "acc_1", name: "shops" });
    await come(server, testTime + 10 * minute);
    expect(await read(server, id)).toMatchObject({
      lastScheduleTime: testTime + 10 * minute,
      nextScheduleTime: testTime + 15 * minute,
      lastScheduleError: "nothing was published: there is no URL group shops with endpoints",
    });
    await makeGroup(server, ["https://three.example/"]);
    await come(server, testTime + 15 * minute);
    expect(server.delivery().message.url).toBe("https://three.example/");
    expect(await read(server, id)).not.toHaveProperty("lastScheduleError");
  });

  test("and skips its times while its account is disabled or has spent its budget", async () => {
    const server = await createTestServer();
    const id = await create(server, "https://e.example", {});
    const change = (given: AccountChange) =>
      server.store.execute("changeAccount", { account: "acc_1", change: given });
    await change({ state: "passive" });
    await come(server, testTime + 5 * minute);
    await change({ state: "active", budget: 20 });
    expect(await read(server, id)).toMatchObject({
      lastScheduleTime: testTime + 5 * minute,
      nextScheduleTime: testTime + 10 * minute,
      lastScheduleError: "nothing was published: the account was disabled",
    });
    await server.store.execute("recordSpending", {
      account: "acc_1",
      dollars: 20,
      month: toMonthRange(testTime).from,
    });
    await come(server, testTime + 10 * minute);
    expect(server.deliveries).toEqual([]);
    expect(await read(server, id)).toMatchObject({
      lastScheduleTime: testTime + 10 * minute,
      nextScheduleTime: testTime + 15 * minute,
      lastScheduleError: expect.stringMatching(
        /^nothing was published: budget: 20\.00 dollars spent this month; the limit is 20; PATCH /,
      ),
    });
    await change({ budget: 0 });
    await come(server, testTime + 15 * minute);
    expect(server.delivery().message.scheduleId).toBe(id);
    expect(await read(server, id)).not.toHaveProperty("lastScheduleError");
  });

  test("once with deduplication, and still fires every time", async () => {
    const server = await createTestServer();
    const headers = { "svc-deduplication-id": "d" };
    const id = await create(server, "https://e.example", { headers });
    const again = await post(server, "https://e.example", { headers });
    expect(again).toMatchObject({ status: 202, body: { scheduleId: id, deduplicated: true } });
    for (const time of [5, 10]) {
      await come(server, testTime + time * minute);
      const delivery = server.delivery();
      expect(delivery.message).toMatchObject({ scheduleId: id, deduplication: null });
      await server.settle(delivery, { status: 200 });
    }
  });
});

describe("a schedule cannot be created", () => {
  test.each([
    ["without a cron", { "svc-cron": "" }, 400, /^svc-cron: /],
    [
      "with four fields",
      { "svc-cron": "* * * *" },
      400,
      /^svc-cron: "\* \* \* \*" has 4 fields; expected five fields: minute hour day month weekday/,
    ],
    [
      "with an invalid minute",
      { "svc-cron": "60 * * * *" },
      400,
      /^svc-cron: the minute must be 0 to 59, not "60"$/,
    ],
    ["with seconds", { "svc-cron": "0 0 9 * * *" }, 400, /^svc-cron: "0 0 9 \* \* \*" has 6 fields/],
    [
      "with an unknown time zone",
      { "svc-cron": "CRON_TZ=Nowhere/City 0 9 * * *" },
      400,
      /^svc-cron: unknown time zone "Nowhere\/City"/,
    ],
    [
      "with a day that never comes",
      { "svc-cron": "0 0 31 2 *" },
      400,
      /^svc-cron: "0 0 31 2 \*" never fires/,
    ],
    [
      "with an expression that is too long",
      { "svc-cron": "* ".repeat(2000) },
      400,
      /^svc-cron: has \d+ characters; the limit is 256$/,
    ],
    [
      "with a slash in its id",
      { "svc-schedule-id": "a/b" },
      400,
      /^svc-schedule-id: "a\/b" is not a valid name/,
    ],
    [
      "with an id that a path cannot contain",
      { "svc-schedule-id": ".." },
      400,
      /^svc-schedule-id: "\.\." is not a valid name/,
    ],
    [
      "with a space in its id",
      { "svc-schedule-id": "a b" },
      400,
      /^svc-schedule-id: "a b" is not a valid name/,
    ],
    [
      "with a slash in its queue",
      { "svc-queue-name": "a/b" },
      400,
      /^svc-queue-name: "a\/b" is not a valid name/,
    ],
    ["with a start time", { "svc-not-before": "1900000000" }, 400, /^not-before: .*; use delay/],
    ["with a delay beyond the limit", { "svc-delay": "400d" }, 412, /^delay: /],
    ["with more retries than the limit", { "svc-retries": "1000000" }, 412, /^retries: /],
  ])("%s", async (...[, headers, status, error]: [string, Record<string, string>, number, RegExp]) => {
    const server = await createTestServer();
    expect(await post(server, "https://e.example", { headers })).toMatchObject({
      status,
      body: { error: expect.stringMatching(error) },
    });
    expect((await server.ask("GET", "/v2/schedules")).body).toEqual([]);
  });

  test("without Svc-Cron", async () => {
    const { ask } = await createTestServer();
    const error = 'cron: missing; give Svc-Cron, for example "0 9 * * 1-5"';
    expect(await ask("POST", "/v2/schedules/https://e.example")).toMatchObject({
      status: 400,
      body: { error },
    });
  });

  test.each([
    ["", 400],
    ["nowhere", 404],
    ["ftp://e.example", 400],
    ["a/b/pause", 400],
    ["https://", 400],
  ])("for the destination %j", async (destination, status) => {
    expect(await post(await createTestServer(), destination)).toMatchObject({
      status,
      body: { error: expect.stringMatching(/^destination: /) },
    });
  });

  test("for the URL group of another account", async () => {
    const server = await createTestServer();
    await makeGroup(server, ["https://one.example/"]);
    expect(await post(server, "shops", { token: otherToken })).toMatchObject({ status: 404 });
  });
});
