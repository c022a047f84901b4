import { expect, onTestFinished, test } from "vitest";
import { token } from "../testServer.ts";
import { createRawClient, request, send } from "../wire.ts";
import { bearer, open } from "./countedServer.ts";

/** Returns the same request with a body in one chunk, so that its length is not declared. */
const chunked = (line: string, headers: readonly string[], body: string): string =>
  [
    line,
    "Host: x",
    "Connection: close",
    "Transfer-Encoding: chunked",
    ...headers,
    "",
    ...(body === "" ? ["0", "", ""] : [Buffer.byteLength(body, "latin1").toString(16), body, "0", "", ""]),
  ].join("\r\n");

/** Without it, each response has its own id. */
const sameId = "X-Request-Id: one";

/** Returns the bytes of a response without the parts that depend on the time. */
const lasting = (received: string): string =>
  received.replace(/^Date: .*\r\n/m, "").replace(/msg_\w+|wfr_\w+/g, "id");

const body = '{"a":1}';
const questions: { name: string; target: string; headers: readonly string[]; body: string }[] = [
  {
    name: "a plain publish",
    target: "https://e.example/hook?a=1&b=%20",
    headers: ["Content-Type: application/json"],
    body: body,
  },
  { name: "a publish without a body", target: "https://e.example/", headers: [], body: "" },
  {
    name: "settings as headers",
    target: "https://e.example/",
    headers: ["Svc-Delay: 10s", "Svc-Retries: 2", "Svc-Label: x", "Svc-Forward-X-A: 1"],
    body: body,
  },
  {
    name: "settings in the query",
    target: "https://e.example/?svc-delay=10s&svc-retries=2&x=1",
    headers: [],
    body: body,
  },
  {
    name: "settings of the other brand, one of them unknown",
    target: "https://e.example/",
    headers: ["Upstash-Delay: 10s", "Upstash-Odd-One: 1"],
    body: body,
  },
  { name: "an invalid setting", target: "https://e.example/", headers: ["Svc-Delay: soon"], body: body },
  { name: "an unknown setting", target: "https://e.example/", headers: ["Svc-Odd: 1"], body: body },
  { name: "an invalid destination", target: "ftp://e.example/", headers: [], body: body },
  { name: "no destination", target: "", headers: [], body: body },
  { name: "an unknown URL group", target: "nobody", headers: [], body: body },
  { name: "a URL group", target: "team", headers: [], body: body },
  {
    name: "unusual bytes in the destination",
    target: "https://e.example/%zz/%ff?%zz",
    headers: [],
    body: body,
  },
  { name: "a percent-encoded destination", target: "https%3A%2F%2Fe.example%2Fx", headers: [], body: body },
  {
    name: "a start of a workflow run",
    target: "https://e.example/flow",
    headers: [
      "Upstash-Workflow-Init: true",
      "Upstash-Workflow-RunId: wfr_1",
      "Upstash-Workflow-Url: https://e.example/flow",
    ],
    body: body,
  },
  {
    name: "a step of an unknown run",
    target: "https://e.example/flow",
    headers: ["Upstash-Workflow-RunId: wfr_none", "Upstash-Workflow-CallType: step"],
    body: body,
  },
  {
    name: "retries above the limit",
    target: "https://e.example/",
    headers: ["Svc-Retries: 100000"],
    body: body,
  },
];

