import { describe, expect, test } from "vitest";
import { batchBody } from "../../../../src/api/routes/messages/batch.ts";
import { createTestServer } from "../../testServer.ts";

const url = "https://e.example";
const ask = async (body: string | Buffer, headers: Record<string, string> = {}) => {
  const home = await createTestServer();
  const reply = await home.ask("POST", "/v2/batch", { body, headers });
  return { reply, messages: home.deliveries.map(({ message }) => message) };
};
const post = (items: unknown, headers?: Record<string, string>) => ask(JSON.stringify(items), headers);

describe("a batch", () => {
  test("is answered in its order, and what can be stored is", async () => {
    const { reply, messages } = await post([
      {
        destination: "https://a.example/ä b",
        headers: { "UPSTASH-Method": "GET", "content-TYPE": "text/plain", "X-Own": "1", "svc-forward-x-a": "2" },
        body: "ä",
      },
      { destination: "group" },
      { destination: url, queue: "a/b" },
      { destination: url, headers: { "svc-queue-name": "q" } },
      { destination: url, headers: { "svc-retries": "1000000" } },
      { destination: url, extra: 1 },
      { destination: url, headers: { "Svc-Retrys": "1" } },
      { destination: url, headers: { "Svc-Workflow-Rnuid": "a" } },
      { destination: url, body: "x".repeat(8 * 1024 * 1024 + 1) },
      { destination: url },
    ]);
    expect(reply.status).toBe(200);
    expect(reply.body).toEqual([
      { messageId: messages[0]?.id, url: messages[0]?.url },
      { error: 'destination: "group" is neither a URL with http:// or https:// nor a known URL group' },
      { error: 'queue: "a/b" is no name; letters, digits, ".", "_" and "-" can be in it, 512 at most' },
      { error: "svc-queue-name: belongs to a schedule; POST /v2/enqueue/{queue}/{destination} sends a message through a queue" },
      { error: "retries: 1000000 asked for, the limit is 1000" },
      { error: "extra: there is no such field; there are destination, headers, body, queue" },
      { error: "Svc-Retrys: there is no such setting; did you mean Svc-Retries?" },
      { error: "Svc-Workflow-Rnuid: there is no such setting; did you mean Svc-Workflow-RunId?" },
      { error: "body: 8388609 bytes, the limit is 8388608" },
      { messageId: messages[1]?.id, url },
    ]);
    expect(messages[0]).toMatchObject({ url: "https://a.example/ä b", brand: "svc", method: "GET", callerIp: "127.0.0.1" });
    expect(messages[0]?.headers).toEqual([
      ["Content-Type", "text/plain"],
      ["X-A", "2"],
    ]);
    expect(Buffer.from(messages[0]?.body ?? []).toString()).toBe("ä");
  });

  test("says of each message whether it is an older one, also within the batch", async () => {
    const item = { destination: url, headers: { "svc-deduplication-id": "1" } };
    const { reply } = await post([item, item]);
    const [{ messageId }] = reply.body;
    expect(reply.body).toMatchObject([{ messageId }, { messageId, deduplicated: true }]);
    expect(reply.body[0]).not.toHaveProperty("deduplicated");
  });

  test("gives its brand to messages that show none", async () => {
    const items = [{ destination: url }, { destination: url, headers: { "svc-retries": "1" } }];
    const { messages } = await post(items, { "upstash-telemetry-sdk": "x" });
    expect(messages.map(({ brand }) => brand)).toEqual(["upstash", "svc"]);
  });

  test("names ignored settings of the other brand once", async () => {
    const item = { destination: url, headers: { "Upstash-New": "1" } };
    expect((await post([item, item])).reply.headers).toMatchObject({ "waypost-ignored": "upstash-new" });
  });

  test("forwards no headers of the request", async () => {
    const { messages } = await post([{ destination: url, headers: { "svc-header-forward": "true", "x-a": "1" } }], { "x-b": "1" });
    expect(messages[0]?.headers).toEqual([]);
  });

  test("of nothing is answered with nothing", async () => {
    expect((await post([])).reply).toMatchObject({ status: 200, body: [] });
  });

  test.each([
    [404, [{ destination: "group" }, { destination: "" }], /^message 1 of 2: destination: "group"/],
    [412, [{ destination: url, headers: { "svc-retries": "1000000" } }, { destination: "group" }], /^message 1 of 2: retries: 1000000/],
    [400, [{ destination: url, queue: "a/b" }], /^message 1 of 1: queue: /],
  ])("of which all are refused is answered with %i", async (status, items, error) => {
    expect((await post(items)).reply).toMatchObject({ status, body: { error: expect.stringMatching(error) } });
  });

  test.each([
    [{ headers: {} }, /destination: is missing/],
    [{ destination: 1 }, /destination: is missing, or not a text/],
    [{ destination: url, headers: { a: 1 } }, /headers\.a: is neither a text nor a list of texts/],
    [{ destination: url, headers: { a: ["b", 1] } }, /headers\.a: is neither a text nor a list of texts/],
    [{ destination: url, headers: { a: null } }, /headers\.a: is neither a text nor a list of texts/],
    [{ destination: url, headers: ["svc-retries"] }, /headers: /],
    [{ destination: url, body: 1 }, /body: is neither a text, nor a JSON object or list/],
    [{ destination: url, body: true }, /body: is neither a text, nor a JSON object or list/],
    [{ destination: url, headers: { "content-type": "a\r\nb" } }, /content-type: the value has characters/],
    [{ destination: url, headers: { "svc-forward-a b": "1" } }, /not the name of an HTTP header/],
    [{ destination: url, headers: { "svc-forward-a": "\u65e5" } }, /characters that an HTTP header cannot carry/],
    [{ destination: "https://e.example/\u0000" }, /is not a valid URL/],
    [{ destination: "https://e.ex\nample/" }, /is not a valid URL/],
    [null, /message: /],
    ["text", /message: /],
    [[], /message: /],
  ])("refuses the item %j", async (item, error) => {
    const { reply } = await post([{ destination: url }, item]);
    expect(reply).toMatchObject({ status: 200, body: [{ messageId: expect.any(String) }, { error: expect.stringMatching(error) }] });
  });
});

