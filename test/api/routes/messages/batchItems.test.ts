import { describe, expect, test } from "vitest";
import { batchBody } from "../../../../src/api/routes/messages/batchItems.ts";
import { createTestServer } from "../../testServer.ts";
import { ask, post, url } from "./batchRequests.ts";

describe("a member of a batch item", () => {
  const errorOf = async (headers: Record<string, string>, destination = url) =>
    (await post([{ destination: url }, { destination, headers }])).reply.body[1].error;

  test("may have at most 64 KiB of forwarded headers, callbacks included", async () => {
    const most = 64 * 1024;
    const tooMany = (bytes: number) => `headers: ${bytes} bytes of forwarded headers, the limit is ${most}`;
    expect(await errorOf({ "svc-forward-x": "a".repeat(69_999) })).toBe(tooMany(70_000));
    expect(await errorOf({ "content-type": "a".repeat(most) })).toBe(tooMany(most + 12));
    const shared = (last: number) => ({
      "svc-forward-x": "a".repeat(9_999),
      "svc-callback": "https://c.example",
      "svc-callback-forward-x": "b".repeat(9_999),
      "svc-callback-failure-callback": "https://f.example",
      "svc-callback-failure-callback-forward-x": "c".repeat(last - 1),
    });
    expect(await errorOf(shared(most - 20_000))).toBeUndefined();
    expect(await errorOf(shared(most - 20_000 + 1))).toBe(tooMany(most + 1));
  });

  test.each([
    ["label", ",".repeat(70_000), /^svc-label: 70000 characters, the limit is 65536/],
    ["label", "a".repeat(513), /longer than 512 characters/],
    ["deduplication-id", "a".repeat(513), /longer than 512 characters/],
    [
      "redact-fields",
      `${"body,".repeat(20_000)}body`,
      /^svc-redact-fields: 100004 characters, the limit is 65536/,
    ],
    ["retry-delay", `1${"+1".repeat(200)}`, /^svc-retry-delay: /],
    ["method", "A".repeat(70_000), /^svc-method: 70000 characters/],
    ["delay", "1".repeat(100), /^svc-delay: /],
    ["callback", `https://c.example/${"a".repeat(16_384)}`, /^svc-callback: .* exceeds the limit of 16384$/],
    [
      "callback-callback",
      `https://c.example/${"a".repeat(16_384)}`,
      /^svc-callback-callback: .* exceeds the limit of 16384$/,
    ],
    ["x".repeat(2_000), "1", /^svc-x{100,}: the name is longer than 1024 characters$/],
    ["callback-".repeat(2_000_000), "1", /the name is longer than 1024 characters$/],
    [`forward-${"x".repeat(513)}`, "1", /longer than 512 characters/],
  ])("is bounded if it is the setting %.20s", async (name, value, error) => {
    const message = await errorOf({ [`svc-${name}`]: value });
    expect(message).toMatch(error);
    expect(message.length).toBeLessThan(1_000);
  });

  test("is bounded if it is the destination", async () => {
    expect(await errorOf({}, `https://e.example/${"a".repeat(16_384)}`)).toMatch(
      /^destination: .* exceeds the limit of 16384$/,
    );
  });
});

describe("an item of a batch", () => {
  const texts = [undefined, "", "a", null, 1, true, [], {}, ["a"]];
  const headers = [
    undefined,
    {},
    { a: "b" },
    { a: 1 },
    { a: null },
    { a: "b", c: {} },
    [],
    ["a"],
    null,
    "a",
    1,
  ];
  const odd = texts.flatMap((text) => [
    { destination: url, body: text },
    { destination: url, queue: text },
    { destination: text },
  ]);
  const items = [
    null,
    1,
    "a",
    [],
    {},
    [url],
    { destination: url },
    { destination: url, other: 1 },
    ...odd,
    ...headers.map((of) => ({ destination: url, headers: of })),
    JSON.parse(`{"destination":"${url}","__proto__":{"body":"a"}}`),
    JSON.parse(`{"destination":"${url}","headers":{"__proto__":"a"}}`),
  ];
  const taken = [...items.entries()].map(
    ([at, item]) => [at, batchBody.schema.element.safeParse(item).success, item] as const,
  );

  test.each(taken.filter(([, isTaken]) => !isTaken))(
    "is refused if the schema refuses it: number %i",
    async (_at, _, item) => {
      const { reply } = await post([item]);
      expect(reply).toMatchObject({
        status: 400,
        body: {
          error: expect.stringMatching(
            /^message 1 of 1: (body|destination|headers|queue|other|message|__proto__)/,
          ),
        },
      });
    },
  );

  test("is accepted if the schema accepts it and it has a destination", async () => {
    const fine = taken.flatMap(([, isTaken, item]) =>
      isTaken && item.destination === url && item.queue !== "" ? [item] : [],
    );
    expect(fine.length).toBeGreaterThan(8);
    const { reply } = await post(fine);
    expect(reply.body).toEqual(fine.map(() => ({ messageId: expect.any(String), url })));
  });

  test.each<unknown>([
    { toString: 1 },
    { valueOf: null, toString: null },
    [[[]]],
    [{ valueOf: null, toString: null }],
  ])("of a run is refused with a malformed header value: %j", async (value) => {
    const headers = { "Upstash-Workflow-RunId": "r", "Upstash-Workflow-Init": "false", odd: value };
    const { reply } = await post([{ destination: url, headers }]);
    expect(reply).toMatchObject({
      status: 412,
      body: { error: expect.stringContaining("headers.odd: is neither a string nor a list of strings") },
    });
  });
});

