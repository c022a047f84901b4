import { once } from "node:events";
import { connect } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { Refusal } from "../../../src/core/values/errors.ts";
import { createTestServer, otherToken, token } from "../testServer.ts";
import type { TestServer } from "../testServer.ts";
import { createRawClient, listen, parseReply, request, send } from "../wire.ts";

/** A server that counts which requests come to its framework. */
async function open(options: Parameters<typeof createTestServer>[0] = {}): Promise<TestServer & { port: number; usual: string[] }> {
  const home = await createTestServer(options);
  const usual: string[] = [];
  home.api.addHook("onResponse", async ({ originalUrl }) => void usual.push(originalUrl));
  return { ...home, port: await listen(home), usual };
}

const bearer = (secret = token): string => `Authorization: Bearer ${secret}`;

/** The same bytes as one chunk, whose length is not said beforehand. */
const chunked = (line: string, headers: readonly string[], body: string): string =>
  [
    ...[line, "Host: x", "Connection: close", "Transfer-Encoding: chunked", ...headers, ""],
    ...(body === "" ? ["0", "", ""] : [Buffer.byteLength(body, "latin1").toString(16), body, "0", "", ""]),
  ].join("\r\n");

/** The bytes of an answer, without what is of the moment. */
const lasting = (received: string): string => received.replace(/^Date: .*\r\n/m, "").replace(/msg_\w+|wfr_\w+/g, "id");

const body = '{"a":1}';
const questions: [name: string, target: string, headers: readonly string[], body: string][] = [
  ["a plain one", "https://e.example/hook?a=1&b=%20", ["Content-Type: application/json"], body],
  ["without a body", "https://e.example/", [], ""],
  ["settings as headers", "https://e.example/", ["Svc-Delay: 10s", "Svc-Retries: 2", "Svc-Label: x", "Svc-Forward-X-A: 1"], body],
  ["settings in the query", "https://e.example/?svc-delay=10s&svc-retries=2&x=1", [], body],
  ["settings of the other brand, one of them unknown", "https://e.example/", ["Upstash-Delay: 10s", "Upstash-Odd-One: 1"], body],
  ["a setting that is wrong", "https://e.example/", ["Svc-Delay: soon"], body],
  ["a setting that is unknown", "https://e.example/", ["Svc-Odd: 1"], body],
  ["a destination that is none", "ftp://e.example/", [], body],
  ["no destination", "", [], body],
  ["a URL group that is not there", "nobody", [], body],
  ["a URL group", "team", [], body],
  ["odd bytes in the destination", "https://e.example/%zz/%ff?%zz", [], body],
  ["a percent-encoded destination", "https%3A%2F%2Fe.example%2Fx", [], body],
  [
    "a start of a workflow run",
    "https://e.example/flow",
    ["Upstash-Workflow-Init: true", "Upstash-Workflow-RunId: wfr_1", "Upstash-Workflow-Url: https://e.example/flow"],
    body,
  ],
  [
    "a step of a run that is not there",
    "https://e.example/flow",
    ["Upstash-Workflow-RunId: wfr_none", "Upstash-Workflow-CallType: step"],
    body,
  ],
  ["more retries than there may be", "https://e.example/", ["Svc-Retries: 100000"], body],
];

const e = "https://e.example/";
const plain = `/v2/publish/${e} HTTP/1.1`;
const steps = { "Upstash-Workflow-RunId": "wfr_1", "Upstash-Workflow-Init": "true", "Upstash-Workflow-Url": e };
const lists: [name: string, headers: readonly string[], list: unknown][] = [
  ["a list of one", [], [{ destination: e, body: "x", headers: { "Svc-Delay": "10s" } }]],
  [
    "a list of several, some refused",
    ["Upstash-Odd: 1"],
    [{ destination: e }, { destination: "nobody" }, { destination: "team" }, { odd: 1 }],
  ],
  ["a list of refused ones", [], [{ destination: "ftp://e" }, {}]],
  ["a list that starts a run", [], [{ destination: e, headers: steps, body: "x" }]],
  [
    "a list with a step of a run that is not there",
    [],
    [{ destination: e, headers: { "Upstash-Workflow-RunId": "wfr_none", "Upstash-Workflow-CallType": "step" } }],
  ],
  [
    "a list for a queue",
    [],
    [
      { destination: e, queue: "q" },
      { destination: e, queue: "not a name" },
    ],
  ],
  ["an empty list", [], []],
  ["no list", [], { destination: e }],
];