describe("what an item of a batch brings", () => {
  const errorOf = async (headers: Record<string, string>, destination = url) =>
    (await post([{ destination: url }, { destination, headers }])).reply.body[1].error;

  test("in forwarded headers is 64 KiB at most, names, values and those of its callbacks together", async () => {
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
    ["redact-fields", `${"body,".repeat(20_000)}body`, /^svc-redact-fields: 100004 characters, the limit is 65536/],
    ["retry-delay", `1${"+1".repeat(200)}`, /^svc-retry-delay: /],
    ["method", "A".repeat(70_000), /^svc-method: 70000 characters/],
    ["delay", "1".repeat(100), /^svc-delay: /],
    ["callback", `https://c.example/${"a".repeat(16_384)}`, /^svc-callback: .* the limit is 16384$/],
    ["callback-callback", `https://c.example/${"a".repeat(16_384)}`, /^svc-callback-callback: .* the limit is 16384$/],
    ["x".repeat(2_000), "1", /^svc-x{100,}: the name is longer than 1024 characters$/],
    ["callback-".repeat(2_000_000), "1", /the name is longer than 1024 characters$/],
    [`forward-${"x".repeat(513)}`, "1", /longer than 512 characters/],
  ])("as %.20s is bounded", async (name, value, error) => {
    const message = await errorOf({ [`svc-${name}`]: value });
    expect(message).toMatch(error);
    expect(message.length).toBeLessThan(1_000);
  });

  test("as destination is bounded", async () => {
    expect(await errorOf({}, `https://e.example/${"a".repeat(16_384)}`)).toMatch(/^destination: .* the limit is 16384$/);
  });
});