test.each([
  [{ headers: [] }, "headers: is not a JSON object"],
  [{ headers: "x" }, "headers: is not a JSON object"],
  [{ queue: 1 }, "queue: is not a string"],
])("the error for %j names the member and the expected type", async (given, problem) => {
  const server = await createTestServer();
  const body = JSON.stringify([{ destination: "https://e.example/", ...given }]);
  expect(await server.ask("POST", "/v2/batch", { body })).toMatchObject({
    status: 400,
    body: { error: `message 1 of 1: ${problem}` },
  });
});

describe("a batch item as other clients send it", () => {
  const texts = (messages: { body: Uint8Array }[]) =>
    messages.map(({ body }) => Buffer.from(body).toString());

  test('may have members that are null or "", which count as not given', async () => {
    const absent = [null, ""].flatMap((nothing) => [
      { destination: url, body: nothing, headers: nothing, queue: nothing },
      { destination: url, body: "x", headers: { "Upstash-Retries": "1" }, queue: nothing, surprise: nothing },
    ]);
    const { reply, messages } = await post(absent);
    expect(reply.body).toEqual(absent.map(() => ({ messageId: expect.any(String), url })));
    expect(messages.map(({ queue, retries }) => [queue, retries])).toEqual([
      [null, 3],
      [null, 1],
      [null, 3],
      [null, 1],
    ]);
    expect(texts(messages)).toEqual(["", "x", "", "x"]);
    const error = "message 1 of 1: destination: is missing or not a string";
    for (const destination of [null, ""])
      expect((await post([{ destination }])).reply).toMatchObject({ status: 400, body: { error } });
  });

  test("may be a step of a run with members that are null", async () => {
    const headers = {
      "Upstash-Workflow-RunId": "wfr_1",
      "Upstash-Workflow-Init": "true",
      "Upstash-Workflow-Url": url,
    };
    expect((await post([{ destination: url, headers, body: null, queue: null }])).reply).toMatchObject({
      status: 200,
      body: [{ messageId: expect.any(String) }],
    });
  });

  test("may have a list of values for a header", async () => {
    const headers = {
      "Upstash-Method": ["PUT"],
      "Content-Type": ["text/plain"],
      "Upstash-Forward-A": ["1", "2"],
      "Upstash-Label": ["a", "b"],
    };
    const { reply, messages } = await post([
      { destination: url, headers: { ...headers, "Upstash-Delay": [] } },
    ]);
    expect(reply.status).toBe(200);
    expect(messages).toMatchObject([
      { method: "PUT", brand: "upstash", labels: ["a", "b"], notBefore: messages[0]?.createdAt },
    ]);
    expect(messages[0]?.headers).toEqual([
      ["Content-Type", "text/plain"],
      ["A", "1"],
      ["A", "2"],
    ]);
    expect(
      (await post([{ destination: url, headers: { "Upstash-Retries": ["1", "2"] } }])).reply,
    ).toMatchObject({
      status: 400,
      body: { error: "message 1 of 1: Upstash-Retries: given twice with different values; remove one" },
    });
  });

  test("may have a JSON body, which is delivered as it was written", async () => {
    const bodies = [
      '{"id":12345678901234567890, "b":[1.0,{"body":"]}"}] ,"10":1,"1":"\\"}"}',
      '[ {"body":{"a":1}}, null ]',
      "{}",
      "[]",
      '{"__proto__":{"toString":1},"\u00e4":"\ud83d\ude00"}',
    ];
    const items = bodies.map(
      (body, at) =>
        `{"headers":{"body":["a"]},"b\u006fdy":${body},` +
        `"destination":"${url}"${at === 0 ? ',"queue":null' : ""}}`,
    );
    const { reply, messages } = await ask(
      ` [\n{"body":{"a":0},"body":"text","destination":"${url}"},[{"body":{}}],${items.join(" , ")}]`,
    );
    expect(reply.status).toBe(200);
    expect(texts(messages)).toEqual(["text", ...bodies]);
  });

  test("may have unknown members, which only the neutral brand refuses", async () => {
    const error = "extra: unknown field; use destination, headers, body, queue";
    const item = { destination: url, extra: 1, __proto__x: {} };
    const ofUpstash = { ...item, headers: { "Upstash-Retries": "1" } };
    const { reply, messages } = await post([
      ofUpstash,
      item,
      { ...item, headers: { "Svc-Retries": "1" } },
      ofUpstash,
    ]);
    expect(reply.body).toEqual([
      { messageId: messages[0]?.id, url },
      { error, code: "invalid" },
      { error, code: "invalid" },
      { messageId: messages[1]?.id, url },
    ]);
    expect(reply.headers["waypost-ignored"]).toBe("extra, __proto__x");
    const shown = await post([item], { "upstash-telemetry-sdk": "x" });
    expect(shown.reply).toMatchObject({ status: 200, headers: { "waypost-ignored": "extra, __proto__x" } });
  });

  test("may have 200,000 unknown members", async () => {
    const many = Object.fromEntries(Array.from({ length: 200_000 }, (_, at) => [`x${at}`, 1]));
    const { reply } = await post([{ destination: url, headers: { "Upstash-Retries": "1" }, ...many }]);
    expect(reply.status).toBe(200);
    expect(String(reply.headers["waypost-ignored"]).split(", ")).toHaveLength(50);
  });
});
