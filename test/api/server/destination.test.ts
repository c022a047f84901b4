import { describe, expect, test } from "vitest";
import { createTestServer, token } from "../testServer.ts";
import { listen, request, send } from "../wire.ts";
import { authorization, publish } from "./publishOverWire.ts";
import { codeFields } from "../errorFields.ts";

describe("a destination in the path", () => {
  test.each([
    ["https://e.example"],
    ["https://e.example/"],
    ["https://e.example/a//b/../c/./d/"],
    ["https://e.example/%zz/%2F%00/a%20b%"],
    ["https://e.example/?"],
    ["https://e.example/?a=1&&b&a=2&=&c=%zz+%20&"],
    ["https://e.example/?a?b??c"],
    ["https://e.example?a=1"],
    ["http://user:pass@e.example:8080/x;y=1,2'()*"],
    ["http://[::1]:80/x"],
    ["HTTPS://E.Example/Path"],
    ["https://e.example/v2/publish/https://f.example/?x"],
  ])("%s is delivered to byte for byte", async (url) => {
    const { reply, message } = await publish(url);
    expect(reply.status).toBe(200);
    expect(message?.url).toBe(url);
  });

  test.each([
    ["https:/e.example/x", "https://e.example/x"],
    ["https%3A%2F%2Fe.example%2Fa%2520b%3Fc%3D1", "https://e.example/a%20b?c=1"],
    ["HTTP%3a%2f%2fe.example", "HTTP://e.example"],
    ["https%3A%2F%2Fe.example%2F%3Fa?b=%zz", "https://e.example/?a&b=%zz"],
    ["https%3A%2F%2Fe.example?b", "https://e.example?b"],
    ["https%3A%2Fe.example", "https://e.example"],
  ])("%s means %s", async (target, url) => {
    expect((await publish(target)).message?.url).toBe(url);
  });

  test.each([
    ["https://e.example/?svc_token=TOKEN", "https://e.example/"],
    ["https://e.example/?a=1&svc_token=TOKEN&b=2", "https://e.example/?a=1&b=2"],
    ["https://e.example/?SVC_Token=TOKEN&a", "https://e.example/?a"],
    [
      "https://e.example/?a&qstash_token=TOKEN&upstash-retries=1&Svc-Delay=1s&b=%zz",
      "https://e.example/?a&b=%zz",
    ],
    ["https://e.example/?svc%5Ftoken=TOKEN&svc%2Dretries=1&x", "https://e.example/?x"],
    [
      "https://e.example/?svc_tokens=1&svc=2&xsvc-a=3&svc_token=TOKEN",
      "https://e.example/?svc_tokens=1&svc=2&xsvc-a=3",
    ],
  ])("%s goes out as %s", async (target, url) => {
    const { reply, server } = await publish(target.replace("TOKEN", encodeURIComponent(token)), []);
    expect(reply).toMatchObject({ status: 200 });
    const view = await server.store.read.message("acc_1", JSON.parse(reply.body).messageId);
    expect(view?.message.url).toBe(url);
  });

  test.each([
    ["group-1", 404, "destination: topic group-1 not found; use an existing URL group or a URL"],
    [
      "shop.example:4000/hook",
      400,
      'destination: "shop.example:4000/hook" is not an http:// or https:// URL or an existing URL group; ' +
        "did you mean http://shop.example:4000/hook?",
    ],
    ["group%2D1", 404, "destination: topic group-1 not found; use an existing URL group or a URL"],
    ["api/llm", 400, 'destination: "api/llm" is not an http:// or https:// URL or an existing URL group'],
    [
      "ftp://e.example",
      400,
      'destination: "ftp://e.example" is not an http:// or https:// URL or an existing URL group',
    ],
    ["a%20b", 400, 'destination: "a b" is not an http:// or https:// URL or an existing URL group'],
    ["%zz", 400, 'destination: "%zz" is not an http:// or https:// URL or an existing URL group'],
    ["", 400, "destination: a non-empty destination must be provided; use a URL or a URL group"],
    ["https://", 400, 'destination: "https://" is not a valid URL'],
    ["https:///x", 400, 'destination: "https:///x" is not a valid URL'],
    ["http://a:b:c/", 400, 'destination: "http://a:b:c/" is not a valid URL'],
    [
      "https%3A%2F%2F%zz",
      400,
      "destination: the percent-encoding is malformed; encode the whole URL or none of it",
    ],
    ["https%3A%2F%2Fe.example%2F%00", 400, 'destination: "https://e.example/\\u0000" is not a valid URL'],
  ])("%s is refused with %i", async (target, status, error) => {
    const { reply, json } = await publish(target);
    const code = status === 404 ? "not-found" : "invalid";
    expect({ status: reply.status, json }).toEqual({ status, json: { error, ...codeFields(code) } });
  });

  test("is refused if it exceeds the limit", async () => {
    const { json } = await publish(`https://e.example/${"x".repeat(17_000)}`);
    expect(json.error).toMatch(/has 17018 characters, which exceeds the limit of 16384$/);
  });

  test("is refused if its host exceeds the limit, for a schedule as well", async () => {
    const { ask, store } = await createTestServer();
    const error = expect.stringMatching(/ has a host of 256 characters, which exceeds the limit of 255$/);
    for (const path of ["publish", "schedules"]) {
      const post = (host: string) =>
        ask(
          "POST",
          `/v2/${path}/https://${host}:80/`,
          path === "schedules" ? { headers: { "svc-cron": "* * * * *" } } : {},
        );
      expect(await post("x".repeat(256))).toMatchObject({ status: 400, body: { error } });
      expect((await post("x".repeat(255))).status).toBe(200);
    }
    expect(await store.read.listResources("schedules", { account: "acc_1", limit: 10 })).toHaveLength(1);
  });
});

