import { describe, expect, test } from "vitest";
import { createTestServer, otherToken } from "../../testServer.ts";
import type { TestServer } from "../../testServer.ts";

async function publish(
  { ask, deliveries }: TestServer,
  url: string,
  { headers = {}, body = "" }: { headers?: Record<string, string>; body?: string | Buffer } = {},
) {
  const reply = await ask("POST", `/v2/publish/${url}`, { headers, body });
  expect(reply.status).toBe(200);
  return { id: String(reply.body.messageId), delivery: deliveries.at(-1) };
}

describe("a message that is read", () => {
  test("has all its fields", async () => {
    const server = await createTestServer();
    const { id } = await publish(server, "https://e.example/x?y", {
      headers: {
        "svc-method": "PUT",
        "svc-delay": "1m",
        "svc-retries": "5",
        "svc-retry-delay": "retried * 1000",
        "svc-label": "a,b",
        "svc-callback": "https://c.example/%zz",
        "svc-failure-callback": "https://f.example",
        "svc-forward-x-a": "1",
        "content-type": "text/plain",
      },
      body: "ü",
    });
    const { status, body } = await server.ask("GET", `/v2/messages/${id}`);
    expect(status).toBe(200);
    expect(body).toEqual({
      messageId: id,
      url: "https://e.example/x?y",
      method: "PUT",
      body: "ü",
      maxRetries: 5,
      retryDelayExpression: "retried * 1000",
      header: { "Content-Type": ["text/plain"], "X-A": ["1"] },
      createdAt: server.clock.now,
      notBefore: server.clock.now + 60_000,
      callback: "https://c.example/%zz",
      failureCallback: "https://f.example",
      callerIP: "127.0.0.1",
      label: "a",
      labels: ["a", "b"],
      state: "pending",
      dueAt: server.clock.now + 60_000,
      attempts: 0,
      outcomes: [],
      waitingOn: [
        { reason: "not-due", text: "due at 2027-01-15T08:01:00.000Z", until: server.clock.now + 60_000 },
      ],
    });
  });

  test("has its body in base64 if it is not UTF-8, and none if it is empty", async () => {
    const server = await createTestServer();
    const binary = await publish(server, "https://e.example", { body: Buffer.from([0xff, 0]) });
    expect((await server.ask("GET", `/v2/messages/${binary.id}`)).body).toMatchObject({ bodyBase64: "/wA=" });
    const empty = await publish(server, "https://e.example");
    const { body } = await server.ask("GET", `/v2/messages/${empty.id}`);
    expect(body).not.toHaveProperty("body");
    expect(body).not.toHaveProperty("bodyBase64");
  });

  test("hides the redacted parts", async () => {
    const server = await createTestServer();
    const headers = {
      "svc-redact-fields": "body, header[x-a]",
      "svc-forward-x-a": "1",
      "svc-forward-x-b": "2",
    };
    const { id, delivery } = await publish(server, "https://e.example", { headers, body: "abc" });
    const hidden = { body: "REDACTED:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" };
    const header = {
      "X-A": ["REDACTED:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"],
      "X-B": ["2"],
    };
    expect((await server.ask("GET", `/v2/messages/${id}`)).body).toMatchObject({ ...hidden, header });
    expect((await server.ask("GET", "/v2/logs")).body.logs[0]).toMatchObject({ ...hidden, header });
    expect(Buffer.from(delivery?.message.body ?? []).toString()).toBe("abc");
  });

  test("redacts the same parts in its callbacks", async () => {
    const server = await createTestServer();
    const headers = {
      "svc-redact-fields": "header[Authorization]",
      "svc-retries": "0",
      "svc-callback": "https://c.example",
      "svc-callback-forward-authorization": "s3cret",
      "svc-failure-callback": "https://f.example",
      "svc-failure-callback-forward-authorization": "s3cret",
    };
    await publish(server, "https://e.example", { headers });
    await server.settle(server.delivery(), { status: 500 });
    const callbacks = server.deliveries.map(({ message }) => message);
    expect(callbacks.map(({ headers: sent }) => sent)).toEqual([
      expect.arrayContaining([["Authorization", "s3cret"]]),
      expect.arrayContaining([["Authorization", "s3cret"]]),
    ]);
    for (const { id } of callbacks) {
      const { body } = await server.ask("GET", `/v2/messages/${id}`);
      expect(body.header).toMatchObject({
        Authorization: [expect.stringMatching(/^REDACTED:/)],
        "Content-Type": ["application/json"],
      });
    }
    expect(JSON.stringify((await server.ask("GET", "/v2/logs")).body)).not.toContain("s3cret");
  });

  test("can be read after its end, and only by its account, until its log is removed", async () => {
    const server = await createTestServer();
    const { id, delivery } = await publish(server, "https://e.example", { body: "abc" });
    if (delivery) await server.settle(delivery, { status: 200 });
    const finishedAt = server.clock.now;
    server.clock.now += 3_600_000;
    const { status, body } = await server.ask("GET", `/v2/messages/${id}`);
    expect(status).toBe(200);
    expect(body).toMatchObject({ messageId: id, body: "abc", state: "delivered", finishedAt });
    expect(body).not.toHaveProperty("waitingOn");
    expect((await server.ask("GET", `/v2/messages/${id}`, { token: otherToken })).status).toBe(404);
    server.clock.now += 86_400_000;
    await server.store.execute("expire", {
      account: "acc_1",
      now: server.clock.now,
      retention: { log: 86_400_000, deadLetters: 86_400_000 },
      limit: 100,
    });
    expect(await server.ask("GET", `/v2/messages/${id}`)).toMatchObject({
      status: 404,
      body: { error: `message: there is no message "${id}"; its log may have been removed` },
    });
  });

  test("shows how it ended, and its dead letter as long as that exists", async () => {
    const server = await createTestServer();
    const failing = await publish(server, "https://e.example", { headers: { "svc-retries": "0" } });
    await server.settle(server.delivery(), { status: 500 });
    const [{ dlqId }] = (await server.ask("GET", "/v2/dlq")).body.messages;
    const read = async (id: string) => (await server.ask("GET", `/v2/messages/${id}`)).body;
    expect(await read(failing.id)).toMatchObject({ state: "failed", finishedAt: server.clock.now, dlqId });
    const cancelled = await publish(server, "https://e.example");
    await server.ask("DELETE", `/v2/messages/${cancelled.id}`);
    expect(await read(cancelled.id)).toMatchObject({ state: "cancelled" });
    await server.settle(server.delivery(), { status: 200 });
    expect(await read(cancelled.id)).toMatchObject({ state: "cancelled", finishedAt: server.clock.now });
    await server.store.execute("retryDeadLetters", {
      account: "acc_1",
      dlqIds: [dlqId],
      logRetention: 86_400_000,
      overrides: {},
    });
    expect(await read(failing.id)).toMatchObject({ state: "failed" });
    expect(await read(failing.id)).not.toHaveProperty("dlqId");
  });

  test("that waits is sent now, once, and not for another account", async () => {
    const server = await createTestServer();
    const { id } = await publish(server, "https://e.example", { headers: { "svc-delay": "1h" } });
    const sendNow = (token?: string) =>
      server.ask("POST", `/v2/messages/${id}/send-now`, token === undefined ? {} : { token });
    expect((await sendNow(otherToken)).status).toBe(404);
    expect(await sendNow()).toMatchObject({ status: 200, body: { messageId: id, changed: true } });
    expect((await server.ask("GET", `/v2/messages/${id}`)).body).toMatchObject({
      dueAt: server.clock.now,
      waitingOn: [{ reason: "due" }],
    });
    await server.store.execute("claim", { limit: 10 });
    expect(await sendNow()).toMatchObject({ status: 200, body: { changed: false } });
    await server.settle(server.delivery(), { status: 200 });
    expect(await sendNow()).toMatchObject({
      status: 404,
      body: {
        error:
          `message: there is no unfinished message "${id}"; GET /v2/messages/{messageId} reads a ` +
          "finished one",
      },
    });
    for (const other of ["msg_none", "%2e%2e", "x".repeat(5_000)])
      expect((await server.ask("POST", `/v2/messages/${other}/send-now`)).status).toBe(404);
  });

  test.each(["unknown", "msg_%00", "..%2f", "%f0%9f%92%a3", "a'--"])(
    "has status 404 for the id %s",
    async (id) => {
      const { ask } = await createTestServer();
      expect(await ask("GET", `/v2/messages/${id}`)).toMatchObject({
        status: 404,
        body: { error: expect.stringMatching(/^message: there is no/) },
      });
      expect((await ask("DELETE", `/v2/messages/${id}`)).status).toBe(404);
    },
  );
});

