import { describe, expect, test } from "vitest";
import type { HeaderList } from "../../../../src/engine/core/values/basics.ts";
import type { Delivery } from "../../../../src/engine/core/model/delivery.ts";
import type { Store } from "../../../../src/engine/store/store.ts";
import { makeUnavailable } from "../../../../src/engine/core/values/errors.ts";
import { makeAttemptToken } from "../../../../src/engine/delivery/attemptToken.ts";
import { hour, minute } from "../../../../src/engine/core/values/time.ts";
import type { Reply, TestServer } from "../../testServer.ts";
import { createTestServer, otherToken, testTime } from "../../testServer.ts";

const url = "https://e.example/work";
const later: HeaderList = [["Svc-Ack", "later"]];

/** Publishes a message and returns its delivery, whose receiver has taken it over. */
async function hold(server: TestServer, headers: Record<string, string> = {}): Promise<Delivery> {
  await server.ask("POST", `/v2/publish/${url}`, { headers: { "svc-ack-timeout": "2h", ...headers } });
  const delivery = server.delivery();
  await server.settle(delivery, { status: 202, headers: later });
  return delivery;
}

const tokenOf = ({ message, attempt }: Delivery): string => makeAttemptToken(message, attempt);

const report = (server: TestServer, attempt: string | null, body: unknown): Promise<Reply> =>
  server.ask("POST", "/v2/attempts", {
    ...{ token: null, body: typeof body === "string" ? body : JSON.stringify(body) },
    headers: attempt === null ? {} : { "svc-attempt": attempt },
  });

const events = async ({ ask }: TestServer, id: string) =>
  (await ask("GET", `/v2/events?messageId=${id}`)).body.events.map(({ state }: { state: string }) => state);

test("a receiver reports the outcome with the token of the attempt alone", async () => {
  const server = await createTestServer();
  const delivery = await hold(server, { "svc-keep-response": "true" });
  const { id } = delivery.message;
  expect((await server.ask("GET", `/v2/messages/${id}`)).body).toMatchObject({
    state: "acknowledging",
    waitingOn: [
      {
        reason: "acknowledging",
        text: "held by a receiver since 2027-01-15T08:00:00.000Z, until 2027-01-15T10:00:00.000Z",
        ...{ attempt: 0, since: testTime, until: testTime + 2 * hour },
      },
    ],
  });
  server.clock.now += hour;
  const body = { outcome: "ok", status: 201, headers: { "x-made": "7" }, body: "made 7" };
  const answer = { status: 200, body: { messageId: id, became: "delivered" } };
  expect(await report(server, tokenOf(delivery), body)).toMatchObject(answer);
  expect(await report(server, tokenOf(delivery), body)).toMatchObject(answer);
  expect(await report(server, tokenOf(delivery), { outcome: "failed" })).toMatchObject({
    ...{ status: 409, body: { code: "attempt-reported" } },
  });
  expect(await events(server, id)).toEqual(["DELIVERED", "ACKNOWLEDGING", "ACTIVE", "CREATED"]);
  const [entry] = (await server.ask("GET", "/v2/events?state=DELIVERED")).body.events;
  expect(entry).toMatchObject({ responseStatus: 201, responseHeaders: { "X-Made": ["7"] } });
  expect(atob(entry.responseBody)).toBe("made 7");
});

test("a failed outcome follows the rules of retries, and asks for its own delay", async () => {
  const server = await createTestServer();
  const delivery = await hold(server, { "svc-retries": "1" });
  const first = await report(server, tokenOf(delivery), { outcome: "failed", retryAfter: 60, body: "later" });
  expect(first.body).toMatchObject({ became: "retry" });
  const { body } = await server.ask("GET", `/v2/messages/${delivery.message.id}`);
  expect(body).toMatchObject({ state: "retrying", dueAt: testTime + minute });
  expect(await events(server, delivery.message.id)).toEqual([
    ...["RETRY", "ERROR", "ACKNOWLEDGING", "ACTIVE", "CREATED"],
  ]);
});

