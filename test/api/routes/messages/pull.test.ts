import { describe, expect, test } from "vitest";
import { createEgress } from "../../../../src/engine/delivery/http/egress.ts";
import { verifyJwt } from "../../../../src/engine/delivery/signature.ts";
import { limits } from "../../../../src/engine/core/values/limits.ts";
import { minute } from "../../../../src/engine/core/values/time.ts";
import type { Reply, TestServer } from "../../testServer.ts";
import { createTestServer, otherToken, testTime } from "../../testServer.ts";

const origin = "https://worker.internal";

async function openPulled(): Promise<TestServer> {
  const server = await createTestServer();
  const reply = await server.ask("PUT", "/v2/pulled", { body: JSON.stringify({ origin }) });
  expect(reply).toMatchObject({ status: 200, body: { origin } });
  return server;
}

/** Pulls as on a server whose claims have looked at all due messages. */
async function pull(server: TestServer, body: object = {}, token?: string): Promise<Reply> {
  await server.store.execute("claim", { limit: 10 });
  return server.ask("POST", "/v2/pull", {
    ...(token !== undefined && { token }),
    body: JSON.stringify({ origin, wait: "0s", ...body }),
  });
}

const report = (server: TestServer, attempt: string, body: object) =>
  server.ask("POST", "/v2/attempts", {
    ...{ token: null, body: JSON.stringify(body), headers: { "svc-attempt": attempt } },
  });

test("a client pulls the request as it would have been sent, and reports its outcome", async () => {
  const server = await openPulled();
  const { body: published } = await server.ask("POST", `/v2/publish/${origin}/orders?id=7`, {
    ...{ body: "order 7", headers: { "content-type": "text/plain", "svc-forward-x-shop": "a" } },
  });
  const waiting = await server.ask("GET", `/v2/messages/${published.messageId}`);
  expect(waiting.body.waitingOn).toMatchObject([{ reason: "due" }]);
  const { status, body, headers } = await pull(server, { wait: "5s" });
  const held = await server.ask("GET", `/v2/messages/${published.messageId}`);
  expect(held.body.waitingOn).toMatchObject([
    {
      ...{ reason: "acknowledging", pulled: true },
      text: "held by a client that pulled it since 2027-01-15T08:00:00.000Z, until 2027-01-15T08:05:00.000Z",
    },
  ]);
  expect([status, headers["cache-control"]]).toEqual([200, "no-store"]);
  const [attempt] = body.attempts;
  expect(attempt).toMatchObject({
    messageId: published.messageId,
    until: testTime + 5 * minute,
    method: "POST",
    url: `${origin}/orders?id=7`,
    headers: { "X-Shop": ["a"], "Content-Type": ["text/plain"], "Svc-Retried": ["0"] },
    bodyBase64: btoa("order 7"),
  });
  const verified = verifyJwt(attempt.headers["Svc-Signature"][0], {
    ...{ keys: ["sig_1"], body: Buffer.from("order 7"), url: `${origin}/orders?id=7`, now: testTime },
  });
  expect(verified).not.toBeNull();
  expect((await report(server, attempt.attempt, { extend: "10m" })).status).toBe(200);
  expect((await report(server, attempt.attempt, { outcome: "ok", body: "made" })).body).toMatchObject({
    became: "delivered",
  });
  expect((await report(server, attempt.attempt, { outcome: "failed" })).body.code).toBe("attempt-reported");
  expect((await pull(server)).body).toEqual({ attempts: [] });
});

test("a message is delivered even if another node recorded a little later that it was pulled", async () => {
  const server = await openPulled();
  const { body: published } = await server.ask("POST", `/v2/publish/${origin}/a`);
  const { body } = await pull(server, { wait: "5s" });
  expect((await report(server, body.attempts[0].attempt, { outcome: "ok" })).status).toBe(200);
  const { log } = server.memory.tables;
  const [key, held] = [...log].find(([, { states }]) => states.includes("ACKNOWLEDGING")) ?? [];
  if (key === undefined || !held) throw new Error("nothing was pulled");
  const id = `${testTime + 5}-000000000`;
  log.delete(key);
  log.set(key.replace(held.id, id), { ...held, id });
  expect((await server.ask("GET", `/v2/messages/${published.messageId}`)).body.state).toBe("delivered");
});

