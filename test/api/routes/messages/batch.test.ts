import { describe, expect, test } from "vitest";
import { createTestServer } from "../../testServer.ts";
import { ask, post, url } from "./batchRequests.ts";

describe("a batch", () => {
  test("has its results in the order of the list, and stores all valid messages", async () => {
    const { reply, messages } = await post([
      {
        destination: "https://a.example/ä b",
        headers: {
          "UPSTASH-Method": "GET",
          "content-TYPE": "text/plain",
          "X-Own": "1",
          "svc-forward-x-a": "2",
        },
        body: "ä",
      },
      { destination: "group" },
      { destination: url, queue: "a/b" },
      { destination: url, headers: { "svc-queue-name": "q" } },
      { destination: url, headers: { "svc-retries": "1000000" } },
      { destination: url, extra: 1 },
      { destination: url, headers: { "Svc-Retrys": "1" } },
      { destination: url, headers: { "Svc-Workflow-Rnuid": "a" } },
      { destination: url, body: "x".repeat(10 * 1024 * 1024 + 1) },
      { destination: url },
    ]);
    expect(reply.status).toBe(200);
    expect(reply.body).toEqual([
      { messageId: messages[0]?.id, url: messages[0]?.url },
      {
        error: "destination: topic group not found; use an existing URL group or a URL",
        code: "not-found",
      },
      {
        error: 'queue: "a/b" is not a valid name; use at most 512 of A-Z, a-z, 0-9, ".", "_" and "-"',
        code: "invalid",
      },
      {
        error:
          "svc-queue-name: only valid for schedules; use POST /v2/enqueue/{queue}/{destination} to send a " +
          "message through a queue",
        code: "invalid",
      },
      { error: "retries: 1000000 exceeds the limit of 1000", code: "limit-exceeded" },
      { error: "extra: unknown field; use destination, headers, body, queue", code: "invalid" },
      { error: "Svc-Retrys: unknown setting; did you mean Svc-Retries?", code: "invalid" },
      {
        error: "Svc-Workflow-Rnuid: unknown setting; did you mean Svc-Workflow-RunId?",
        code: "invalid",
      },
      { error: "body: 10485761 bytes exceeds the limit of 10485760", code: "too-large" },
      { messageId: messages[1]?.id, url },
    ]);
    expect(messages[0]).toMatchObject({
      url: "https://a.example/ä b",
      brand: "svc",
      method: "GET",
      callerIp: "127.0.0.1",
    });
    expect(messages[0]?.headers).toEqual([
      ["Content-Type", "text/plain"],
      ["X-A", "2"],
    ]);
    expect(Buffer.from(messages[0]?.body ?? []).toString()).toBe("ä");
  });

  test("reports each duplicate, also of a message in the same batch", async () => {
    const item = { destination: url, headers: { "svc-deduplication-id": "1" } };
    const { reply } = await post([item, item]);
    const [{ messageId }] = reply.body;
    expect(reply.body).toMatchObject([{ messageId }, { messageId, deduplicated: true }]);
    expect(reply.body[0]).not.toHaveProperty("deduplicated");
  });

  test("applies its brand to messages that show none", async () => {
    const items = [{ destination: url }, { destination: url, headers: { "svc-retries": "1" } }];
    const { messages } = await post(items, { "upstash-telemetry-sdk": "x" });
    expect(messages.map(({ brand }) => brand)).toEqual(["upstash", "svc"]);
  });

  test("names ignored settings of the other brand once", async () => {
    const item = { destination: url, headers: { "Upstash-New": "1" } };
    expect((await post([item, item])).reply.headers).toMatchObject({ "waypost-ignored": "upstash-new" });
  });

  test("does not forward the headers of the request", async () => {
    const { messages } = await post(
      [{ destination: url, headers: { "svc-header-forward": "true", "x-a": "1" } }],
      { "x-b": "1" },
    );
    expect(messages[0]?.headers).toEqual([]);
  });

  test("with an empty list has an empty result", async () => {
    expect((await post([])).reply).toMatchObject({ status: 200, body: [] });
  });

  test.each([
    [
      404,
      [{ destination: "group" }, { destination: "" }],
      /^message 1 of 2: destination: topic group not found/,
    ],
    [
      412,
      [{ destination: url, headers: { "svc-retries": "1000000" } }, { destination: "group" }],
      /^message 1 of 2: retries: 1000000/,
    ],
    [400, [{ destination: url, queue: "a/b" }], /^message 1 of 1: queue: /],
  ])("whose messages are all refused has status %i", async (status, items, error) => {
    expect((await post(items)).reply).toMatchObject({
      status,
      body: { error: expect.stringMatching(error) },
    });
  });

  test.each([
    [{ headers: {} }, /destination: is missing/],
    [{ destination: 1 }, /destination: is missing or not a string/],
    [{ destination: url, headers: { a: 1 } }, /headers\.a: is neither a string nor a list of strings/],
    [{ destination: url, headers: { a: ["b", 1] } }, /headers\.a: is neither a string nor a list of strings/],
    [{ destination: url, headers: { a: null } }, /headers\.a: is neither a string nor a list of strings/],
    [{ destination: url, headers: ["svc-retries"] }, /headers: /],
    [{ destination: url, body: 1 }, /body: is neither a string nor a JSON object or list/],
    [{ destination: url, body: true }, /body: is neither a string nor a JSON object or list/],
    [
      { destination: url, headers: { "content-type": "a\r\nb" } },
      /content-type: the value contains characters/,
    ],
    [{ destination: url, headers: { "svc-forward-a b": "1" } }, /not the name of an HTTP header/],
    [
      { destination: url, headers: { "svc-forward-a": "\u65e5" } },
      /characters that an HTTP header cannot carry/,
    ],
    [{ destination: "https://e.example/\u0000" }, /is not a valid URL/],
    [{ destination: "https://e.ex\nample/" }, /is not a valid URL/],
    [null, /message: /],
    ["text", /message: /],
    [[], /message: /],
  ])("refuses the item %j", async (item, error) => {
    const { reply } = await post([{ destination: url }, item]);
    expect(reply).toMatchObject({
      status: 200,
      body: [{ messageId: expect.any(String) }, { error: expect.stringMatching(error) }],
    });
  });
});

