import { expect, test } from "vitest";
import type { TestServer } from "../../api/testServer.ts";
import { createTestServer, otherToken, testTime } from "../../api/testServer.ts";

const publish = async (server: TestServer, url = "https://e.example/x"): Promise<string> =>
  (await server.ask("POST", `/v2/publish/${url}`, { body: "hello" })).body.messageId;
const end = (
  server: TestServer,
  id: string,
  { attempt = 0, ...more }: { attempt?: number; token?: string } = {},
) => server.ask("POST", `/v2/messages/${id}/end-attempt?attempt=${attempt}`, more);
const endAll = (
  server: TestServer,
  host: string,
  { startedBefore = testTime, ...more }: { startedBefore?: number; token?: string } = {},
) => server.ask("POST", `/v2/hosts/${host}/end-attempts?startedBefore=${startedBefore}`, more);
const aborted = { status: null, error: "aborted" };

test("an attempt is ended once, and the log records it", async () => {
  const server = await createTestServer();
  const messageId = await publish(server);
  expect((await end(server, messageId)).body).toEqual({ messageId, ended: true });
  expect((await end(server, messageId)).body).toEqual({ messageId, ended: false });
  expect((await server.ask("GET", `/v2/messages/${messageId}`)).body).toMatchObject({
    state: "delivering",
    waitingOn: [{ reason: "sending", attempt: 0, ending: true, until: testTime + 900_000 }],
  });
  await server.settle(server.delivery(), aborted);
  const { body } = await server.ask("GET", `/v2/messages/${messageId}`);
  expect(body).toMatchObject({
    state: "pending",
    attempts: 1,
    dueAt: testTime + 12_182,
    outcomes: [{ error: "ended by operator", explanation: expect.stringContaining("uses up no retry") }],
  });
  const { body: log } = await server.ask("GET", `/v2/logs?messageId=${messageId}`);
  expect(log.events.map(({ state }: { state: string }) => state)).toEqual([
    "RETRY",
    "ERROR",
    "ACTIVE",
    "CREATED",
  ]);
});

test("an attempt that runs no more, or that began after the press, is not ended", async () => {
  const server = await createTestServer();
  const messageId = await publish(server);
  await server.settle(server.delivery(), { status: 500 });
  expect((await end(server, messageId)).body).toEqual({ messageId, ended: false });
  server.clock.now += 60_000;
  await server.store.execute("claim", { limit: 10 });
  expect((await end(server, messageId)).body).toEqual({ messageId, ended: false });
  expect((await endAll(server, "e.example")).body).toEqual({ ended: 0 });
  expect((await end(server, messageId, { attempt: 1 })).body).toEqual({ messageId, ended: true });
});

test("all attempts to a host are ended, of the own account alone", async () => {
  const server = await createTestServer();
  for (const url of ["https://e.example/a", "https://e.example:444/b", "https://f.example/c"])
    await publish(server, url);
  await server.ask("POST", "/v2/publish/https://e.example/d", { token: otherToken });
  server.clock.now += 1;
  const late = await publish(server);
  expect((await endAll(server, "e.example")).body).toEqual({ ended: 1 });
  expect((await endAll(server, "e.example")).body).toEqual({ ended: 0 });
  expect((await endAll(server, encodeURIComponent("e.example:444"))).body).toEqual({ ended: 1 });
  expect((await endAll(server, "unknown.example")).body).toEqual({ ended: 0 });
  expect(server.memory.tables.messages.get(`acc_1\n${late}`)?.state).toBe("active");
  const entries = [...server.memory.tables.audit.values()];
  expect(entries).toMatchObject([
    { account: "acc_1", what: "host.endAttempts", object: "e.example", count: 1, by: { token: "main" } },
    { account: "acc_1", what: "host.endAttempts", object: "e.example:444", count: 1 },
  ]);
});

test("the message of another account does not exist, and a token needs the right manage", async () => {
  const server = await createTestServer();
  const messageId = await publish(server);
  expect((await end(server, messageId, { token: otherToken })).status).toBe(404);
  expect((await end(server, "msg_none")).status).toBe(404);
  for (const verbs of [["read"], ["publish"], ["publish", "read"]]) {
    const { body } = await server.ask("POST", "/v2/tokens", { body: JSON.stringify({ verbs }) });
    expect((await end(server, messageId, { token: body.token })).status).toBe(403);
    expect((await endAll(server, "e.example", { token: body.token })).status).toBe(403);
  }
  expect(server.memory.tables.messages.get(`acc_1\n${messageId}`)?.state).toBe("active");
  const { body } = await server.ask("POST", "/v2/tokens", {
    body: JSON.stringify({ verbs: ["manage"], name: "ops" }),
  });
  expect((await end(server, messageId, { token: body.token })).body).toMatchObject({ ended: true });
  expect([...server.memory.tables.audit.values()].at(-1)).toMatchObject({
    what: "message.endAttempt",
    object: messageId,
    by: { kind: "token", token: body.tokenId },
  });
});

test.each([
  ["/v2/messages/msg_1/end-attempt", "attempt"],
  ["/v2/messages/msg_1/end-attempt?attempt=-1", "attempt"],
  ["/v2/messages/msg_1/end-attempt?attempt=x", "attempt"],
  ["/v2/hosts/e.example/end-attempts", "startedBefore"],
  ["/v2/hosts/e.example/end-attempts?startedBefore=now", "startedBefore"],
])("POST %s names what is wrong", async (path, name) => {
  const server = await createTestServer();
  const { status, body } = await server.ask("POST", path);
  expect(status).toBe(400);
  expect(body.error).toContain(name);
});