const e = "https://e.example/";
const plain = `/v2/publish/${e} HTTP/1.1`;
const steps = {
  "Upstash-Workflow-RunId": "wfr_1",
  "Upstash-Workflow-Init": "true",
  "Upstash-Workflow-Url": e,
};
const lists: { name: string; headers: readonly string[]; list: unknown }[] = [
  {
    name: "a list of one message",
    headers: [],
    list: [{ destination: e, body: "x", headers: { "Svc-Delay": "10s" } }],
  },
  {
    name: "a list of several messages, some of them refused",
    headers: ["Upstash-Odd: 1"],
    list: [{ destination: e }, { destination: "nobody" }, { destination: "team" }, { odd: 1 }],
  },
  { name: "a list of refused messages", headers: [], list: [{ destination: "ftp://e" }, {}] },
  { name: "a list that starts a run", headers: [], list: [{ destination: e, headers: steps, body: "x" }] },
  {
    name: "a list with a step of an unknown run",
    headers: [],
    list: [
      {
        destination: e,
        headers: { "Upstash-Workflow-RunId": "wfr_none", "Upstash-Workflow-CallType": "step" },
      },
    ],
  },
  {
    name: "a list for a queue",
    headers: [],
    list: [
      { destination: e, queue: "q" },
      { destination: e, queue: "not a name" },
    ],
  },
  { name: "an empty list", headers: [], list: [] },
  { name: "an object instead of a list", headers: [], list: { destination: e } },
];

test.each([
  ...questions.map(({ name, target, headers, body }) => ({
    name,
    target: `/v2/publish/${target}`,
    headers,
    body,
  })),
  ...lists.map(({ name, headers, list }) => ({
    name,
    target: "/v2/batch",
    headers,
    body: JSON.stringify(list),
  })),
  { name: "a list that is not valid JSON", target: "/v2/batch", headers: [], body: "[{" },
  { name: "a list without a body", target: "/v2/batch", headers: [], body: "" },
  { name: "a list with a query", target: "/v2/batch?x=1", headers: [], body: "[]" },
  { name: "a list at a path that ends with a slash", target: "/V2/Batch/", headers: [], body: "[]" },
  { name: "a publish without a destination", target: "/v2/publish", headers: [], body: "" },
])("the response to $name is the framework's, byte for byte", async ({ target, headers, body: text }) => {
  const line = `POST ${target} HTTP/1.1`;
  const answers = [];
  for (const fastPath of [true, false]) {
    const { ask, port, usual, lines } = await open({ fastPath });
    await ask("POST", "/v2/topics/team/endpoints", {
      body: JSON.stringify({ endpoints: [{ url: "https://one.example" }] }),
    });
    usual.length = 0;
    const answer = lasting(await send(port, request(line, [bearer(), sameId, ...headers], text)));
    expect(usual).toHaveLength(fastPath ? 0 : 1);
    // The duration differs from run to run.
    answers.push({ answer, logged: { ...lines.at(-1), ms: 0 } });
  }
  expect(answers[0]).toEqual(answers[1]);
});

const endings: { name: string; target: string; body: string; isPlain: boolean }[] = [
  { name: "the end of a run", target: "wfr_1?cancel=false", body: '"result"', isPlain: true },
  { name: "the end of a run without a result", target: "wfr_1?cancel=false", body: "", isPlain: true },
  { name: "the end of an unknown run", target: "wfr_none?cancel=false", body: "x", isPlain: true },
  { name: "the cancellation of a run", target: "wfr_1", body: "", isPlain: true },
  { name: "the explicit cancellation of a run", target: "wfr_1?cancel=true", body: "", isPlain: true },
  { name: "an end with another parameter", target: "wfr_1?cancel=false&x=1", body: "", isPlain: true },
  { name: "an end that is percent-encoded", target: "wfr%5f1?cancel=false", body: "x", isPlain: false },
];

test.each(endings)("the response to $name is the framework's", async ({ target, body: text, isPlain }) => {
  const answers = [];
  for (const fastPath of [true, false]) {
    const { ask, port, usual, lines, memory } = await open({ fastPath });
    const list = JSON.stringify([{ destination: e, headers: steps, body: "x" }]);
    expect((await ask("POST", "/v2/batch", { body: list })).status).toBe(200);
    usual.length = 0;
    const answer = lasting(
      await send(port, request(`DELETE /v2/workflows/runs/${target} HTTP/1.1`, [bearer(), sameId], text)),
    );
    expect(usual).toHaveLength(fastPath && isPlain ? 0 : 1);
    const rows = [...memory.tables.runs.values(), ...memory.tables.audit.values()].map((row) =>
      JSON.stringify(row).replace(/aud_\w+/g, "id"),
    );
    answers.push({ answer, logged: { ...lines.at(-1), ms: 0 }, rows });
  }
  expect(answers[0]).toEqual(answers[1]);
});