test.each([
  ...questions.map(([name, target, headers, text]) => [name, `/v2/publish/${target}`, headers, text] as const),
  ...lists.map(([name, headers, list]) => [name, "/v2/batch", headers, JSON.stringify(list)] as const),
  ["a list that is no JSON", "/v2/batch", [], "[{"] as const,
  ["a list without a body", "/v2/batch", [], ""] as const,
  ["a list with a query", "/v2/batch?x=1", [], "[]"] as const,
  ["a list at a path that ends with a slash", "/V2/Batch/", [], "[]"] as const,
  ["a publish without a path behind it", "/v2/publish", [], ""] as const,
])("%s is answered as the framework answers it, byte by byte", async (_name, target, headers, text) => {
  const line = `POST ${target} HTTP/1.1`;
  const answers = [];
  for (const fastPath of [true, false]) {
    const { ask, port, usual, lines } = await open({ fastPath });
    await ask("POST", "/v2/topics/team/endpoints", { body: JSON.stringify({ endpoints: [{ url: "https://one.example" }] }) });
    usual.length = 0;
    const answer = lasting(await send(port, request(line, [bearer(), ...headers], text)));
    expect(usual).toHaveLength(fastPath ? 0 : 1);
    // The time that it took is of the moment.
    answers.push({ answer, logged: { ...lines.at(-1), ms: 0 } });
  }
  expect(answers[0]).toEqual(answers[1]);
});

const endings: [name: string, target: string, body: string, isPlain: boolean][] = [
  ["the end of a run", "wfr_1?cancel=false", '"result"', true],
  ["the end of a run without a result", "wfr_1?cancel=false", "", true],
  ["the end of a run that is not there", "wfr_none?cancel=false", "x", true],
  ["the cancelling of a run", "wfr_1", "", true],
  ["the cancelling of a run, said in so many words", "wfr_1?cancel=true", "", true],
  ["an end with another parameter", "wfr_1?cancel=false&x=1", "", true],
  ["an end that is percent-encoded", "wfr%5f1?cancel=false", "x", false],
];

test.each(endings)("%s is answered as the framework answers it", async (_name, target, text, isPlain) => {
  const answers = [];
  for (const fastPath of [true, false]) {
    const { ask, port, usual, lines, memory } = await open({ fastPath });
    const list = JSON.stringify([{ destination: e, headers: steps, body: "x" }]);
    expect((await ask("POST", "/v2/batch", { body: list })).status).toBe(200);
    usual.length = 0;
    const answer = lasting(await send(port, request(`DELETE /v2/workflows/runs/${target} HTTP/1.1`, [bearer()], text)));
    expect(usual).toHaveLength(fastPath && isPlain ? 0 : 1);
    const rows = [...memory.tables.runs.values(), ...memory.tables.audit.values()].map((row) =>
      JSON.stringify(row).replace(/aud_\w+/g, "id"),
    );
    answers.push({ answer, logged: { ...lines.at(-1), ms: 0 }, rows });
  }
  expect(answers[0]).toEqual(answers[1]);
});

test.each([[["*"]], [["https://app.example"]]])("what a page of %s may read is told as the framework tells it", async (corsOrigins) => {
  const answers = [];
  for (const fastPath of [true, false]) {
    const { ask, port, usual } = await open({ corsOrigins, fastPath });
    await ask("GET", "/v2/queues");
    usual.length = 0;
    const both = await Promise.all([[], ["Svc-Delay: soon"]].map((more) => send(port, request(`POST ${plain}`, [bearer(), ...more], "x"))));
    expect(usual).toHaveLength(fastPath ? 0 : 2);
    answers.push(both.map(lasting));
  }
  expect(answers[0]?.[0]).toMatch(/^(access-control-allow-origin: \*|vary: Origin)\r$/m);
  expect(answers[0]).toEqual(answers[1]);
});

test("with the fast path turned off, the framework answers all, also what another connection was used for before", async () => {
  const { ask, port, usual, deliveries } = await open({ fastPath: false });
  await ask("GET", "/v2/queues");
  const { ask: askOver, close } = createRawClient(port, token);
  onTestFinished(close);
  usual.length = 0;
  for (const method of ["POST", "GET", "POST"] as const)
    expect((await askOver({ method, target: method === "GET" ? "/v2/queues" : "/v2/publish/https://e.example/" })).status).toBe(200);
  expect([usual.length, deliveries.length]).toEqual([3, 2]);
});