test("a pull waits for the next message, and several pulls share the messages", async () => {
  const server = await openPulled();
  const pulls = [1, 2, 3].map(() => pull(server, { max: 1, wait: "20s" }));
  await expect.poll(() => server.pullers.room?.get(`acc_1 worker.internal`)).toBe(3);
  for (const path of ["a", "b", "c"]) await server.ask("POST", `/v2/publish/${origin}/${path}`);
  const urls = (await Promise.all(pulls)).map(({ body }) => body.attempts[0].url);
  expect(urls.map(String).toSorted()).toEqual(["a", "b", "c"].map((path) => `${origin}/${path}`));
});

test("a pull that is given back does not raise the number of retries, and a failure does", async () => {
  const server = await openPulled();
  const waiting = server.pullers.pull({
    ...{ account: "acc_1", host: "worker.internal", max: 1, wait: minute, lease: minute },
    hasLeft: new AbortController().signal,
  });
  await server.ask("POST", `/v2/publish/${origin}/a`);
  const cut = await waiting;
  expect(cut.attempts[0]?.request.headers.join(" ")).toContain("Svc-Retried 0");
  cut.end(false);
  const list = async () => (await server.ask("GET", "/v2/messages?state=pending")).body.messages;
  await expect.poll(list).toHaveLength(1);
  const read = async () => (await pull(server, { wait: "5s" })).body.attempts[0];
  const first = await read();
  expect(first.headers["Svc-Retried"]).toEqual(["0"]);
  expect(first.attempt).not.toBe(cut.attempts[0]?.token);
  expect((await report(server, first.attempt, { outcome: "failed", retryAfter: 0 })).status).toBe(200);
  const { events } = (await server.ask("GET", "/v2/events?state=ERROR")).body;
  expect(events).toMatchObject([
    { error: "the receiver reported status 500", responseStatus: 500 },
    { error: "no puller received the attempt", explanation: expect.stringContaining("Another pull gets") },
  ]);
  expect(events[0]).not.toHaveProperty("attempt");
  expect((await read()).headers["Svc-Retried"]).toEqual(["1"]);
});

test("a client gives an attempt back, and another pull that waits gets the message at once", async () => {
  const server = await openPulled();
  await server.ask("POST", `/v2/publish/${origin}/a`, { headers: { "svc-retries": "0" } });
  const [first] = (await pull(server)).body.attempts;
  const waiting = pull(server, { wait: "60s" });
  const returned = { outcome: "returned" };
  const answer = { status: 200, body: { messageId: first.messageId, became: "retry" } };
  for (let turn = 0; turn < 2; turn++)
    expect(await report(server, first.attempt, returned)).toMatchObject(answer);
  await server.store.execute("claim", { limit: 10 });
  const [second] = (await waiting).body.attempts;
  expect(second.messageId).toBe(first.messageId);
  expect(second.headers["Svc-Retried"]).toEqual(["0"]);
  const { body } = await server.ask("POST", "/v2/attempts/batch", {
    body: JSON.stringify({ reports: [{ attempt: second.attempt, ...returned }] }),
  });
  expect(body.results).toEqual([answer.body]);
  const { events } = (await server.ask("GET", "/v2/events?state=ERROR")).body;
  const error = "the client that pulled the attempt gave it back";
  const explanation = expect.stringContaining("had not begun the work");
  expect(events).toMatchObject([
    { error, explanation },
    { error, explanation },
  ]);
});

test("an origin is removed under either scheme", async () => {
  const server = await openPulled();
  const path = `/v2/pulled?origin=${encodeURIComponent(origin.replace("https", "http"))}`;
  expect((await server.ask("DELETE", path)).status).toBe(200);
  expect((await server.ask("GET", "/v2/pulled")).body).toEqual({ origins: [] });
});

test("pulls that wait are answered at once when their origin is removed", async () => {
  const server = await openPulled();
  const waiting = [1, 2].map(() => pull(server, { wait: "60s" }));
  await expect.poll(() => server.pullers.room?.get(`acc_1 worker.internal`)).toBe(2);
  const path = `/v2/pulled?origin=${encodeURIComponent(origin)}`;
  expect((await server.ask("DELETE", path)).status).toBe(200);
  const error = `origin: ${origin} is not pulled; declare it with PUT /v2/pulled`;
  for (const { status, body } of await Promise.all(waiting))
    expect([status, body]).toEqual([404, expect.objectContaining({ code: "not-found", error })]);
  expect(server.pullers.room).toBeUndefined();
});