test("late reports do not count as requests without a valid token", async () => {
  const server = await createTestServer();
  const attempt = tokenOf(await hold(server));
  await report(server, attempt, { outcome: "ok" });
  for (let n = 0; n < 150; n++)
    expect((await report(server, attempt, { outcome: "failed" })).status).toBe(409);
});

describe("reports of several attempts", () => {
  const reportMany = (server: TestServer, reports: unknown, token?: string): Promise<Reply> =>
    server.ask("POST", "/v2/attempts/batch", {
      ...{ body: JSON.stringify({ reports }), ...(token !== undefined && { token }) },
    });

  test("have their own results", async () => {
    const server = await createTestServer();
    const held = [await hold(server), await hold(server, { "svc-retries": "1" }), await hold(server)];
    const [first, second, third] = held.map(tokenOf);
    const ids = held.map(({ message }) => message.id);
    const forged = `${"A".repeat(43)}${first?.slice(43)}`;
    const { status, body } = await reportMany(server, [
      { attempt: first, outcome: "ok", body: "done" },
      { attempt: second, outcome: "failed", status: 503 },
      { attempt: third, extend: "3h" },
      { attempt: forged, outcome: "ok" },
      { attempt: "nonsense", outcome: "ok" },
      { attempt: third, outcome: "ok", status: 500 },
    ]);
    const wrong = { error: expect.stringMatching(/^attempt: the token /), code: "not-found" };
    expect({ status, body }).toEqual({
      status: 200,
      body: {
        results: [
          { messageId: ids[0], became: "delivered" },
          { messageId: ids[1], became: "retry" },
          { messageId: ids[2], until: testTime + 3 * hour },
          ...[wrong, wrong],
          { error: "status: 500 contradicts the outcome ok", code: "invalid" },
        ],
      },
    });
    expect(await events(server, ids[0] ?? "")).toEqual(["DELIVERED", "ACKNOWLEDGING", "ACTIVE", "CREATED"]);
  });

  test("are refused as a whole while the store is away, and can then be sent again", async () => {
    let stored: number | null = null;
    // The first report is stored, and the store is away before the second one.
    const wrap = (store: Store): Store => ({
      ...store,
      execute: async (name, input) => {
        if (name === "reportAttempt" && stored !== null && ++stored > 1) throw makeUnavailable("unknown");
        return store.execute(name, input);
      },
    });
    const server = await createTestServer({ wrap });
    const held = [await hold(server), await hold(server)];
    const reports = held.map((one) => ({ attempt: tokenOf(one), outcome: "ok" }));
    stored = 0;
    const refused = await reportMany(server, reports);
    expect(refused).toMatchObject({ status: 503, body: { code: "outcome-unknown" } });
    expect(refused.body).not.toHaveProperty("results");
    stored = null;
    const results = held.map(({ message }) => ({ messageId: message.id, became: "delivered" }));
    expect(await reportMany(server, reports)).toMatchObject({ status: 200, body: { results } });
    for (const { messageId } of results)
      expect(await events(server, messageId)).toEqual(["DELIVERED", "ACKNOWLEDGING", "ACTIVE", "CREATED"]);
  });

  test("get the same results if they are repeated, also within one list", async () => {
    const server = await createTestServer();
    const delivery = await hold(server);
    const attempt = tokenOf(delivery);
    const results = [{ messageId: delivery.message.id, became: "delivered" }];
    const ok = { attempt, outcome: "ok" };
    expect((await reportMany(server, [ok])).body).toEqual({ results });
    expect((await reportMany(server, [ok, ok])).body).toEqual({ results: [...results, ...results] });
    const other = { attempt, outcome: "failed" };
    expect((await reportMany(server, [other])).body.results).toMatchObject([{ code: "attempt-reported" }]);
  });

  test("are only of the account, and at most 100", async () => {
    const server = await createTestServer();
    const attempt = tokenOf(await hold(server));
    const one = { attempt, outcome: "ok" };
    const { body } = await reportMany(server, [one], otherToken);
    expect(body.results).toMatchObject([{ code: "not-found" }]);
    expect((await reportMany(server, [one])).body.results).toMatchObject([{ became: "delivered" }]);
    expect(
      (
        await reportMany(
          server,
          Array.from({ length: 101 }, () => one),
        )
      ).body.error,
    ).toBe("reports: has more than 100 entries");
    expect((await reportMany(server, [])).body.error).toBe("reports: is empty");
    expect((await reportMany(server, [{ outcome: "ok" }])).body.error).toMatch(/^reports.0.attempt: /);
  });
});