test("on a connection that was used for something else before, a plain publish is not for the framework either", async () => {
  const { ask, port, usual, deliveries } = await open({ requestBodyBytes: 100 });
  await ask("GET", "/v2/queues");
  usual.length = 0;
  const { ask: askOver, close } = createRawClient(port, token);
  onTestFinished(close);
  const publish = (body: string): Promise<{ status: number; text: string }> =>
    askOver({ method: "POST", target: "/v2/publish/https://e.example/", body });
  for (let round = 0; round < 3; round++) {
    expect((await askOver({ method: "GET", target: "/v2/queues" })).status).toBe(200);
    expect(await publish("x".repeat(90))).toMatchObject({ status: 200, text: expect.stringContaining("msg_") });
    expect((await publish("x".repeat(101))).status).toBe(503);
    expect((await askOver({ method: "POST", target: "/v2/publish/ftp://e.example/", body: "x" })).status).toBe(400);
  }
  // The framework has told who found no room, and nothing else that was published.
  expect(usual).toEqual([1, 2, 3].flatMap(() => ["/v2/queues", "/v2/publish/https://e.example/"]));
  expect(deliveries.map(({ message }) => message.body.byteLength)).toEqual([90, 90, 90]);
});

test("what arrives is the same", async () => {
  const { ask, port, deliveries } = await open();
  await ask("GET", "/v2/queues");
  const line = "POST /v2/publish/https://e.example/hook?a=%20&svc-retries=1 HTTP/1.1";
  const headers = [bearer(), "Content-Type: text/x-odd", "Svc-Forward-X-A: \xe9", "Svc-Timeout: 5s", "X-B: 2"];
  await send(port, request(line, headers, "\x00\xff\r\n\r\nx"));
  await send(port, chunked(line, headers, "\x00\xff\r\n\r\nx"));
  const [plain, other] = deliveries.map(({ message: { id: _id, ...message }, attempt }) => ({ message, attempt }));
  expect(plain?.message.body).toEqual(Buffer.from("\x00\xff\r\n\r\nx", "latin1"));
  expect(plain).toEqual(other);
});

test.each([
  ["a token in the query", `POST /v2/publish/https://e.example/?svc_token=${token} HTTP/1.1`, [], 200],
  ["no token", "POST /v2/publish/https://e.example/ HTTP/1.1", [], 401],
  ["a token that nobody has", "POST /v2/publish/https://e.example/ HTTP/1.1", [bearer("odd")], 401],
  ["a sender that waits to be told to go on", "POST /v2/publish/https://e.example/ HTTP/1.1", [bearer(), "Expect: 100-continue"], 200],
  ["another method", "PUT /v2/publish/https://e.example/ HTTP/1.1", [bearer()], 405],
  ["another path", "POST /v2/publisher/https://e.example/ HTTP/1.1", [bearer()], 404],
  ["a list to a path that is another", "POST /v2/batch/x HTTP/1.1", [bearer()], 404],
] as const)("%s goes the usual way", async (_name, line, headers, status) => {
  const { ask, port, usual } = await open();
  await ask("GET", "/v2/queues");
  usual.length = 0;
  const received = await send(port, request(line, headers, "x"));
  expect([parseReply(received.replace(/^HTTP\/1.1 100 Continue\r\n\r\n/, "")).status, usual.length]).toEqual([status, 1]);
});

test("tokens that may not do everything go the usual way, and are refused there", async () => {
  const { ask, port, usual, store } = await open();
  const made = await ask("POST", "/v2/tokens", { body: JSON.stringify({ verbs: ["read"] }) });
  const publish = async (secret: string): Promise<number> =>
    parseReply(await send(port, request("POST /v2/publish/https://e.example/ HTTP/1.1", [bearer(secret)], "x"))).status;
  expect([await publish(made.body.token), await publish(made.body.token)]).toEqual([403, 403]);
  expect(usual.slice(-2)).toHaveLength(2);
  // The account of a token that is good may not be known from another one.
  expect(await publish(otherToken)).toBe(200);
  await store.execute("changeAccount", { account: "acc_1", change: { state: "passive" } });
  expect(await publish(token)).toBe(403);
});

test("an account that is disabled or gone between two publishes is refused at the second", async () => {
  const { port, store } = await open();
  const publish = async (): Promise<number> =>
    parseReply(await send(port, request("POST /v2/publish/https://e.example/ HTTP/1.1", [bearer()], "x"))).status;
  expect([await publish(), await publish()]).toEqual([200, 200]);
  await store.execute("rotateToken", { account: "acc_1", token: "new", tokenHash: "new", password: "new" });
  expect(await publish()).toBe(401);
});