test("a few accounts cannot take the places of all pulls that wait", async () => {
  const { pullers } = await createTestServer();
  const wait = (account: string) =>
    pullers.pull({
      ...{ account, host: "worker.internal", max: 1, wait: minute, lease: minute },
      hasLeft: new AbortController().signal,
    });
  const eighth = limits.serverPulls / 8;
  const open = (account: string, count: number): void => {
    for (let at = 0; at < count; at++) void wait(account);
  };
  for (const account of ["a", "b", "c"]) open(account, limits.pulls);
  expect(() => wait("a")).toThrow(
    `pull: ${limits.pulls} pulls of the account wait on this server, which is its share`,
  );
  open("d", limits.pulls);
  open("e", eighth);
  expect(() => wait("e")).toThrow(
    `pull: ${eighth} pulls of the account wait on this server, which is its share`,
  );
  open("f", 750);
  expect(() => wait("g")).toThrow(`pull: ${limits.serverPulls} pulls wait on this server`);
  pullers.close();
});

test("a token that is revoked while its pull waits receives nothing, and another pull does", async () => {
  const server = await openPulled();
  const { body: made } = await server.ask("POST", "/v2/tokens", {
    body: JSON.stringify({ name: "worker", verbs: ["receive"] }),
  });
  const waiting = pull(server, { wait: "20s" }, made.token);
  await expect.poll(() => server.pullers.room?.get(`acc_1 worker.internal`)).toBe(1);
  expect((await server.ask("DELETE", `/v2/tokens/${made.tokenId}`)).status).toBe(200);
  const { body: published } = await server.ask("POST", `/v2/publish/${origin}/secret`);
  const { status, body } = await waiting;
  expect([status, JSON.stringify(body).includes("secret")]).toEqual([401, false]);
  expect((await pull(server, { wait: "5s" })).body.attempts).toMatchObject([published]);
});

test("an address that is not public may be pulled from, and the publish warns of nothing", async () => {
  const { findHostRefusal: refusedHost } = createEgress({ allow: [] });
  const server = await createTestServer({ refusedHost });
  const publish = () => server.ask("POST", "/v2/publish/http://10.1.2.3/work");
  expect((await publish()).body.warnings).toHaveLength(1);
  await server.ask("PUT", "/v2/pulled", { body: JSON.stringify({ origin: "http://10.1.2.3" }) });
  expect((await publish()).body.warnings).toBeUndefined();
});

test("a pull takes at most max attempts, in order, and the others wait for a puller", async () => {
  const server = await openPulled();
  for (const path of ["a", "b", "c"]) await server.ask("POST", `/v2/publish/${origin}/${path}`);
  const { body } = await pull(server, { max: 2, wait: "5s" });
  expect(body.attempts.map(({ url }: { url: string }) => url)).toEqual([`${origin}/a`, `${origin}/b`]);
  const [left] = (await server.ask("GET", "/v2/messages?state=held")).body.messages;
  expect(left).toMatchObject({ url: `${origin}/c` });
  expect((await server.ask("GET", `/v2/messages/${left.messageId}`)).body.waitingOn).toMatchObject([
    {
      reason: "puller",
      origin,
      since: testTime,
      text: expect.stringContaining(`waits for a client that pulls from ${origin}, since 2`),
    },
  ]);
});

test("a minute without a puller is a condition, and a puller with too much work is a note", async () => {
  const server = await openPulled();
  for (const path of ["a", "b"]) await server.ask("POST", `/v2/publish/${origin}/${path}`);
  await server.store.execute("claim", { limit: 10 });
  const list = async () => (await server.ask("GET", "/v2/overview")).body.conditions;
  server.clock.now = testTime + minute - 1;
  expect(await list()).toEqual([]);
  server.clock.now = testTime + minute;
  expect(await list()).toMatchObject([
    {
      ...{ kind: "puller.missing", level: "warning", subject: origin, count: 2, oldestDueAt: testTime },
      text: `No client pulls from ${origin}: 2 messages wait, the oldest for 1 min`,
    },
  ]);
  expect((await pull(server, { wait: "5s" })).body.attempts).toHaveLength(1);
  expect(await list()).toMatchObject([
    {
      ...{ kind: "puller.busy", level: "note", subject: origin, count: 1 },
      text: `The clients of ${origin} hold 1 message: 1 message waits, the oldest for 1 min`,
    },
  ]);
});

test("a client that died does not pass for a busy one while its lease runs", async () => {
  const server = await openPulled();
  await server.ask("POST", `/v2/publish/${origin}/a`);
  expect((await pull(server, { wait: "5s", lease: "1h" })).body.attempts).toHaveLength(1);
  server.clock.now += 1;
  await server.ask("POST", `/v2/publish/${origin}/b`);
  await server.store.execute("claim", { limit: 10 });
  server.clock.now += minute;
  expect((await server.ask("GET", "/v2/overview")).body.conditions).toMatchObject([
    {
      ...{ kind: "puller.missing", level: "warning", subject: origin, count: 1 },
      text: expect.stringMatching(/^No client pulls from .* Clients still hold 1 message from before$/),
    },
  ]);
});