test.each([[["*"]], [["https://app.example"]]])(
  "the headers for a page with origins %s are the framework's",
  async (corsOrigins) => {
    const answers = [];
    for (const fastPath of [true, false]) {
      const { ask, port, usual } = await open({ corsOrigins, fastPath });
      await ask("GET", "/v2/queues");
      usual.length = 0;
      const both = await Promise.all(
        [[], ["Svc-Delay: soon"]].map((more) =>
          send(port, request(`POST ${plain}`, [bearer(), sameId, ...more], "x")),
        ),
      );
      expect(usual).toHaveLength(fastPath ? 0 : 2);
      answers.push(both.map(lasting));
    }
    expect(answers[0]?.[0]).toMatch(/^(access-control-allow-origin: \*|vary: Origin)\r$/m);
    expect(answers[0]).toEqual(answers[1]);
  },
);

test("the framework answers everything if the fast path is turned off, on every connection", async () => {
  const { ask, port, usual, deliveries } = await open({ fastPath: false });
  await ask("GET", "/v2/queues");
  const { ask: askOver, close } = createRawClient(port, token);
  onTestFinished(close);
  usual.length = 0;
  for (const method of ["POST", "GET", "POST"] as const)
    expect(
      (await askOver({ method, target: method === "GET" ? "/v2/queues" : "/v2/publish/https://e.example/" }))
        .status,
    ).toBe(200);
  expect([usual.length, deliveries.length]).toEqual([3, 2]);
});

test("the fast path answers a plain publish on a connection with earlier requests as well", async () => {
  const { ask, port, usual, deliveries } = await open({ requestBodyBytes: 100 });
  await ask("GET", "/v2/queues");
  usual.length = 0;
  const { ask: askOver, close } = createRawClient(port, token);
  onTestFinished(close);
  const publish = (body: string): Promise<{ status: number; text: string }> =>
    askOver({ method: "POST", target: "/v2/publish/https://e.example/", body });
  for (let round = 0; round < 3; round++) {
    expect((await askOver({ method: "GET", target: "/v2/queues" })).status).toBe(200);
    expect(await publish("x".repeat(90))).toMatchObject({
      status: 200,
      text: expect.stringContaining("msg_"),
    });
    expect((await publish("x".repeat(101))).status).toBe(503);
    expect(
      (await askOver({ method: "POST", target: "/v2/publish/ftp://e.example/", body: "x" })).status,
    ).toBe(400);
  }
  // The framework has answered only the refused bodies, and no other publish.
  expect(usual).toEqual([1, 2, 3].flatMap(() => ["/v2/queues", "/v2/publish/https://e.example/"]));
  expect(deliveries.map(({ message }) => message.body.byteLength)).toEqual([90, 90, 90]);
});

test("both paths deliver the same message", async () => {
  const { ask, port, deliveries } = await open();
  await ask("GET", "/v2/queues");
  const line = "POST /v2/publish/https://e.example/hook?a=%20&svc-retries=1 HTTP/1.1";
  const headers = [
    bearer(),
    "Content-Type: text/x-odd",
    "Svc-Forward-X-A: \xe9",
    "Svc-Timeout: 5s",
    "X-B: 2",
  ];
  await send(port, request(line, headers, "\x00\xff\r\n\r\nx"));
  await send(port, chunked(line, headers, "\x00\xff\r\n\r\nx"));
  const [plain, other] = deliveries.map(({ message: { id: _id, ...message }, attempt }) => ({
    message,
    attempt,
  }));
  expect(plain?.message.body).toEqual(Buffer.from("\x00\xff\r\n\r\nx", "latin1"));
  expect(plain).toEqual(other);
});