test("an extension moves the deadline, and reports nothing", async () => {
  const server = await createTestServer();
  const delivery = await hold(server, { "svc-ack-timeout": "1m" });
  const { id: messageId } = delivery.message;
  expect(await report(server, tokenOf(delivery), { extend: "10m" })).toMatchObject({
    ...{ status: 200, body: { messageId, until: testTime + 10 * minute } },
  });
  expect(await report(server, tokenOf(delivery), { outcome: "ok" })).toMatchObject({ status: 200 });
  expect((await report(server, tokenOf(delivery), { extend: "10m" })).body.code).toBe("attempt-ended");
});

test("a job of two hours runs once, although its receiver holds it for a minute at a time", async () => {
  const server = await createTestServer();
  const delivery = await hold(server, { "svc-ack-timeout": "1m" });
  const attempt = tokenOf(delivery);
  for (let worked = 0; worked < 2 * hour; worked += minute / 2) {
    server.clock.now += minute / 2;
    // A claim ends attempts that were not reported in time.
    await server.store.execute("claim", { limit: 10 });
    expect(await report(server, attempt, { extend: "1m" })).toMatchObject({
      ...{ status: 200, body: { until: server.clock.now + minute } },
    });
  }
  expect((await report(server, attempt, { outcome: "ok" })).body).toMatchObject({ became: "delivered" });
  expect(await events(server, delivery.message.id)).toEqual([
    ...["DELIVERED", "ACKNOWLEDGING", "ACTIVE", "CREATED"],
  ]);
});

test("a report that comes before the response of the endpoint waits for it", async () => {
  const server = await createTestServer();
  await server.ask("POST", `/v2/publish/${url}`, { headers: { "svc-ack-timeout": "2h" } });
  const delivery = server.delivery();
  const early = report(server, tokenOf(delivery), { outcome: "ok" });
  await server.settle(delivery, { status: 202, headers: later });
  expect((await early).body).toMatchObject({ became: "delivered" });
});

test("a queue gives its messages an ack timeout", async () => {
  const server = await createTestServer();
  const set = (ackTimeout: string) =>
    server.ask("POST", "/v2/queues", { body: JSON.stringify({ queueName: "q", ackTimeout }) });
  expect((await set("2h")).body).toMatchObject({ name: "q", ackTimeout: "2h" });
  await server.ask("POST", `/v2/enqueue/q/${url}`);
  expect(server.delivery().message).toMatchObject({ ackTimeout: 2 * hour });
  expect((await set("")).body).not.toHaveProperty("ackTimeout");
  for (const wrong of ["13h", "soon", "0"]) expect((await set(wrong)).body.error).toMatch(/^ackTimeout: /);
});

test("a batch and a schedule carry the setting", async () => {
  const server = await createTestServer();
  const headers = { "Svc-Ack-Timeout": "2h" };
  await server.ask("POST", "/v2/batch", { body: JSON.stringify([{ destination: url, headers }]) });
  expect(server.delivery().message).toMatchObject({ ackTimeout: 2 * hour });
  const cron = { ...headers, "svc-cron": "* * * * *" };
  const { body } = await server.ask("POST", `/v2/schedules/${url}`, { headers: cron });
  await server.ask("POST", `/v2/schedules/${body.scheduleId}/run`);
  expect(server.delivery().message).toMatchObject({ ackTimeout: 2 * hour });
});

