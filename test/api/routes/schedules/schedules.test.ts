import { hash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { testTime, createTestServer, otherToken } from "../../testServer.ts";
import type { TestServer } from "../../testServer.ts";
import { come, create, makeGroup, minute, read } from "./scheduleRequests.ts";

describe.each(["svc", "upstash"])("a schedule created with headers of %s", (brand) => {
  const branded = (headers: Record<string, string>) =>
    Object.fromEntries(Object.entries(headers).map(([name, value]) => [`${brand}-${name}`, value]));
  const createOn =
    ({ ask }: TestServer) =>
    (destination: string, headers: Record<string, string>, body = "") =>
      ask("POST", `/v2/schedules/${destination}`, {
        headers: { ...branded(headers), "content-type": "application/json" },
        body,
      });

  test("is shown with all of its settings", async () => {
    const server = await createTestServer();
    const reply = await createOn(server)(
      "https://e.example/x?y",
      {
        cron: "*/10 * * * * ",
        "schedule-id": "my.report_1-x",
        "queue-name": "reports",
        method: "PUT",
        delay: "1m30s",
        retries: "5",
        "retry-delay": "retried * 1000",
        timeout: "20s",
        label: "a,b",
        callback: "https://c.example/%zz",
        "failure-callback": "https://f.example",
        "forward-test-header": "test-value",
        "forward-bypass-tunnel-reminder": "client-test",
        "flow-control-key": "k",
        "flow-control-value": "parallelism=2, rate=3, period=1m",
        "telemetry-sdk": "x",
      },
      "ü",
    );
    expect(reply).toMatchObject({ status: 200, body: { scheduleId: "my.report_1-x" } });
    expect(await read(server, "my.report_1-x")).toEqual({
      scheduleId: "my.report_1-x",
      cron: "*/10 * * * *",
      createdAt: testTime,
      destination: "https://e.example/x?y",
      method: "PUT",
      body: "ü",
      header: {
        "Bypass-Tunnel-Reminder": ["client-test"],
        "Content-Type": ["application/json"],
        "Test-Header": ["test-value"],
      },
      retries: 5,
      retryDelayExpression: "retried * 1000",
      delay: 90,
      callback: "https://c.example/%zz",
      failureCallback: "https://f.example",
      queueName: "reports",
      flowControlKey: "k",
      parallelism: 2,
      rate: 3,
      period: 60,
      callerIp: "127.0.0.1",
      callerIP: "127.0.0.1",
      label: "a",
      labels: ["a", "b"],
      isPaused: false,
      nextScheduleTime: testTime + 10 * minute,
      settings: {
        "Svc-Cron": "*/10 * * * *",
        "Svc-Queue-Name": "reports",
        "Svc-Method": "PUT",
        "Svc-Delay": "1m30s",
        "Svc-Retries": "5",
        "Svc-Retry-Delay": "retried * 1000",
        "Svc-Timeout": "20s",
        "Svc-Label": "a, b",
        "Svc-Callback": "https://c.example/%zz",
        "Svc-Failure-Callback": "https://f.example",
        "Svc-Forward-Content-Type": "application/json",
        "Svc-Forward-Test-Header": "test-value",
        "Svc-Forward-Bypass-Tunnel-Reminder": "client-test",
        "Svc-Flow-Control-Key": "k",
        "Svc-Flow-Control-Value": "parallelism=2, rate=3, period=1m",
      },
      nextTimes: [10, 20, 30, 40, 50].map((minutes) => testTime + minutes * minute),
    });
    // The queue and the key do not exist before the first message.
    expect(await server.store.read.listResources("limiters", { account: "acc_1", limit: 10 })).toEqual([]);
  });

  test("publishes messages of that brand, with its id and its settings", async () => {
    const server = await createTestServer();
    const { body } = await createOn(server)(
      "https://e.example/x",
      { cron: "*/5 * * * *", timeout: "20s", method: "PATCH" },
      "hello",
    );
    await come(server, testTime + 5 * minute);
    expect(server.delivery().message).toMatchObject({
      brand,
      scheduleId: body.scheduleId,
      url: "https://e.example/x",
      method: "PATCH",
      timeout: 20_000,
      callerIp: "127.0.0.1",
      headers: [["Content-Type", "application/json"]],
      body: Buffer.from("hello"),
    });
  });

  test("is replaced as a whole by a schedule with the same id", async () => {
    const server = await createTestServer();
    await createOn(server)(
      "https://old.example",
      { cron: "*/5 * * * *", "schedule-id": "s", label: "a", delay: "1s" },
      "old",
    );
    server.clock.now += 1;
    await createOn(server)("https://new.example", { cron: "0 * * * *", "schedule-id": "s" });
    const { body } = await server.ask("GET", "/v2/schedules");
    expect(body).toEqual([
      {
        scheduleId: "s",
        cron: "0 * * * *",
        createdAt: testTime + 1,
        destination: "https://new.example",
        method: "POST",
        retries: 3,
        header: { "Content-Type": ["application/json"] },
        callerIp: "127.0.0.1",
        callerIP: "127.0.0.1",
        isPaused: false,
        nextScheduleTime: testTime + 60 * minute,
      },
    ]);
  });
});

describe("the messages of a schedule's last firing", () => {
  test("are shown as in progress, succeeded or failed", async () => {
    const server = await createTestServer();
    await makeGroup(server, [
      "https://one.example/",
      "https://two.example/",
      "https://three.example/",
      "https://four.example/",
    ]);
    const id = await create(server, "shops", { headers: { "svc-retries": "0" } });
    await come(server, testTime + 5 * minute);
    const [one, two, three, four] = server.deliveries.splice(0);
    if (!one || !two || !three || !four) throw new Error("fewer than four deliveries");
    await server.settle(one, { status: 200 });
    await server.settle(two, { status: 500 });
    expect(await server.ask("DELETE", `/v2/messages/${three.message.id}`)).toMatchObject({
      body: { cancelled: 1 },
    });
    const lastScheduleStates = {
      [one.message.id]: "SUCCESS",
      [two.message.id]: "FAIL",
      [three.message.id]: "FAIL",
      [four.message.id]: "IN_PROGRESS",
    };
    const shown = {
      lastScheduleTime: testTime + 5 * minute,
      nextScheduleTime: testTime + 10 * minute,
      lastScheduleStates,
    };
    expect(await read(server, id)).toMatchObject(shown);
    expect((await server.ask("GET", "/v2/schedules")).body).toMatchObject([shown]);
    await come(server, testTime + 10 * minute);
    const { lastScheduleStates: later } = await read(server, id);
    expect(Object.values(later)).toEqual(["IN_PROGRESS", "IN_PROGRESS", "IN_PROGRESS", "IN_PROGRESS"]);
    expect(Object.keys(later)).not.toContain(one.message.id);
  });

  test("are found in all pages of the log, even if their bodies are large", async () => {
    const server = await createTestServer();
    await makeGroup(
      server,
      Array.from({ length: 9 }, (_, index) => `https://e${index}.example/`),
    );
    const id = await create(server, "shops", { body: Buffer.alloc(10 * 1024 * 1024, "x") });
    await come(server, testTime + 5 * minute);
    for (const delivery of server.deliveries.splice(0)) await server.settle(delivery, { status: 204 });
    expect(Object.values((await read(server, id)).lastScheduleStates)).toEqual(
      Array.from({ length: 9 }, () => "SUCCESS"),
    );
  });
});

test("redacted parts are shown as hashes and delivered unchanged", async () => {
  const server = await createTestServer();
  const headers = {
    "svc-redact-fields": "body, header[X-Secret]",
    "svc-forward-x-secret": "s",
    "svc-forward-x-open": "o",
  };
  const id = await create(server, "https://e.example", { headers, body: "secret" });
  const hidden = {
    body: `REDACTED:${hash("sha256", "secret", "hex")}`,
    header: { "X-Secret": [`REDACTED:${hash("sha256", "s", "hex")}`], "X-Open": ["o"] },
  };
  expect(await read(server, id)).toMatchObject(hidden);
  expect((await server.ask("GET", "/v2/schedules")).body).toMatchObject([hidden]);
  await come(server, testTime + 5 * minute);
  expect(server.delivery().message).toMatchObject({
    body: Buffer.from("secret"),
    headers: expect.arrayContaining([["X-Secret", "s"]]),
  });
});

describe.each(["PATCH", "POST"])("pausing and resuming by %s", (method) => {
  test("skips the times in between and can be repeated", async () => {
    const server = await createTestServer();
    const id = await create(server, "https://e.example");
    for (let turn = 0; turn < 2; turn++) {
      expect(await server.ask(method, `/v2/schedules/${id}/pause`)).toMatchObject({
        status: 200,
        body: { scheduleId: id, isPaused: true },
      });
    }
    const paused = await read(server, id);
    expect(paused).toMatchObject({ isPaused: true });
    expect(paused).not.toHaveProperty("nextScheduleTime");
    await come(server, testTime + 12 * minute);
    expect(server.deliveries).toEqual([]);
    for (let turn = 0; turn < 2; turn++) {
      expect(await server.ask(method, `/v2/schedules/${id}/resume`)).toMatchObject({
        status: 200,
        body: { scheduleId: id, isPaused: false },
      });
    }
    expect(await read(server, id)).toMatchObject({
      isPaused: false,
      nextScheduleTime: testTime + 15 * minute,
    });
  });

  test.each(["pause", "resume"])("%s is refused for an unknown schedule", async (what) => {
    const server = await createTestServer();
    await makeGroup(server, ["https://one.example/"]);
    const error = 'scheduleId: schedule "shops" does not exist';
    expect(await server.ask(method, `/v2/schedules/shops/${what}`)).toMatchObject({
      status: 404,
      body: { error },
    });
  });
});

test("another account cannot see, change or replace a schedule", async () => {
  const server = await createTestServer();
  const token = otherToken;
  const id = await create(server, "https://e.example", { headers: { "svc-schedule-id": "s" }, body: "mine" });
  const before = await read(server, id);
  expect(await server.ask("GET", "/v2/schedules/s", { token })).toMatchObject({ status: 404 });
  expect((await server.ask("GET", "/v2/schedules", { token })).body).toEqual([]);
  for (const what of ["pause", "resume"])
    expect(await server.ask("PATCH", `/v2/schedules/s/${what}`, { token })).toMatchObject({ status: 404 });
  expect(await server.ask("DELETE", "/v2/schedules/s", { token })).toMatchObject({
    status: 200,
    body: { deleted: 0 },
  });
  await create(server, "https://other.example", { headers: { "svc-schedule-id": "s" }, token });
  expect(await read(server, id)).toEqual(before);
});

test("a deleted schedule does not fire, even if it was due, and can be deleted again", async () => {
  const server = await createTestServer();
  const id = await create(server, "https://e.example");
  server.clock.now = testTime + 5 * minute;
  expect(await server.ask("DELETE", `/v2/schedules/${id}`)).toMatchObject({
    status: 200,
    body: { deleted: 1 },
  });
  expect(await server.ask("DELETE", `/v2/schedules/${id}`)).toMatchObject({
    status: 200,
    body: { deleted: 0 },
  });
  expect(await server.ask("GET", `/v2/schedules/${id}`)).toMatchObject({ status: 404 });
  await come(server, testTime + 5 * minute);
  expect(server.deliveries).toEqual([]);
});

describe("ids and paths", () => {
  test.each(["a%2Fb", "%00", "x".repeat(2000), "%C3%BC"])("%s is not a known id", async (id) => {
    const { ask } = await createTestServer();
    expect(await ask("GET", `/v2/schedules/${id}`)).toMatchObject({
      status: 404,
      body: { error: expect.stringMatching(/^scheduleId: /) },
    });
    expect(await ask("DELETE", `/v2/schedules/${id}`)).toMatchObject({ status: 200, body: { deleted: 0 } });
    expect(await ask("PATCH", `/v2/schedules/${id}/pause`)).toMatchObject({ status: 404 });
  });

  test("an unsupported method is refused, with the supported ones in Allow", async () => {
    const { ask } = await createTestServer();
    expect(await ask("PUT", "/v2/schedules/s")).toMatchObject({
      status: 405,
      headers: { allow: "POST, GET, HEAD, PATCH, DELETE" },
    });
    expect(await ask("GET", "/v2/schedules/s/pause")).toMatchObject({
      status: 405,
      headers: { allow: "PATCH, POST" },
    });
    expect(await ask("GET", "/v2/schedules/https://e.example/x")).toMatchObject({
      status: 405,
      headers: { allow: "POST" },
    });
  });

  test("the request log has only the host of a destination", async () => {
    const server = await createTestServer();
    await create(server, "https://e.example/secret");
    expect(server.lines.map(({ path }) => path)).toEqual(["/v2/schedules/https://e.example"]);
  });
});