describe("the body of a batch", () => {
  test.each([
    ["", "body: missing; give a JSON list of messages"],
    ["{}", "body: not a JSON list of messages"],
    ["[", "body: not valid JSON; it goes wrong in line 1 at column 2"],
    ['[\n  {"destination": "x",}\n]', "body: not valid JSON; it goes wrong in line 2 at column 23"],
    ['[{"a" 1}]', "body: not valid JSON; it goes wrong in line 1 at column 7"],
    ["[1 2]", "body: not valid JSON; it goes wrong in line 1 at column 4"],
    ["[]]", "body: not valid JSON; it goes wrong in line 1 at column 3"],
    ["[01]", "body: not valid JSON; it goes wrong in line 1 at column 3"],
    ['["a\nb"]', "body: not valid JSON; it goes wrong in line 1 at column 2"],
    ["[nul]", "body: not valid JSON; it goes wrong in line 1 at column 2"],
    ["[1}", "body: not valid JSON; it goes wrong in line 1 at column 3"],
    [Buffer.from([0x5b, 0x22, 0xff, 0x22, 0x5d]), "body: not UTF-8, so not JSON"],
    ["[".repeat(100_000), "body: JSON that is nested deeper than 32 levels"],
    [`[${"1,".repeat(2_100_000)}1]`, "body: JSON with more than 2000000 parts"],
    [`[{${'"a":1,'.repeat(300_000)}"a":1}]`, "body: JSON with more than 300000 names"],
    [`[${"{},".repeat(10_000)}{}]`, "body: 10001 messages, the limit is 10000; send them in several requests"],
    [`["${"a".repeat(4_000_000)}`, "body: not valid JSON; it goes wrong after the first 65536 characters"],
    [`["${"\\n".repeat(2_000_000)}"`, "body: not valid JSON; it goes wrong after the first 65536 characters"],
    [`["${"\\u0041".repeat(900_000)}`, "body: not valid JSON; it goes wrong after the first 65536 characters"],
    [`[${"1,".repeat(32_767)}123]]`, "body: not valid JSON; it goes wrong after the first 65536 characters"],
    [`[${"1,".repeat(32_766)}false]]`, "body: not valid JSON; it goes wrong after the first 65536 characters"],
    [`["${"a".repeat(65_533)}\\n"`, "body: not valid JSON; it goes wrong after the first 65536 characters"],
    [`["${"a".repeat(60_000)}\n${"a".repeat(60_000)}"]`, "body: not valid JSON; it goes wrong in line 1 at column 2"],
    [`[\n${"1,".repeat(30_000)}1}${" ".repeat(60_000)}`, "body: not valid JSON; it goes wrong in line 2 at column 60002"],
    [`[\n${"1,".repeat(3_000)},${" ".repeat(6_000_000)}`, "body: not valid JSON; it goes wrong in line 2 at column 6001"],
  ])("is refused with the place: case %#", async (body, error) => {
    expect((await ask(body)).reply).toMatchObject({ status: 400, body: { error } });
  });

  test("may be long, with text that looks like JSON", async () => {
    const { reply, messages } = await post([{ destination: url, body: '[{"\\"'.repeat(1_000_000) }]);
    expect(reply.status).toBe(200);
    expect(messages[0]?.body.length).toBe(5_000_000);
  });

  test("lets others have their turn, however long its items take to read", async () => {
    let turns = 0;
    let isRead = false;
    const count = (): void => {
      turns++;
      if (!isRead) setImmediate(count);
    };
    setImmediate(count);
    const { reply } = await post(Array.from({ length: 1_600 }, () => ({ destination: url, headers: { "svc-retries": "x" } })));
    isRead = true;
    expect(reply.status).toBe(400);
    expect(turns).toBeGreaterThanOrEqual(100);
  });

  test("takes no more headers for one item than any request could have", async () => {
    const headers = Object.fromEntries(Array.from({ length: 10_001 }, (_, at) => [`x${at}`, ""]));
    const { reply } = await post([{ destination: url, headers }, { destination: url }]);
    expect(reply).toMatchObject({
      status: 200,
      body: [{ error: "headers: there are more than 10000, the limit" }, { messageId: expect.any(String) }],
    });
  });

  test("counts each value of a header, for one item and for all together", async () => {
    const values = (count: number) => ({ destination: url, headers: { "x-a": Array<string>(count).fill("") } });
    const { reply } = await post([values(10_000), values(10_001)]);
    expect(reply.body).toEqual([{ messageId: expect.any(String), url }, { error: "headers: there are more than 10000, the limit" }]);
    expect((await post(Array(31).fill(values(9_700)))).reply).toMatchObject({
      status: 400,
      body: { error: "body: more than 300000 headers of messages; send them in several requests" },
    });
  });

  test("may begin with a byte order mark", async () => {
    expect((await ask(`\ufeff[{"destination":"${url}"}]`)).reply.status).toBe(200);
  });

  test("has names that mean nothing to the server itself", async () => {
    const { reply } = await ask(
      `[{"destination":"${url}","headers":{"__proto__":"1","constructor":"2"}},{"__proto__":{"destination":"${url}"}}]`,
    );
    expect(reply).toMatchObject({ status: 200, body: [{ messageId: expect.any(String) }, { error: expect.any(String) }] });
  });
});