describe("cancelling", () => {
  test("counts a message once, and knows finished messages for a minute", async () => {
    const server = await createTestServer();
    const { id } = await publish(server, "https://e.example", { headers: { "svc-delay": "1h" } });
    expect(await server.ask("DELETE", `/v2/messages/${id}`, { token: otherToken })).toMatchObject({
      status: 404,
    });
    expect(await server.ask("DELETE", `/v2/messages/${id}`)).toMatchObject({
      status: 200,
      body: { cancelled: 1 },
    });
    expect(await server.ask("DELETE", `/v2/messages/${id}`)).toMatchObject({
      status: 200,
      body: { cancelled: 0 },
    });
    server.clock.now += 60_001;
    expect((await server.ask("DELETE", `/v2/messages/${id}`)).status).toBe(404);
  });

  test("of a message in flight succeeds at once, and is final when its request has ended", async () => {
    const server = await createTestServer();
    const { id } = await publish(server, "https://e.example");
    const delivery = server.delivery();
    server.clock.now += 10;
    expect(await server.ask("DELETE", `/v2/messages/${id}`)).toMatchObject({
      status: 200,
      body: { cancelled: 1 },
    });
    expect(await server.ask("DELETE", `/v2/messages/${id}`)).toMatchObject({
      status: 200,
      body: { cancelled: 0 },
    });
    expect((await server.ask("DELETE", "/v2/messages")).body).toEqual({ cancelled: 0 });
    const shown = await server.ask("GET", `/v2/messages/${id}`);
    expect([shown.status, shown.body.waitingOn]).toEqual([200, undefined]);
    const log = async () =>
      (await server.ask("GET", `/v2/logs?messageId=${id}`)).body.events as { state: string }[];
    expect((await log()).map(({ state }) => state)).toEqual(["CANCEL_REQUESTED", "ACTIVE", "CREATED"]);
    server.clock.now += 10;
    await server.settle(delivery, { status: 503, headers: [["X-A", "1"]], body: Buffer.from("busy") });
    const answer = {
      responseStatus: 503,
      responseHeaders: { "X-A": ["1"] },
      responseBody: Buffer.from("busy").toString("base64"),
    };
    expect((await log())[0]).toMatchObject({ state: "CANCELLED", ...answer });
    expect((await log())[0]).not.toHaveProperty("nextDeliveryTime");
    server.clock.now += 60_001;
    expect((await server.ask("DELETE", `/v2/messages/${id}`)).status).toBe(404);
  });

  /**
   * Publishes four messages: `a` and `b` to one host, `c` to another, `d` with a label and one second later.
   */
  const four = async () => {
    const server = await createTestServer();
    const later = { "svc-delay": "1h" };
    const a = await publish(server, "https://one.example/a", { headers: { ...later, "svc-label": "x" } });
    const b = await publish(server, "https://one.example/b,c?d=1,https", { headers: later });
    const c = await publish(server, "https://two.example/a", { headers: later });
    server.clock.now += 1_000;
    const d = await publish(server, "https://three.example/", { headers: { ...later, "svc-label": "x,y" } });
    return { server, ids: { a: a.id, b: b.id, c: c.id, d: d.id } };
  };

  const from = 1_800_000_001_000;
  test.each([
    ["", "abcd"],
    ["?count=2", "ab"],
    ["?host=one.example", "ab"],
    ["?host=one.example&path=/a", "a"],
    ["?host=ONE.example,two.example", "abc"],
    ["?host=one.example&host=two.example&path=/a", "ac"],
    ["?label=x", "ad"],
    ["?label=y,z", "d"],
    ["?url=https://one.example/a,https://two.example/a", "ac"],
    ["?url=https://one.example/b,c%3Fd=1,https", "b"],
    ["?path=/b,c", "b"],
    ["?path=/b,c,/a", "abc"],
    [`?fromDate=${from}`, "d"],
    [`?toDate=${from - 1}`, "abc"],
    [`?fromDate=${from}&label=none`, ""],
    ["?callerIp=127.0.0.1", "abcd"],
    ["?callerIP=1.1.1.1", ""],
    ["?queueName=q", ""],
    ["?topicName=t&flowControlKey=f&scheduleId=s", ""],
  ])("with %s cancels %s", async (query, expected) => {
    const { server, ids } = await four();
    expect(await server.ask("DELETE", `/v2/messages${query}`)).toMatchObject({
      status: 200,
      body: { cancelled: expected.length },
    });
    const left = await Promise.all(
      Object.entries(ids).map(async ([name, id]) =>
        (await server.store.read.message("acc_1", id))?.state ? name : "",
      ),
    );
    expect("abcd".replace(new RegExp(`[${left.join("")}-]`, "g"), "")).toBe(expected);
  });

  test("with ids ignores other filters, skips unknown ids, and accepts the same as JSON", async () => {
    const { server, ids } = await four();
    const url =
      `/v2/messages?details=true&messageIds=${ids.a},msg_unknown&messageIds=${ids.b}&messageIds=%00` +
      "&host=none.example&count=1";
    const stranger = (id: string) => ({ id, reason: "the message does not exist" });
    expect((await server.ask("DELETE", url)).body).toEqual({
      cancelled: 2,
      failed: [stranger("\0"), stranger("msg_unknown")],
    });
    expect(
      (await server.ask("DELETE", "/v2/messages", { body: JSON.stringify({ messageIds: [ids.a, ids.c] }) }))
        .body,
    ).toEqual({ cancelled: 1 });
    expect((await server.ask("DELETE", `/v2/messages?details=true&messageIds=${ids.a}`)).body).toEqual({
      cancelled: 0,
      failed: [{ id: ids.a, reason: "the message has finished or was already cancelled" }],
    });
    expect((await server.ask("DELETE", "/v2/messages", { body: '{"label":"x","count":5}' })).body).toEqual({
      cancelled: 1,
    });
  });

  test.each([
    ["?messageIds=", "", "messageIds: is empty"],
    ["?messageIds=a,,b", "", "messageIds: has an empty value"],
    ["?label", "", "label: is empty"],
    ["?count=0", "", "count: must be at least 1"],
    ["?count=501", "", "count: must be at most 500"],
    ["?count=1e2", "", "count: is not a whole number"],
    ["?count=99999999999999999999", "", "count: is not a whole number"],
    ["?count=1&count=2", "", "count: is given more than once, with different values"],
    ["?fromDate=yesterday", "", "fromDate: is not a whole number"],
    ["?fromDate=-1", "", "fromDate: is not a whole number"],
    ["?label=%zz", "", "label: the percent-encoding is malformed or not UTF-8"],
    ["?labels=x", "", "labels: unknown parameter; did you mean label?"],
    [
      "?dlqIds=x",
      "",
      "dlqIds: unknown parameter; use messageIds, url, topicName, queueName, scheduleId, " +
        "label, flowControlKey, callerIp, callerIP, fromDate, toDate, host, path, state, gate, dueFrom, " +
        "dueTo, minAttempts, count, dryRun, details",
    ],
    ["", '{"messageIds":[]}', "messageIds: is an empty list; give at least one value"],
    ["", '{"messageIds":[{}]}', "messageIds: is not a string, a number, true, false or a list of these"],
    ["", '{"label":null}', "label: is not a string, a number, true, false or a list of these"],
    ["", "[]", "body: not a JSON object"],
    ["", "{", "body: not valid JSON; error in line 1 at column 2"],
  ])("with %s and the body %s is refused, and cancels nothing", async (query, body, error) => {
    const server = await createTestServer();
    await publish(server, "https://e.example", { headers: { "svc-delay": "1h" } });
    expect(await server.ask("DELETE", `/v2/messages${query}`, body === "" ? {} : { body })).toMatchObject({
      status: 400,
      body: { error },
    });
    expect((await server.ask("DELETE", "/v2/messages")).body).toEqual({ cancelled: 1 });
  });
});

test("the refusal of an unknown method suggests nothing that deletes", async () => {
  const { ask } = await createTestServer();
  expect(await ask("POST", "/v2/messages")).toMatchObject({
    status: 405,
    headers: { allow: "DELETE, GET, HEAD" },
    body: {
      error:
        "method: POST is not allowed here; GET lists unfinished messages, and POST " +
        "/v2/publish/{destination} creates one",
    },
  });
  expect(await ask("POST", "/v2/workflows/runs")).toMatchObject({
    status: 405,
    headers: { allow: "DELETE, GET, HEAD" },
    body: {
      error:
        "method: POST is not allowed here; GET lists runs, and DELETE cancels all active runs, unless it " +
        "has filters",
    },
  });
});