describe("a publish over the wire", () => {
  test("names a setting in a refusal as the caller wrote it", async () => {
    const { json } = await publish("https://e.example", [authorization, "sVc-reTries: x"]);
    expect(json).toEqual({
      error: 'sVc-reTries: "x" is not a whole number of 0 or more',
      ...codeFields("invalid"),
    });
  });

  test("suggests the correct name of a setting in the caller's style", async () => {
    const { json } = await publish("https://e.example", [
      authorization,
      "Svc-Callback: https://c.example",
      "Svc-Callback-Retrys: 1",
    ]);
    expect(json).toEqual({
      error: "Svc-Callback-Retrys: unknown setting; did you mean Svc-Callback-Retries?",
      ...codeFields("invalid"),
    });
  });

  test("is refused with two different values of a header, and accepted with equal ones", async () => {
    expect(
      (await publish("https://e.example", [authorization, "Svc-Retries: 1", "svc-retries: 2"])).json.error,
    ).toMatch(/^svc-retries: also given as Svc-Retries with a different value/);
    expect(
      (await publish("https://e.example", [authorization, "Svc-Retries: 1", "Svc-Retries: 1"])).message
        ?.retries,
    ).toBe(1);
  });

  test("delivers any bytes, regardless of their declared type and encoding", async () => {
    const body = "\x00\xff\xfe{[\r\n\r\n";
    const { message } = await publish(
      "https://e.example",
      [authorization, "Content-Type: ;;nonsense", "Content-Encoding: gzip"],
      body,
    );
    expect(Buffer.from(message?.body ?? []).toString("latin1")).toBe(body);
    expect(message?.headers).toEqual([
      ["Content-Type", ";;nonsense"],
      ["Content-Encoding", "gzip"],
    ]);
  });

  test("delivers a chunked body", async () => {
    const server = await createTestServer();
    const line = "POST /v2/publish/https://e.example HTTP/1.1";
    const head = [line, "Host: x", "Connection: close", authorization, "Transfer-Encoding: chunked"];
    await send(await listen(server), `${head.join("\r\n")}\r\n\r\n2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n`);
    expect(Buffer.from(server.delivery().message.body).toString()).toBe("abcde");
  });

  test("delivers thousands of headers completely", async () => {
    const many = Array.from({ length: 2_500 }, (_, at) => `Svc-Forward-N${at}: ${at}`);
    const { message } = await publish("https://e.example", [authorization, ...many]);
    expect(message?.headers.length).toBe(2_500);
  });

  test("accepts a target in absolute form and an unknown expectation", async () => {
    const server = await createTestServer();
    const port = await listen(server);
    await send(
      port,
      request("POST http://proxy.example/v2/publish/https://e.example/a HTTP/1.1", [
        authorization,
        "Expect: wonders",
      ]),
    );
    expect(server.delivery().message.url).toBe("https://e.example/a");
  });
});

describe("the brand of a message", () => {
  test.each([
    ["svc", [], ""],
    ["svc", ["Svc-Retries: 1"], ""],
    ["upstash", ["Upstash-Retries: 1"], ""],
    ["upstash", ["Upstash-Telemetry-Sdk: x"], ""],
    ["upstash", [], "?upstash-retries=1"],
    ["svc", ["Upstash-Retries: 1"], "?svc-timeout=1"],
  ])("is %s with %o%s", async (brand, headers, query) => {
    expect((await publish(`https://e.example/${query}`, [authorization, ...headers])).message?.brand).toBe(
      brand,
    );
  });

  test.each([
    ["svc", "svc_token"],
    ["upstash", "qstash_token"],
  ])("is %s if the token is in %s", async (brand, name) => {
    expect(
      (await publish(`https://e.example/?${name}=${encodeURIComponent(token)}`, [])).message?.brand,
    ).toBe(brand);
  });
});