describe("an item of a batch", () => {
  const texts = [undefined, "", "a", null, 1, true, [], {}, ["a"]];
  const headers = [undefined, {}, { a: "b" }, { a: 1 }, { a: null }, { a: "b", c: {} }, [], ["a"], null, "a", 1];
  const odd = texts.flatMap((text) => [{ destination: url, body: text }, { destination: url, queue: text }, { destination: text }]);
  const items = [
    ...[null, 1, "a", [], {}, [url], { destination: url }, { destination: url, other: 1 }],
    ...[...odd, ...headers.map((of) => ({ destination: url, headers: of }))],
    JSON.parse(`{"destination":"${url}","__proto__":{"body":"a"}}`),
    JSON.parse(`{"destination":"${url}","headers":{"__proto__":"a"}}`),
  ];
  const taken = [...items.entries()].map(([at, item]) => [at, batchBody.schema.element.safeParse(item).success, item] as const);

  test.each(taken.filter(([, isTaken]) => !isTaken))("is refused where the schema refuses it, as number %i is", async (_at, _, item) => {
    const { reply } = await post([item]);
    expect(reply).toMatchObject({
      status: 400,
      body: { error: expect.stringMatching(/^message 1 of 1: (body|destination|headers|queue|other|message|__proto__)/) },
    });
  });

  test("is taken where the schema takes it, as far as it names a destination", async () => {
    const fine = taken.flatMap(([, isTaken, item]) => (isTaken && item.destination === url && item.queue !== "" ? [item] : []));
    expect(fine.length).toBeGreaterThan(8);
    const { reply } = await post(fine);
    expect(reply.body).toEqual(fine.map(() => ({ messageId: expect.any(String), url })));
  });

  test.each<unknown>([{ toString: 1 }, { valueOf: null, toString: null }, [[[]]], [{ valueOf: null, toString: null }]])(
    "of a run has headers of any kind refused, such as %j",
    async (value) => {
      const headers = { "Upstash-Workflow-RunId": "r", "Upstash-Workflow-Init": "false", odd: value };
      const { reply } = await post([{ destination: url, headers }]);
      expect(reply).toMatchObject({
        status: 412,
        body: { error: expect.stringContaining("headers.odd: is neither a text nor a list of texts") },
      });
    },
  );
});

test("settings among the headers of a batch are refused, as they would hold for none of its messages", async () => {
  const home = await createTestServer();
  const body = JSON.stringify([{ destination: "https://e.example/" }]);
  for (const name of ["Svc-Delay", "svc-retriess"])
    expect(await home.ask("POST", "/v2/batch", { body, headers: { [name]: "1" } })).toMatchObject({
      status: 400,
      body: { error: `${name.toLowerCase()}: this request takes no settings of messages; give them in the headers of each` },
    });
  const told = async (name: string) => {
    const { status, headers } = await home.ask("POST", "/v2/batch", { body, headers: { [name]: "1" } });
    return { status, ignored: headers["waypost-ignored"] };
  };
  expect(await told("Upstash-Telemetry-Sdk")).toEqual({ status: 200, ignored: undefined });
  // Clients of the other brand may send some; they are told.
  expect(await told("Upstash-Retries")).toEqual({ status: 200, ignored: "upstash-retries" });
});

test.each([
  [{ headers: [] }, "headers: is not a JSON object"],
  [{ headers: "x" }, "headers: is not a JSON object"],
  [{ queue: 1 }, "queue: is not a text"],
])("what is wrong with %j is said in words", async (given, problem) => {
  const home = await createTestServer();
  const body = JSON.stringify([{ destination: "https://e.example/", ...given }]);
  expect(await home.ask("POST", "/v2/batch", { body })).toMatchObject({ status: 400, body: { error: `message 1 of 1: ${problem}` } });
});