test("no room for bodies: refused with when to come again, and the room is given back", async () => {
  const { ask, port } = await open({ requestBodyBytes: 100 });
  await ask("GET", "/v2/queues");
  const publish = async (bytes: number): Promise<[number, boolean]> => {
    const { status, head } = parseReply(
      await send(port, request("POST /v2/publish/https://e.example/ HTTP/1.1", [bearer()], "x".repeat(bytes))),
    );
    return [status, /^retry-after: 1$/im.test(head)];
  };
  expect(await publish(101)).toEqual([503, true]);
  for (let round = 0; round < 3; round++) expect(await publish(90)).toEqual([200, false]);
});

test.each([
  ["a new connection", ""],
  ["one that something else was asked on before", `GET /v2/queues HTTP/1.1\r\nHost: x\r\n${bearer()}\r\n\r\n`],
])("a body that breaks off on %s publishes nothing, and gives its room back", async (_connection, before) => {
  const { ask, port, deliveries } = await open({ requestBodyBytes: 100 });
  await ask("GET", "/v2/queues");
  for (let round = 0; round < 3; round++) {
    const socket = connect(port, "127.0.0.1");
    if (before !== "") {
      socket.write(before);
      await once(socket, "data");
    }
    socket.write(`POST /v2/publish/https://e.example/ HTTP/1.1\r\nHost: x\r\n${bearer()}\r\nContent-Length: 90\r\n\r\nhalf`);
    await new Promise((resolve) => setTimeout(resolve, 30));
    socket.destroy();
    await new Promise((resolve) => setTimeout(resolve, 30));
  }
  const { status } = parseReply(await send(port, request("POST /v2/publish/https://e.example/ HTTP/1.1", [bearer()], "x".repeat(90))));
  expect([status, deliveries.length]).toEqual([200, 1]);
});

test("a fault of ours is told to the log, not to the sender, and the next one is served", async () => {
  let isOdd = false;
  const { ask, port, lines } = await open({
    wrap: (store) => ({
      ...store,
      execute: (...call) => (isOdd ? Promise.reject(new Error("odd")) : store.execute(...call)),
    }),
  });
  await ask("GET", "/v2/queues");
  const publish = async () => parseReply(await send(port, request("POST /v2/publish/https://e.example/ HTTP/1.1", [bearer()], "x")));
  isOdd = true;
  const { status, body: text } = await publish();
  expect([status, text.includes("odd")]).toEqual([500, false]);
  expect(lines.at(-1)?.fault).toContain("odd");
  isOdd = false;
  expect((await publish()).status).toBe(200);
});

test("why the storage is away is told to the log, and not to those who ask", async () => {
  let isAway = false;
  const full = Object.assign(new Refusal("unavailable", "the storage cannot be reached: ask again later"), {
    cause: new Error("disk full"),
  });
  const { ask, port, lines } = await open({
    wrap: (store) => ({ ...store, execute: (...call) => (isAway ? Promise.reject(full) : store.execute(...call)) }),
  });
  await ask("GET", "/v2/queues");
  isAway = true;
  const plain = parseReply(await send(port, request("POST /v2/publish/https://e.example/ HTTP/1.1", [bearer()], "x")));
  const usual = await ask("POST", "/v2/queues", {
    body: JSON.stringify({ queueName: "q" }),
    headers: { "content-type": "application/json" },
  });
  expect([plain.status, usual.status, `${plain.body}${JSON.stringify(usual.body)}`.includes("disk full")]).toEqual([503, 503, false]);
  expect(lines.slice(-2).map(({ fault }) => fault)).toEqual(["disk full", "disk full"]);
});

test("behind a proxy that is believed, and on a port of accounts, all go the usual way", async () => {
  const { ask, port, usual } = await open({ trustProxy: true });
  await ask("GET", "/v2/queues");
  usual.length = 0;
  await send(port, request("POST /v2/publish/https://e.example/ HTTP/1.1", [bearer(), "X-Forwarded-For: 192.0.2.7"], "x"));
  expect(usual).toHaveLength(1);
  const accounts = await open({ servesAccountsOnly: true });
  const { status } = parseReply(await send(accounts.port, request("POST /v2/publish/https://e.example/ HTTP/1.1", [bearer()], "x")));
  expect(status).toBe(404);
});