describe("a token", () => {
  test("of another attempt, message or account proves nothing, and neither does a forged one", async () => {
    const server = await createTestServer();
    const delivery = await hold(server);
    const [mac = "", attempt = "", id = "", account = ""] = tokenOf(delivery).split(".");
    await server.ask("POST", `/v2/publish/${url}`, {
      ...{ token: otherToken, headers: { "svc-ack-timeout": "2h" } },
    });
    const others = server.delivery();
    const forged = [
      ...[null, "", "x", tokenOf(delivery).slice(0, -1), `${tokenOf(delivery)}x`, "a".repeat(100_000)],
      [mac, "1", id, account].join("."),
      [mac, attempt, others.message.id, account].join("."),
      [mac, attempt, id, Buffer.from("acc_2").toString("base64url")].join("."),
      ["A".repeat(43), attempt, id, account].join("."),
    ];
    for (const token of forged) {
      const reply = await report(server, token, { outcome: "ok" });
      expect([400, 404], String(token).slice(0, 100)).toContain(reply.status);
      if (reply.status === 404) expect(reply.body.code).toBe("not-found");
    }
    expect((await server.ask("GET", `/v2/messages/${id}`)).body.state).toBe("acknowledging");
  });

  test("is in no log line, and in no response of the API", async () => {
    const server = await createTestServer();
    const delivery = await hold(server);
    const [mac = ""] = tokenOf(delivery).split(".");
    await report(server, tokenOf(delivery), { outcome: "failed" });
    const { id, ackKey = "" } = delivery.message;
    const shown = [
      await server.ask("GET", `/v2/messages/${id}`),
      await server.ask("GET", "/v2/messages"),
      await server.ask("GET", "/v2/events"),
      server.lines,
    ];
    for (const secret of [mac, ackKey]) expect(JSON.stringify(shown)).not.toContain(secret);
  });

  test("of an account token does not report, and a report needs no account token", async () => {
    const server = await createTestServer();
    await hold(server);
    const reply = await server.ask("POST", "/v2/attempts", { body: JSON.stringify({ outcome: "ok" }) });
    expect(reply.status).toBe(404);
  });
});

test.each([
  [{}, /^outcome: missing/],
  [{ outcome: "done" }, /^outcome: /],
  [{ outcome: "ok", status: 500 }, /^status: 500 contradicts/],
  [{ outcome: "returned" }, /^outcome: the request was sent to the receiver, so .* cannot be returned/],
  [{ outcome: "returned", status: 500 }, /^outcome: give returned without other fields/],
  [{ outcome: "failed", status: 204 }, /^status: 204 contradicts/],
  [{ outcome: "ok", retryAfter: 5 }, /^retryAfter: /],
  [{ outcome: "failed", retryAfter: 86_401 }, /^retryAfter: /],
  [{ outcome: "ok", body: "a", bodyBase64: "YQ==" }, /^bodyBase64: /],
  [{ outcome: "ok", headers: { "a b": "c" } }, /^headers: /],
  [{ outcome: "ok", headers: { a: "b\r\nc: d" } }, /^headers: /],
  [{ outcome: "ok", headers: { a: "x".repeat(70_000) } }, /^headers: /],
  [{ outcome: "ok", more: 1 }, /^more: unknown field/],
  [{ extend: "13h" }, /^extend: /],
  [{ extend: "10m", outcome: "ok" }, /^extend: /],
  ["not json", /./],
])("the report %j is refused, and the attempt stays held", async (body, problem) => {
  const server = await createTestServer();
  const delivery = await hold(server);
  const reply = await report(server, tokenOf(delivery), body);
  expect(reply.status).toBeGreaterThanOrEqual(400);
  expect(reply.body.error).toMatch(problem);
  expect(await report(server, tokenOf(delivery), { outcome: "ok" })).toMatchObject({ status: 200 });
});