test("the origins are listed and removed, and each account has its own", async () => {
  const server = await openPulled();
  const list = (token?: string) => server.ask("GET", "/v2/pulled", token === undefined ? {} : { token });
  expect((await list()).body).toEqual({ origins: [{ origin }] });
  expect((await list(otherToken)).body).toEqual({ origins: [] });
  const remove = (token?: string) =>
    server.ask(
      "DELETE",
      `/v2/pulled?origin=${encodeURIComponent(origin)}`,
      token === undefined ? {} : { token },
    );
  expect((await remove(otherToken)).status).toBe(404);
  expect((await remove()).body).toEqual({ removed: 1 });
  expect((await remove()).status).toBe(404);
  expect((await pull(server)).status).toBe(404);
});

test("another account gets nothing from the origin", async () => {
  const server = await openPulled();
  await server.ask("POST", `/v2/publish/${origin}/a`);
  expect((await pull(server, {}, otherToken)).body).toMatchObject({
    ...{ code: "not-found", error: expect.stringContaining(`${origin} is not pulled; declare it`) },
  });
  const own = await server.ask("PUT", "/v2/pulled", { token: otherToken, body: JSON.stringify({ origin }) });
  expect(own.status).toBe(200);
  expect((await pull(server, {}, otherToken)).body).toEqual({ attempts: [] });
  expect((await pull(server)).body.attempts).toHaveLength(1);
});

test.each([
  [{ origin: "worker" }, "origin"],
  [{ max: 0 }, "max"],
  [{ max: 101 }, "max"],
  [{ max: 1.5 }, "max"],
  [{ wait: "61s" }, "wait"],
  [{ wait: "soon" }, "wait"],
  [{ lease: "13h" }, "lease"],
  [{ lease: "0s" }, "lease"],
  [{ other: 1 }, "other"],
])("a pull with %j is refused", async (body, field) => {
  const reply = await pull(await openPulled(), body);
  expect([reply.status, reply.body.error]).toEqual([400, expect.stringContaining(field)]);
});

describe("the rights of tokens", () => {
  const withToken = async (server: TestServer, body: object): Promise<string> => {
    const reply = await server.ask("POST", "/v2/tokens", { body: JSON.stringify(body) });
    expect(reply.status).toBe(201);
    return reply.body.token;
  };

  test.each([["publish"], ["read"], ["manage"]])("a token that may only %s cannot pull", async (verb) => {
    const server = await openPulled();
    const token = await withToken(server, { verbs: [verb] });
    expect((await pull(server, {}, token)).body).toMatchObject({
      ...{ code: "forbidden", error: expect.stringContaining("requires 'receive'") },
    });
  });

  test("a token that may receive can pull, and nothing else", async () => {
    const server = await openPulled();
    await server.ask("POST", `/v2/publish/${origin}/a`);
    const token = await withToken(server, { verbs: ["receive"] });
    expect((await pull(server, {}, token)).body.attempts).toHaveLength(1);
    for (const [method, path] of [
      ...[["GET", "/v2/pulled"] as const, ["GET", "/v2/messages"] as const],
      ["POST", `/v2/publish/${origin}/a`] as const,
    ])
      expect((await server.ask(method, path, { token })).status).toBe(403);
    expect((await server.ask("PUT", "/v2/pulled", { token, body: JSON.stringify({ origin }) })).status).toBe(
      403,
    );
  });

  test.each([
    [[`${origin}/*`], 200],
    [["https://other.internal/*", `${origin}/*`], 200],
    [["https://*.worker.internal/*"], 403],
    [[`${origin}/orders/*`], 403],
    [[origin], 403],
    [[`http://worker.internal/*`], 403],
    [["queue:q", `${origin}/*`], 403],
    [["group:g"], 403],
  ] as const)("a token with the destinations %j gets %i", async (destinations, status) => {
    const server = await openPulled();
    const token = await withToken(server, { verbs: ["receive"], destinations });
    expect((await pull(server, {}, token)).status).toBe(status);
    // The other scheme of the host names the same origin.
    const other = origin.replace("https:", "http:");
    expect((await pull(server, { origin: other }, token)).status).toBe(status);
  });
});