describe("what other clients send in a batch", () => {
  const texts = (messages: { body: Uint8Array }[]) => messages.map(({ body }) => Buffer.from(body).toString());

  test('is not given where it is null or ""', async () => {
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
    const error = "message 1 of 1: destination: is missing, or not a text";
    for (const destination of [null, ""]) expect((await post([{ destination }])).reply).toMatchObject({ status: 400, body: { error } });
  });

  test("may be a step of a run with members that are null, which is taken", async () => {
    const headers = { "Upstash-Workflow-RunId": "wfr_1", "Upstash-Workflow-Init": "true", "Upstash-Workflow-Url": url };
    expect((await post([{ destination: url, headers, body: null, queue: null }])).reply).toMatchObject({
      status: 200,
      body: [{ messageId: expect.any(String) }],
    });
  });

  test("may be a list of values for a header", async () => {
    const headers = {
      "Upstash-Method": ["PUT"],
      "Content-Type": ["text/plain"],
      "Upstash-Forward-A": ["1", "2"],
      "Upstash-Label": ["a", "b"],
    };
    const { reply, messages } = await post([{ destination: url, headers: { ...headers, "Upstash-Delay": [] } }]);
    expect(reply.status).toBe(200);
    expect(messages).toMatchObject([{ method: "PUT", brand: "upstash", labels: ["a", "b"], notBefore: messages[0]?.createdAt }]);
    expect(messages[0]?.headers).toEqual([
      ["Content-Type", "text/plain"],
      ["A", "1"],
      ["A", "2"],
    ]);
    expect((await post([{ destination: url, headers: { "Upstash-Retries": ["1", "2"] } }])).reply).toMatchObject({
      status: 400,
      body: { error: "message 1 of 1: Upstash-Retries: given twice, with different values; leave one out" },
    });
  });

  test("may be a body in JSON, which is delivered as it was written", async () => {
    const bodies = [
      '{"id":12345678901234567890, "b":[1.0,{"body":"]}"}] ,"10":1,"1":"\\"}"}',
      '[ {"body":{"a":1}}, null ]',
      "{}",
      "[]",
      '{"__proto__":{"toString":1},"\u00e4":"\ud83d\ude00"}',
    ];
    const items = bodies.map(
      (body, at) => `{"headers":{"body":["a"]},"b\u006fdy":${body},"destination":"${url}"${at === 0 ? ',"queue":null' : ""}}`,
    );
    const { reply, messages } = await ask(` [\n{"body":{"a":0},"body":"text","destination":"${url}"},[{"body":{}}],${items.join(" , ")}]`);
    expect(reply.status).toBe(200);
    expect(texts(messages)).toEqual(["text", ...bodies]);
  });

  test("may have members that nobody knows, which only the neutral brand refuses", async () => {
    const error = "extra: there is no such field; there are destination, headers, body, queue";
    const item = { destination: url, extra: 1, __proto__x: {} };
    const ofUpstash = { ...item, headers: { "Upstash-Retries": "1" } };
    const { reply, messages } = await post([ofUpstash, item, { ...item, headers: { "Svc-Retries": "1" } }, ofUpstash]);
    expect(reply.body).toEqual([{ messageId: messages[0]?.id, url }, { error }, { error }, { messageId: messages[1]?.id, url }]);
    expect(reply.headers["waypost-ignored"]).toBe("extra, __proto__x");
    const shown = await post([item], { "upstash-telemetry-sdk": "x" });
    expect(shown.reply).toMatchObject({ status: 200, headers: { "waypost-ignored": "extra, __proto__x" } });
  });

  test("may have 200,000 members that nobody knows", async () => {
    const many = Object.fromEntries(Array.from({ length: 200_000 }, (_, at) => [`x${at}`, 1]));
    const { reply } = await post([{ destination: url, headers: { "Upstash-Retries": "1" }, ...many }]);
    expect(reply.status).toBe(200);
    expect(String(reply.headers["waypost-ignored"]).split(", ")).toHaveLength(50);
  });
});