describe("the body of a batch", () => {
  test.each([
    ["", "body: missing; give a JSON list of messages"],
    ["{}", "body: not a JSON list of messages"],
    ["[", "body: not valid JSON; error in line 1 at column 2"],
    ['[\n  {"destination": "x",}\n]', "body: not valid JSON; error in line 2 at column 23"],
    ['[{"a" 1}]', "body: not valid JSON; error in line 1 at column 7"],
    ["[1 2]", "body: not valid JSON; error in line 1 at column 4"],
    ["[]]", "body: not valid JSON; error in line 1 at column 3"],
    ["[01]", "body: not valid JSON; error in line 1 at column 3"],
    ['["a\nb"]', "body: not valid JSON; error in line 1 at column 2"],
    ["[nul]", "body: not valid JSON; error in line 1 at column 2"],
    ["[1}", "body: not valid JSON; error in line 1 at column 3"],
    [Buffer.from([0x5b, 0x22, 0xff, 0x22, 0x5d]), "body: not UTF-8, so not JSON"],
    ["[".repeat(100_000), "body: JSON that is nested deeper than 32 levels"],
    [`[${"1,".repeat(2_100_000)}1]`, "body: JSON with more than 2000000 parts"],
    [`[{${'"a":1,'.repeat(300_000)}"a":1}]`, "body: JSON with more than 300000 names"],
    [
      `[${"{},".repeat(10_000)}{}]`,
      "body: 10001 messages, the limit is 10000; send them in several requests",
    ],
    [`["${"a".repeat(4_000_000)}`, "body: not valid JSON; error after the first 65536 characters"],
    [`["${"\\n".repeat(2_000_000)}"`, "body: not valid JSON; error after the first 65536 characters"],
    [`["${"\\u0041".repeat(900_000)}`, "body: not valid JSON; error after the first 65536 characters"],
    [`[${"1,".repeat(32_767)}123]]`, "body: not valid JSON; error after the first 65536 characters"],
    [`[${"1,".repeat(32_766)}false]]`, "body: not valid JSON; error after the first 65536 characters"],
    [`["${"a".repeat(65_533)}\\n"`, "body: not valid JSON; error after the first 65536 characters"],
    [`["${"a".repeat(60_000)}\n${"a".repeat(60_000)}"]`, "body: not valid JSON; error in line 1 at column 2"],
    [
      `[\n${"1,".repeat(30_000)}1}${" ".repeat(60_000)}`,
      "body: not valid JSON; error in line 2 at column 60002",
    ],
    [
      `[\n${"1,".repeat(3_000)},${" ".repeat(6_000_000)}`,
      "body: not valid JSON; error in line 2 at column 6001",
    ],
  ])("is refused with the position of the error: case %#", async (body, error) => {
    expect((await ask(body)).reply).toMatchObject({ status: 400, body: { error } });
  });

  test("may be long and contain text that looks like JSON", async () => {
    const { reply, messages } = await post([{ destination: url, body: '[{"\\"'.repeat(1_000_000) }]);
    expect(reply.status).toBe(200);
    expect(messages[0]?.body.length).toBe(5_000_000);
  });

  test("does not block other work, however long its items take to read", async () => {
    let turns = 0;
    let isRead = false;
    const count = (): void => {
      turns++;
      if (!isRead) setImmediate(count);
    };
    setImmediate(count);
    const { reply } = await post(
      Array.from({ length: 1_600 }, () => ({ destination: url, headers: { "svc-retries": "x" } })),
    );
    isRead = true;
    expect(reply.status).toBe(400);
    expect(turns).toBeGreaterThanOrEqual(100);
  });

  test("has an error for an item with more than 10,000 headers", async () => {
    const headers = Object.fromEntries(Array.from({ length: 10_001 }, (_, at) => [`x${at}`, ""]));
    const { reply } = await post([{ destination: url, headers }, { destination: url }]);
    expect(reply).toMatchObject({
      status: 200,
      body: [
        { error: "headers: more than 10000; send fewer headers", code: "invalid" },
        { messageId: expect.any(String) },
      ],
    });
  });

  test("has a limit for the values of headers, per item and in total", async () => {
    const values = (count: number) => ({
      destination: url,
      headers: { "x-a": Array<string>(count).fill("") },
    });
    const { reply } = await post([values(10_000), values(10_001)]);
    expect(reply.body).toEqual([
      { messageId: expect.any(String), url },
      { error: "headers: more than 10000; send fewer headers", code: "invalid" },
    ]);
    expect((await post(Array(31).fill(values(9_700)))).reply).toMatchObject({
      status: 400,
      body: { error: "body: more than 300000 message headers; send the messages in several requests" },
    });
  });

  test("may begin with a byte order mark", async () => {
    expect((await ask(`\ufeff[{"destination":"${url}"}]`)).reply.status).toBe(200);
  });

  test("may have names such as __proto__ without any effect on the server", async () => {
    const { reply } = await ask(
      `[{"destination":"${url}","headers":{"__proto__":"1","constructor":"2"}},` +
        `{"__proto__":{"destination":"${url}"}}]`,
    );
    expect(reply).toMatchObject({
      status: 200,
      body: [{ messageId: expect.any(String) }, { error: expect.any(String) }],
    });
  });
});

test("settings in the headers of a batch request are refused, or ignored under the other brand", async () => {
  const server = await createTestServer();
  const body = JSON.stringify([{ destination: "https://e.example/" }]);
  for (const name of ["Svc-Delay", "svc-retriess"])
    expect(await server.ask("POST", "/v2/batch", { body, headers: { [name]: "1" } })).toMatchObject({
      status: 400,
      body: {
        error:
          `${name.toLowerCase()}: not valid for the request itself; put it in the headers of each ` +
          "message",
      },
    });
  const told = async (name: string) => {
    const { status, headers } = await server.ask("POST", "/v2/batch", { body, headers: { [name]: "1" } });
    return { status, ignored: headers["waypost-ignored"] };
  };
  expect(await told("Upstash-Telemetry-Sdk")).toEqual({ status: 200, ignored: undefined });
  // Clients of the other brand may send settings; the response names the ignored ones.
  expect(await told("Upstash-Retries")).toEqual({ status: 200, ignored: "upstash-retries" });
});
