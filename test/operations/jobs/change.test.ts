import { expect, test } from "vitest";
import { createTestServer } from "../../api/testServer.ts";
import { failMessage, listDeadLetters } from "../../api/routes/deadLetters/deadLetters.ts";
import { createJobOf as create, finish } from "./jobRunners.ts";

const text = (body: Uint8Array) => new TextDecoder().decode(body);

test("a job sends dead letters again with another URL, headers and body", async () => {
  const server = await createTestServer();
  for (const at of [1, 2])
    await failMessage(server, "https://wrong.example/in", {
      headers: { "svc-forward-x-a": "1", "svc-forward-x-b": "2" },
      body: `{"version":1,"order":${at}}`,
    });
  await failMessage(server, "https://wrong.example/in", { body: "no JSON" });
  const { messages } = await listDeadLetters(server);
  const change = {
    url: "https://right.example/in",
    headers: { "x-b": "3", "x-c": ["4"] },
    jsonPatch: [
      { op: "replace", path: "/version", value: 2 },
      { op: "remove", path: "/order" },
    ],
  };
  const jobId = await create(server, { action: "dlq.retry", filter: {}, change });
  const job = await finish(server, jobId);
  expect(job).toMatchObject({ state: "done", done: 2, failed: 1 });
  expect(job.failures).toEqual([
    { id: messages[2]?.dlqId, reason: expect.stringContaining("jsonPatch: the body is not JSON") },
  ]);
  expect((await listDeadLetters(server)).messages.map(({ dlqId }) => dlqId)).toEqual([messages[2]?.dlqId]);
  const sent = server.deliveries.splice(0);
  expect(sent.map(({ message }) => message.url)).toEqual([change.url, change.url]);
  expect(sent.map(({ message }) => text(message.body))).toEqual(['{"version":2}', '{"version":2}']);
  const [first] = sent;
  expect(first?.message.replayOf).toEqual({ messageId: messages[0]?.messageId, dlqId: messages[0]?.dlqId });
  const headers = first?.message.headers.filter(([name]) => /^x-/i.test(name));
  expect(headers?.map(([name, value]) => `${name.toLowerCase()}: ${value}`)).toEqual([
    "x-a: 1",
    "x-b: 3",
    "x-c: 4",
  ]);
});

test("a patch that fills what it has added is the same for each message", async () => {
  const server = await createTestServer();
  await failMessage(server, "https://one.example", { body: "[".repeat(200_000) + "]".repeat(200_000) });
  for (let at = 0; at < 6; at++) await failMessage(server, "https://one.example", { body: "{}" });
  await failMessage(server, "https://one.example", { body: Buffer.from('{"name":"Zoë"}', "latin1") });
  const jsonPatch = [
    { op: "add", path: "/tags", value: [] },
    { op: "add", path: "/tags/-", value: "again" },
  ];
  const jobId = await create(server, { action: "dlq.retry", filter: {}, change: { jsonPatch } });
  expect(await finish(server, jobId)).toMatchObject({ state: "done", done: 6, failed: 2 });
  const sent = server.deliveries.splice(0).map(({ message }) => text(message.body));
  expect(sent).toEqual(Array(6).fill('{"tags":["again"]}'));
});

test("a change shows no redacted part: neither to another URL, nor by what a patch finds", async () => {
  const server = await createTestServer();
  await failMessage(server, "https://one.example", {
    headers: { "svc-redact-fields": "body" },
    body: '{"pin":1234}',
  });
  for (const change of [
    { url: "https://evil.example" },
    { jsonPatch: [{ op: "test", path: "/pin", value: 1234 }] },
    { url: "https://evil.example", jsonPatch: [{ op: "add", path: "/x", value: 1 }] },
  ]) {
    const jobId = await create(server, { action: "dlq.retry", filter: {}, change });
    const { done, state, error = "", failures = [] } = await finish(server, jobId);
    expect({ done, state }).toMatchObject({ done: 0 });
    expect(JSON.stringify([error, failures])).toMatch(/redacted/);
    expect(server.deliveries.splice(0)).toEqual([]);
  }
  expect((await listDeadLetters(server)).messages).toHaveLength(1);
});

test.each([
  [{ action: "dlq.delete", change: {} }, /^change: not valid for dlq.delete/],
  [{ action: "dlq.retry", change: { url: "ftp://x" } }, /^change.url: /],
  [{ action: "dlq.retry", change: { body: "x" } }, /body: unknown field/],
  [{ action: "dlq.retry", change: { jsonPatch: [{ op: "copy", path: "/a" }] } }, /must be add, replace/],
  [{ action: "dlq.retry", change: { jsonPatch: [{ op: "add", path: "/a" }] } }, /add has no value/],
  [
    { action: "dlq.retry", change: { jsonPatch: [{ op: "add", path: "/a", value: "x".repeat(70_000) }] } },
    /^change: 70.* the limit is 65536/,
  ],
])("%j is refused", async (request, error) => {
  const server = await createTestServer();
  expect(
    await server.ask("POST", "/v2/jobs", { body: JSON.stringify({ filter: {}, ...request }) }),
  ).toMatchObject({
    status: 400,
    body: { error: expect.stringMatching(error) },
  });
});

test("a token without the verb read may change nothing", async () => {
  const server = await createTestServer();
  const rights = { name: "t", verbs: ["manage"] };
  const made = await server.ask("POST", "/v2/tokens", { body: JSON.stringify(rights) });
  const body = JSON.stringify({ action: "dlq.retry", filter: {}, change: { url: "https://two.example" } });
  expect(await server.ask("POST", "/v2/jobs", { token: String(made.body.token), body })).toMatchObject({
    status: 403,
    body: { error: expect.stringMatching(/requires 'read'/) },
  });
});
