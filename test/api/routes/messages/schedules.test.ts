import { hash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { testTime, createTestServer, otherToken } from "../../testServer.ts";
import type { TestServer, Reply } from "../../testServer.ts";
import type { AccountChange } from "../../../../src/core/commands/account.ts";
import { toMonthRange } from "../../../../src/core/accounts/statistics.ts";

const minute = 60_000;
const every5 = { "svc-cron": "*/5 * * * *" };

type More = { headers?: Record<string, string>; body?: string | Buffer; token?: string };

const post = ({ ask }: TestServer, destination: string, { headers = {}, ...more }: More = {}): Promise<Reply> =>
  ask("POST", `/v2/schedules/${destination}`, { headers: { ...every5, ...headers }, ...more });

async function create(home: TestServer, destination: string, more: More = {}): Promise<string> {
  const { status, body } = await post(home, destination, more);
  expect({ status, body }).toEqual({ status: 200, body: { scheduleId: expect.any(String) } });
  return body.scheduleId;
}

async function read({ ask }: TestServer, id: string): Promise<Reply["body"]> {
  const { status, body } = await ask("GET", `/v2/schedules/${id}`);
  expect(status).toBe(200);
  return body;
}

/** Lets a moment come, and whatever is due then fire. The house begins at 8 o'clock sharp, UTC. */
async function come({ clock, store }: TestServer, time: number): Promise<void> {
  clock.now = time;
  await store.execute("claim", { limit: 100 });
}

const makeGroup = ({ store }: TestServer, urls: readonly string[]) =>
  store.execute("addEndpoints", { account: "acc_1", name: "shops", endpoints: urls.map((url) => ({ name: null, url })) });

describe.each(["svc", "upstash"])("a schedule made with headers of %s", (brand) => {
  const branded = (headers: Record<string, string>) =>
    Object.fromEntries(Object.entries(headers).map(([name, value]) => [`${brand}-${name}`, value]));
  const make = ({ ask }: TestServer, destination: string, headers: Record<string, string>, body = "") =>
    ask("POST", `/v2/schedules/${destination}`, { headers: { ...branded(headers), "content-type": "application/json" }, body });

  test("is shown with everything that was set", async () => {
    const home = await createTestServer();
    const reply = await make(
      home,
      "https://e.example/x?y",
      {
        ...{ cron: "*/10 * * * * ", "schedule-id": "my.report_1-x", "queue-name": "reports", method: "PUT", delay: "1m30s", retries: "5" },
        ...{ "retry-delay": "retried * 1000", timeout: "20s", label: "a,b", callback: "https://c.example/%zz" },
        ...{
          "failure-callback": "https://f.example",
          "forward-test-header": "test-value",
          "forward-bypass-tunnel-reminder": "client-test",
        },
        ...{ "flow-control-key": "k", "flow-control-value": "parallelism=2, rate=3, period=1m", "telemetry-sdk": "x" },
      },
      "ü",
    );
    expect(reply).toMatchObject({ status: 200, body: { scheduleId: "my.report_1-x" } });
    expect(await read(home, "my.report_1-x")).toEqual({
      ...{
        scheduleId: "my.report_1-x",
        cron: "*/10 * * * *",
        createdAt: testTime,
        destination: "https://e.example/x?y",
        method: "PUT",
        body: "ü",
      },
      header: { "Bypass-Tunnel-Reminder": ["client-test"], "Content-Type": ["application/json"], "Test-Header": ["test-value"] },
      ...{ retries: 5, retryDelayExpression: "retried * 1000", delay: 90 },
      ...{ callback: "https://c.example/%zz", failureCallback: "https://f.example" },
      ...{ queueName: "reports", flowControlKey: "k", parallelism: 2, rate: 3, period: 60 },
      ...{ callerIp: "127.0.0.1", callerIP: "127.0.0.1", label: "a", labels: ["a", "b"] },
      ...{ isPaused: false, nextScheduleTime: testTime + 10 * minute },
    });
    // Neither is there before the first message.
    expect(await home.store.read.listResources("limiters", { account: "acc_1", limit: 10 })).toEqual([]);
  });

  test("publishes under that brand, with its id and its settings", async () => {
    const home = await createTestServer();
    const { body } = await make(home, "https://e.example/x", { cron: "*/5 * * * *", timeout: "20s", method: "PATCH" }, "hello");
    await come(home, testTime + 5 * minute);
    expect(home.delivery().message).toMatchObject({
      ...{ brand, scheduleId: body.scheduleId, url: "https://e.example/x", method: "PATCH", timeout: 20_000, callerIp: "127.0.0.1" },
      ...{ headers: [["Content-Type", "application/json"]], body: Buffer.from("hello") },
    });
  });

  test("is replaced as a whole by one of the same id", async () => {
    const home = await createTestServer();
    await make(home, "https://old.example", { cron: "*/5 * * * *", "schedule-id": "s", label: "a", delay: "1s" }, "old");
    home.clock.now += 1;
    await make(home, "https://new.example", { cron: "0 * * * *", "schedule-id": "s" });
    const { body } = await home.ask("GET", "/v2/schedules");
    expect(body).toEqual([
      {
        ...{ scheduleId: "s", cron: "0 * * * *", createdAt: testTime + 1, destination: "https://new.example", method: "POST", retries: 3 },
        ...{ header: { "Content-Type": ["application/json"] }, callerIp: "127.0.0.1", callerIP: "127.0.0.1" },
        ...{ isPaused: false, nextScheduleTime: testTime + 60 * minute },
      },
    ]);
  });
});

describe("a schedule can be made", () => {
  test("with settings in the query, which does not go to the destination", async () => {
    const home = await createTestServer();
    const target = "https://e.example/a/pause?x=1&svc-cron=0+9+*+*+*&svc-schedule-id=q";
    expect((await home.ask("POST", `/v2/schedules/${target}`)).body).toEqual({ scheduleId: "q" });
    expect(await read(home, "q")).toMatchObject({ destination: "https://e.example/a/pause?x=1", cron: "0 9 * * *" });
  });

  test.each([
    "https://e.example/pause",
    "https://pause/resume",
    "https:/pause/resume",
    "https%3A%2F%2Fpause%2Fresume",
    "http://e.example/v2/schedules/x/pause",
  ])("at %s, which is not the pausing of another one", async (destination) => {
    const home = await createTestServer();
    const id = await create(home, destination);
    expect((await read(home, id)).destination).toMatch(/^https?:\/\//);
  });

  test("with a body that is not UTF-8", async () => {
    const home = await createTestServer();
    const id = await create(home, "https://e.example", { body: Buffer.from([0xff, 0]) });
    const shown = await read(home, id);
    expect(shown).toMatchObject({ bodyBase64: "/wA=" });
    expect(shown).not.toHaveProperty("body");
    await come(home, testTime + 5 * minute);
    expect(Buffer.from(home.delivery().message.body)).toEqual(Buffer.from([0xff, 0]));
  });

  test("with a body of 8 MiB, and not with a byte more", async () => {
    const home = await createTestServer();
    const most = 8 * 1024 * 1024;
    const id = await create(home, "https://e.example", { body: Buffer.alloc(most, "x") });
    expect((await read(home, id)).body).toHaveLength(most);
    await come(home, testTime + 5 * minute);
    expect(home.delivery().message.body).toHaveLength(most);
    const reply = await post(home, "https://e.example", { body: Buffer.alloc(most + 1) });
    expect(reply).toMatchObject({ status: 413, body: { error: expect.stringContaining("8388608") } });
  });

  test("for a URL group, which may change and go", async () => {
    const home = await createTestServer();
    await makeGroup(home, ["https://one.example/", "https://two.example/"]);
    await home.store.execute("setGroupHeaders", { account: "acc_1", name: "shops", headers: [["Svc-Retries", "9"]] });
    const id = await create(home, "shops", { body: "hello" });
    expect(await read(home, id)).toMatchObject({ destination: "shops", retries: 9, body: "hello" });
    await come(home, testTime + 5 * minute);
    const deliveries = home.deliveries.splice(0);
    for (const delivery of deliveries) await home.settle(delivery, { status: 200 });
    const messages = deliveries.map(({ message }) => message);
    expect(messages.map(({ url, retries }) => [url, retries])).toEqual([
      ["https://one.example/", 9],
      ["https://two.example/", 9],
    ]);
    await home.store.execute("deleteGroup", { account: "acc_1", name: "shops" });
    await come(home, testTime + 10 * minute);
    expect(await read(home, id)).toMatchObject({
      ...{ lastScheduleTime: testTime + 10 * minute, nextScheduleTime: testTime + 15 * minute },
      lastScheduleError: "nothing was published: there is no URL group shops with endpoints",
    });
    await makeGroup(home, ["https://three.example/"]);
    await come(home, testTime + 15 * minute);
    expect(home.delivery().message.url).toBe("https://three.example/");
    expect(await read(home, id)).not.toHaveProperty("lastScheduleError");
  });

  test("which passes over its times while its account is disabled, or has spent its budget", async () => {
    const home = await createTestServer();
    const id = await create(home, "https://e.example", {});
    const change = (given: AccountChange) => home.store.execute("changeAccount", { account: "acc_1", change: given });
    await change({ state: "passive" });
    await come(home, testTime + 5 * minute);
    await change({ state: "active", budget: 20 });
    expect(await read(home, id)).toMatchObject({
      ...{ lastScheduleTime: testTime + 5 * minute, nextScheduleTime: testTime + 10 * minute },
      lastScheduleError: "nothing was published: the account was disabled",
    });
    await home.store.execute("noteSpending", { account: "acc_1", dollars: 20, month: toMonthRange(testTime).from });
    await come(home, testTime + 10 * minute);
    expect(home.deliveries).toEqual([]);
    expect(await read(home, id)).toMatchObject({
      ...{ lastScheduleTime: testTime + 10 * minute, nextScheduleTime: testTime + 15 * minute },
      lastScheduleError: expect.stringMatching(
        /^nothing was published: budget: 20\.00 dollars are spent in this month, the limit is 20; PATCH /,
      ),
    });
    await change({ budget: 0 });
    await come(home, testTime + 15 * minute);
    expect(home.delivery().message.scheduleId).toBe(id);
    expect(await read(home, id)).not.toHaveProperty("lastScheduleError");
  });

  test("once, where deduplication asks for it, and fires again and again", async () => {
    const home = await createTestServer();
    const headers = { "svc-deduplication-id": "d" };
    const id = await create(home, "https://e.example", { headers });
    const again = await post(home, "https://e.example", { headers });
    expect(again).toMatchObject({ status: 202, body: { scheduleId: id, deduplicated: true } });
    for (const time of [5, 10]) {
      await come(home, testTime + time * minute);
      const delivery = home.delivery();
      expect(delivery.message).toMatchObject({ scheduleId: id, deduplication: null });
      await home.settle(delivery, { status: 200 });
    }
  });
});

describe("a schedule cannot be made", () => {
  test.each([
    ["without a cron", { "svc-cron": "" }, 400, /^svc-cron: /],
    [
      "with four fields",
      { "svc-cron": "* * * *" },
      400,
      /^svc-cron: "\* \* \* \*" has 4 fields; expected five fields: minute hour day month weekday/,
    ],
    ["with a minute that there is not", { "svc-cron": "60 * * * *" }, 400, /^svc-cron: the minute must be 0 to 59, not "60"$/],
    ["with seconds", { "svc-cron": "0 0 9 * * *" }, 400, /^svc-cron: "0 0 9 \* \* \*" has 6 fields/],
    [
      "with a zone that there is not",
      { "svc-cron": "CRON_TZ=Nowhere/City 0 9 * * *" },
      400,
      /^svc-cron: there is no time zone "Nowhere\/City"/,
    ],
    ["with a day that never comes", { "svc-cron": "0 0 31 2 *" }, 400, /^svc-cron: "0 0 31 2 \*" never fires/],
    ["with an expression without end", { "svc-cron": "* ".repeat(2000) }, 400, /^svc-cron: has \d+ characters; at most 256 are read$/],
    ["with a slash in its id", { "svc-schedule-id": "a/b" }, 400, /^svc-schedule-id: "a\/b" is no name/],
    ["with an id that a path cannot have", { "svc-schedule-id": ".." }, 400, /^svc-schedule-id: "\.\." is no name/],
    ["with a space in its id", { "svc-schedule-id": "a b" }, 400, /^svc-schedule-id: "a b" is no name/],
    ["with a slash in its queue", { "svc-queue-name": "a/b" }, 400, /^svc-queue-name: "a\/b" is no name/],
    ["with a time to begin", { "svc-not-before": "1900000000" }, 400, /^not-before: .*; use delay/],
    ["with a delay beyond the limit", { "svc-delay": "400d" }, 412, /^delay: /],
    ["with more retries than there may be", { "svc-retries": "1000000" }, 412, /^retries: /],
  ])("%s", async (_, headers: Record<string, string>, status, error) => {
    const home = await createTestServer();
    expect(await post(home, "https://e.example", { headers })).toMatchObject({ status, body: { error: expect.stringMatching(error) } });
    expect((await home.ask("GET", "/v2/schedules")).body).toEqual([]);
  });

  test("without any word on when", async () => {
    const { ask } = await createTestServer();
    const error = 'cron: missing; say with Svc-Cron when to publish, as in "0 9 * * 1-5"';
    expect(await ask("POST", "/v2/schedules/https://e.example")).toMatchObject({ status: 400, body: { error } });
  });

  test.each([
    ["", 400],
    ["nowhere", 404],
    ["ftp://e.example", 400],
    ["a/b/pause", 400],
    ["https://", 400],
  ])("for %j", async (destination, status) => {
    expect(await post(await createTestServer(), destination)).toMatchObject({
      status,
      body: { error: expect.stringMatching(/^destination: /) },
    });
  });

  test("for the URL group of another account", async () => {
    const home = await createTestServer();
    await makeGroup(home, ["https://one.example/"]);
    expect(await post(home, "shops", { token: otherToken })).toMatchObject({ status: 404 });
  });
});

describe("the last messages of a schedule", () => {
  test("are in progress, have succeeded, or have failed", async () => {
    const home = await createTestServer();
    await makeGroup(home, ["https://one.example/", "https://two.example/", "https://three.example/", "https://four.example/"]);
    const id = await create(home, "shops", { headers: { "svc-retries": "0" } });
    await come(home, testTime + 5 * minute);
    const [one, two, three, four] = home.deliveries.splice(0);
    if (!one || !two || !three || !four) throw new Error("four were to be sent");
    await home.settle(one, { status: 200 });
    await home.settle(two, { status: 500 });
    expect(await home.ask("DELETE", `/v2/messages/${three.message.id}`)).toMatchObject({ body: { cancelled: 1 } });
    const lastScheduleStates = {
      ...{ [one.message.id]: "SUCCESS", [two.message.id]: "FAIL", [three.message.id]: "FAIL", [four.message.id]: "IN_PROGRESS" },
    };
    const shown = { lastScheduleTime: testTime + 5 * minute, nextScheduleTime: testTime + 10 * minute, lastScheduleStates };
    expect(await read(home, id)).toMatchObject(shown);
    expect((await home.ask("GET", "/v2/schedules")).body).toMatchObject([shown]);
    await come(home, testTime + 10 * minute);
    const { lastScheduleStates: later } = await read(home, id);
    expect(Object.values(later)).toEqual(["IN_PROGRESS", "IN_PROGRESS", "IN_PROGRESS", "IN_PROGRESS"]);
    expect(Object.keys(later)).not.toContain(one.message.id);
  });

  test("are followed through all pages of the log, however large they are", async () => {
    const home = await createTestServer();
    await makeGroup(
      home,
      Array.from({ length: 9 }, (_, index) => `https://e${index}.example/`),
    );
    const id = await create(home, "shops", { body: Buffer.alloc(8 * 1024 * 1024, "x") });
    await come(home, testTime + 5 * minute);
    for (const delivery of home.deliveries.splice(0)) await home.settle(delivery, { status: 204 });
    expect(Object.values((await read(home, id)).lastScheduleStates)).toEqual(Array.from({ length: 9 }, () => "SUCCESS"));
  });
});

test("what is hidden is shown as its hash, and delivered as it is", async () => {
  const home = await createTestServer();
  const headers = { "svc-redact-fields": "body, header[X-Secret]", "svc-forward-x-secret": "s", "svc-forward-x-open": "o" };
  const id = await create(home, "https://e.example", { headers, body: "secret" });
  const hidden = {
    body: `REDACTED:${hash("sha256", "secret", "hex")}`,
    header: { "X-Secret": [`REDACTED:${hash("sha256", "s", "hex")}`], "X-Open": ["o"] },
  };
  expect(await read(home, id)).toMatchObject(hidden);
  expect((await home.ask("GET", "/v2/schedules")).body).toMatchObject([hidden]);
  await come(home, testTime + 5 * minute);
  expect(home.delivery().message).toMatchObject({ body: Buffer.from("secret"), headers: expect.arrayContaining([["X-Secret", "s"]]) });
});

describe.each(["PATCH", "POST"])("pause and resume by %s", (method) => {
  test("pass over its times, and can be repeated", async () => {
    const home = await createTestServer();
    const id = await create(home, "https://e.example");
    for (let turn = 0; turn < 2; turn++) {
      expect(await home.ask(method, `/v2/schedules/${id}/pause`)).toMatchObject({ status: 200, body: { scheduleId: id, isPaused: true } });
    }
    const paused = await read(home, id);
    expect(paused).toMatchObject({ isPaused: true });
    expect(paused).not.toHaveProperty("nextScheduleTime");
    await come(home, testTime + 12 * minute);
    expect(home.deliveries).toEqual([]);
    for (let turn = 0; turn < 2; turn++) {
      expect(await home.ask(method, `/v2/schedules/${id}/resume`)).toMatchObject({
        status: 200,
        body: { scheduleId: id, isPaused: false },
      });
    }
    expect(await read(home, id)).toMatchObject({ isPaused: false, nextScheduleTime: testTime + 15 * minute });
  });

  test.each(["pause", "resume"])("%s is refused where there is no such schedule", async (what) => {
    const home = await createTestServer();
    await makeGroup(home, ["https://one.example/"]);
    const error = 'scheduleId: there is no schedule "shops"';
    expect(await home.ask(method, `/v2/schedules/shops/${what}`)).toMatchObject({ status: 404, body: { error } });
  });
});

test("another account sees, changes and replaces nothing", async () => {
  const home = await createTestServer();
  const token = otherToken;
  const id = await create(home, "https://e.example", { headers: { "svc-schedule-id": "s" }, body: "mine" });
  const before = await read(home, id);
  expect(await home.ask("GET", "/v2/schedules/s", { token })).toMatchObject({ status: 404 });
  expect((await home.ask("GET", "/v2/schedules", { token })).body).toEqual([]);
  for (const what of ["pause", "resume"])
    expect(await home.ask("PATCH", `/v2/schedules/s/${what}`, { token })).toMatchObject({ status: 404 });
  expect(await home.ask("DELETE", "/v2/schedules/s", { token })).toMatchObject({ status: 200, body: { deleted: 0 } });
  await create(home, "https://other.example", { headers: { "svc-schedule-id": "s" }, token });
  expect(await read(home, id)).toEqual(before);
});

test("a schedule that is deleted is gone, does not fire though it was due, and can be deleted again", async () => {
  const home = await createTestServer();
  const id = await create(home, "https://e.example");
  home.clock.now = testTime + 5 * minute;
  expect(await home.ask("DELETE", `/v2/schedules/${id}`)).toMatchObject({ status: 200, body: { deleted: 1 } });
  expect(await home.ask("DELETE", `/v2/schedules/${id}`)).toMatchObject({ status: 200, body: { deleted: 0 } });
  expect(await home.ask("GET", `/v2/schedules/${id}`)).toMatchObject({ status: 404 });
  await come(home, testTime + 5 * minute);
  expect(home.deliveries).toEqual([]);
});

describe("ids and paths", () => {
  test.each(["a%2Fb", "%00", "x".repeat(2000), "%C3%BC"])("%s is the id of nothing", async (id) => {
    const { ask } = await createTestServer();
    expect(await ask("GET", `/v2/schedules/${id}`)).toMatchObject({ status: 404, body: { error: expect.stringMatching(/^scheduleId: /) } });
    expect(await ask("DELETE", `/v2/schedules/${id}`)).toMatchObject({ status: 200, body: { deleted: 0 } });
    expect(await ask("PATCH", `/v2/schedules/${id}/pause`)).toMatchObject({ status: 404 });
  });

  test("a method that is not possible is refused with those that are", async () => {
    const { ask } = await createTestServer();
    expect(await ask("PUT", "/v2/schedules/s")).toMatchObject({ status: 405, headers: { allow: "POST, GET, HEAD, DELETE" } });
    expect(await ask("GET", "/v2/schedules/s/pause")).toMatchObject({ status: 405, headers: { allow: "PATCH, POST" } });
    expect(await ask("GET", "/v2/schedules/https://e.example/x")).toMatchObject({ status: 405, headers: { allow: "POST" } });
  });

  test("of a destination only the host is logged", async () => {
    const home = await createTestServer();
    await create(home, "https://e.example/secret");
    expect(home.lines.map(({ path }) => path)).toEqual(["/v2/schedules/https://e.example"]);
  });
});
