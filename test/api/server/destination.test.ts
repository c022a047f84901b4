import { describe, expect, test } from "vitest";
import { createTestServer, otherToken, token } from "../testServer.ts";
import type { TestServer } from "../testServer.ts";
import { listen, parseReply, request, send } from "../wire.ts";

const authorization = `Authorization: Bearer ${token}`;

/** Publishes over a socket: `target` and header lines go out byte for byte. */
async function publish(target: string, headers: readonly string[] = [authorization], body = "") {
  const home = await createTestServer();
  const reply = parseReply(await send(await listen(home), request(`POST /v2/publish/${target} HTTP/1.1`, headers, body)));
  return { reply, json: JSON.parse(reply.body), message: home.deliveries[0]?.message, home };
}

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
  ])("%s survives byte for byte", async (url) => {
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
    ["https://e.example/?a&qstash_token=TOKEN&upstash-retries=1&Svc-Delay=1s&b=%zz", "https://e.example/?a&b=%zz"],
    ["https://e.example/?svc%5Ftoken=TOKEN&svc%2Dretries=1&x", "https://e.example/?x"],
    ["https://e.example/?svc_tokens=1&svc=2&xsvc-a=3&svc_token=TOKEN", "https://e.example/?svc_tokens=1&svc=2&xsvc-a=3"],
  ])("%s goes out as %s", async (target, url) => {
    const { reply, home } = await publish(target.replace("TOKEN", encodeURIComponent(token)), []);
    expect(reply).toMatchObject({ status: 200 });
    const view = await home.store.read.message("acc_1", JSON.parse(reply.body).messageId);
    expect(view?.message.url).toBe(url);
  });

  test.each([
    ["group-1", 404, 'destination: "group-1" is neither a URL with http:// or https:// nor a known URL group'],
    [
      "shop.example:4000/hook",
      400,
      'destination: "shop.example:4000/hook" is neither a URL with http:// or https:// nor a known URL group; did you mean http://shop.example:4000/hook?',
    ],
    ["group%2D1", 404, 'destination: "group-1" is neither a URL with http:// or https:// nor a known URL group'],
    ["api/llm", 400, 'destination: "api/llm" is neither a URL with http:// or https:// nor a known URL group'],
    ["ftp://e.example", 400, 'destination: "ftp://e.example" is neither a URL with http:// or https:// nor a known URL group'],
    ["a%20b", 400, 'destination: "a b" is neither a URL with http:// or https:// nor a known URL group'],
    ["%zz", 400, 'destination: "%zz" is neither a URL with http:// or https:// nor a known URL group'],
    ["", 400, "destination: missing; give a URL with http:// or https://, or the name of a URL group"],
    ["https://", 400, 'destination: "https://" is not a valid URL'],
    ["https:///x", 400, 'destination: "https:///x" is not a valid URL'],
    ["http://a:b:c/", 400, 'destination: "http://a:b:c/" is not a valid URL'],
    ["https%3A%2F%2F%zz", 400, "destination: the percent-encoding is malformed; encode the whole URL, or nothing of it"],
    ["https%3A%2F%2Fe.example%2F%00", 400, 'destination: "https://e.example/\\u0000" is not a valid URL'],
  ])("%s is refused with %i", async (target, status, error) => {
    const { reply, json } = await publish(target);
    expect({ status: reply.status, json }).toEqual({ status, json: { error } });
  });

  test("longer than the limit is refused by its length", async () => {
    const { json } = await publish(`https://e.example/${"x".repeat(17_000)}`);
    expect(json.error).toMatch(/is too long: 17018 characters, the limit is 16384$/);
  });

  test("with a host that is longer than any is refused, for a schedule as well", async () => {
    const { ask, store } = await createTestServer();
    const error = expect.stringMatching(/ has a host of 256 characters, the limit is 255$/);
    for (const path of ["publish", "schedules"]) {
      const post = (host: string) =>
        ask("POST", `/v2/${path}/https://${host}:80/`, path === "schedules" ? { headers: { "svc-cron": "* * * * *" } } : {});
      expect(await post("x".repeat(256))).toMatchObject({ status: 400, body: { error } });
      expect((await post("x".repeat(255))).status).toBe(200);
    }
    expect(await store.read.listResources("schedules", { account: "acc_1", limit: 10 })).toHaveLength(1);
  });
});

describe("a publish over the wire", () => {
  test("names settings in refusals as the caller wrote them", async () => {
    const { json } = await publish("https://e.example", [authorization, "sVc-reTries: x"]);
    expect(json).toEqual({ error: 'sVc-reTries: "x" is not a whole number of 0 or more' });
  });

  test("suggests what was meant in the same style", async () => {
    const { json } = await publish("https://e.example", [authorization, "Svc-Callback: https://c.example", "Svc-Callback-Retrys: 1"]);
    expect(json).toEqual({ error: "Svc-Callback-Retrys: there is no such setting; did you mean Svc-Callback-Retries?" });
  });

  test("refuses a header that came twice with different values, and takes equal ones", async () => {
    expect((await publish("https://e.example", [authorization, "Svc-Retries: 1", "svc-retries: 2"])).json.error).toMatch(
      /^svc-retries: given as Svc-Retries too/,
    );
    expect((await publish("https://e.example", [authorization, "Svc-Retries: 1", "Svc-Retries: 1"])).message?.retries).toBe(1);
  });

  test("delivers any bytes, whatever their type and encoding are said to be", async () => {
    const body = "\x00\xff\xfe{[\r\n\r\n";
    const { message } = await publish("https://e.example", [authorization, "Content-Type: ;;nonsense", "Content-Encoding: gzip"], body);
    expect(Buffer.from(message?.body ?? []).toString("latin1")).toBe(body);
    expect(message?.headers).toEqual([
      ["Content-Type", ";;nonsense"],
      ["Content-Encoding", "gzip"],
    ]);
  });

  test("delivers a body that came in chunks", async () => {
    const home = await createTestServer();
    const head = `POST /v2/publish/https://e.example HTTP/1.1\r\nHost: x\r\nConnection: close\r\n${authorization}\r\nTransfer-Encoding: chunked\r\n\r\n`;
    await send(await listen(home), `${head}2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n`);
    expect(Buffer.from(home.delivery().message.body).toString()).toBe("abcde");
  });

  test("delivers thousands of headers, none cut off", async () => {
    const many = Array.from({ length: 2_500 }, (_, at) => `Svc-Forward-N${at}: ${at}`);
    const { message } = await publish("https://e.example", [authorization, ...many]);
    expect(message?.headers.length).toBe(2_500);
  });

  test("takes a target in absolute form, and an expectation it does not know", async () => {
    const home = await createTestServer();
    const port = await listen(home);
    await send(port, request("POST http://proxy.example/v2/publish/https://e.example/a HTTP/1.1", [authorization, "Expect: wonders"]));
    expect(home.delivery().message.url).toBe("https://e.example/a");
  });
});

const bare = (headers: readonly string[], query = "") => publish(`https://e.example/${query}`, headers);

describe("headers that are delivered", () => {
  test("are those with the prefix, under either brand, as often as they came, with the bytes they came with", async () => {
    const { message } = await bare([
      authorization,
      "Svc-Forward-X-A: 1",
      "upstash-forward-x-a: 2",
      "SVC-FORWARD-X-B: \xe4\xff, x",
      "X-Plain: no",
    ]);
    expect(message?.headers).toEqual([
      ["X-A", "1"],
      ["X-A", "2"],
      ["X-B", "\xe4\xff, x"],
    ]);
  });

  test("may have names that begin like ours", async () => {
    const { message } = await bare([
      authorization,
      "Svc-Forward-Svc-Workflow-Is-Failure: true",
      "Upstash-Forward-Upstash-Label: l",
      "Svc-Forward-Cookie: c",
    ]);
    expect(message?.headers).toEqual([
      ["Svc-Workflow-Is-Failure", "true"],
      ["Upstash-Label", "l"],
      ["Cookie", "c"],
    ]);
  });

  test.each([
    ...[
      "Host",
      "Content-Length",
      "Transfer-Encoding",
      "Connection",
      "Keep-Alive",
      "Upgrade",
      "TE",
      "Trailer",
      "Expect",
      "Proxy-Authorization",
    ],
    ...[
      "Svc-Signature",
      "Upstash-Signature",
      "Svc-Message-Id",
      "Upstash-Retried",
      "Svc-Region",
      "Svc-Topic-Name",
      "Upstash-Schedule-Id",
      "Upstash-Caller-Ip",
      "Svc-Workflow-RunId",
    ],
  ])("are never %s", async (name) => {
    expect((await bare([authorization, `Svc-Forward-${name}: 1`])).message?.headers).toEqual([]);
  });

  const incoming = [
    ...[
      "X-A: 1",
      "X-A: 2",
      "User-Agent: me",
      "Cookie: c=1",
      "Content-Type: text/plain",
      "Accept-Encoding: br",
      "Svc-Label: l",
      "Upstash-Telemetry-Sdk: s",
    ],
    ...[
      "X-Forwarded-For: 1.1.1.1",
      "X-Forwarded-Proto: https",
      "Forwarded: for=1",
      "Via: p",
      "X-Real-IP: 1.1.1.1",
      "CF-Ray: 1",
      "CDN-Loop: x",
    ],
    ...["Keep-Alive: 1", "TE: trailers", "Connection: X-Hop", "X-Hop: 1"],
  ];
  const forwarded = [
    ["Content-Type", "text/plain"],
    ["X-A", "1"],
    ["X-A", "2"],
    ["User-Agent", "me"],
    ["Cookie", "c=1"],
    ["Accept-Encoding", "br"],
  ];

  test("are the sender's own with header-forward, without what belongs to connection, proxies and service", async () => {
    expect((await bare([authorization, "Svc-Header-Forward: true", ...incoming])).message?.headers).toEqual(forwarded);
    expect((await bare([authorization, ...incoming], "?upstash-header-forward=true")).message?.headers).toEqual(forwarded);
    expect((await bare([authorization, "Svc-Header-Forward: false", ...incoming])).message?.headers).toEqual([
      ["Content-Type", "text/plain"],
    ]);
  });

  test("are signatures, also of those who run proxies, and not what proxies add or are shown", async () => {
    const signed = ["X-Vercel-Signature: abc", "Cf-Webhook-Auth: secret", "X-Fly-Signature: 1"];
    const added = ["Cf-Connecting-Ip: 1.1.1.1", "Cf-IpCountry: DE", "X-Vercel-Id: 1", "X-Vercel-Ip-City: B", "Fly-Client-Ip: 1.1.1.1"];
    const shown = ["Cf-Access-Client-Secret: 1", "X-Vercel-Protection-Bypass: 2", "X-Vercel-Oidc-Token: 3"];
    const { message } = await bare([authorization, "Svc-Header-Forward: true", ...signed, ...added, ...shown]);
    expect(message?.headers.map(([name, value]) => `${name}: ${value}`)).toEqual(signed);
  });

  test("give the content type of a request that has none of its own", async () => {
    const given = "Svc-Forward-Content-Type: text/x";
    expect((await bare([authorization, given])).message?.headers).toEqual([["Content-Type", "text/x"]]);
    const twice = [authorization, given, "Upstash-Forward-Content-Type: text/y", "Svc-Forward-X: 1"];
    expect((await bare(twice)).message?.headers).toEqual([
      ["Content-Type", "text/x"],
      ["X", "1"],
    ]);
    const own = [["Content-Type", "text/plain"]];
    expect((await bare([authorization, given, "Content-Type: text/plain"])).message?.headers).toEqual(own);
    const all = [authorization, given, "Content-Type: text/plain", "Svc-Header-Forward: true"];
    expect((await bare(all)).message?.headers).toEqual(own);
  });

  test("given with the prefix replace what came along", async () => {
    const { message } = await bare([authorization, "Svc-Header-Forward: true", "X-A: 1", "X-B: 1", "Svc-Forward-X-A: 2"]);
    expect(message?.headers).toEqual([
      ["X-B", "1"],
      ["X-A", "2"],
    ]);
  });

  test("include Authorization only where it did not carry our token", async () => {
    const query = `?svc_token=${encodeURIComponent(token)}&svc-header-forward=true`;
    expect((await bare(["Authorization: Bearer theirs"], query)).message?.headers).toEqual([["Authorization", "Bearer theirs"]]);
    expect((await bare(["Authorization: Basic dTpw"], query)).message?.headers).toEqual([["Authorization", "Basic dTpw"]]);
    expect((await bare([authorization], query)).message?.headers).toEqual([]);
    expect((await bare([authorization, "Svc-Forward-Authorization: Bearer x"])).message?.headers).toEqual([["Authorization", "Bearer x"]]);
  });
});

describe("our own token", () => {
  const encoded = encodeURIComponent(token);
  const byQuery = `?svc_token=${encoded}&svc-header-forward=true`;

  test.each([
    [`Authorization: ${token}`],
    [`Authorization: Bearer ${token}, x`],
    [`Referer: https://console.example/?svc_token=${encoded}`],
    [`Referer: https://console.example/?svc_token=${encoded.replaceAll("%3D", "%3d")}&%`],
    [`Cookie: token=${token}; a=1`],
    [`X-Token: ${token}`],
  ])("does not go along in %s", async (line) => {
    const { reply, message } = await bare([line, "X-A: 1"], byQuery);
    expect(reply.status).toBe(200);
    expect(message?.headers).toEqual([["X-A", "1"]]);
  });

  test("does not go along in a second line, or elsewhere, when it came in the header", async () => {
    const { message } = await bare([
      authorization,
      "Svc-Header-Forward: true",
      authorization,
      `Referer: https://c.example/?t=${encoded}`,
      "X-A: 1",
    ]);
    expect(message?.headers).toEqual([["X-A", "1"]]);
    const second = await bare(["Authorization: Bearer theirs", authorization], byQuery);
    expect(second.message?.headers).toEqual([["Authorization", "Bearer theirs"]]);
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
    expect((await publish(`https://e.example/${query}`, [authorization, ...headers])).message?.brand).toBe(brand);
  });

  test.each([
    ["svc", "svc_token"],
    ["upstash", "qstash_token"],
  ])("is %s when the token came as %s", async (brand, name) => {
    expect((await publish(`https://e.example/?${name}=${encodeURIComponent(token)}`, [])).message?.brand).toBe(brand);
  });
});

describe("deduplication", () => {
  const post = async ({ ask }: TestServer, url: string, headers: Record<string, string>, body = "b", by = token) =>
    ask("POST", `/v2/publish/${url}`, { headers, body, token: by });

  test("an id that was seen is answered with the older message and 202, in its account", async () => {
    const home = await createTestServer();
    const first = await post(home, "https://e.example", { "svc-deduplication-id": "1" });
    const second = await post(home, "https://other.example", {
      "upstash-deduplication-id": "1",
      "svc-content-based-deduplication": "true",
    });
    expect(second).toMatchObject({ status: 202, body: { messageId: first.body.messageId, deduplicated: true } });
    expect((await post(home, "https://e.example", { "svc-deduplication-id": "1" }, "b", otherToken)).status).toBe(200);
    expect(home.deliveries.length).toBe(2);
  });

  test("the order of headers is no content, that of the values of one is", async () => {
    const home = await createTestServer();
    const publish = async (...headers: [string, string][]) => {
      const given = headers.map(([name, value]) => ({ [`svc-forward-${name}`]: value }));
      const all = Object.assign({ "svc-content-based-deduplication": "true" }, ...given);
      return (await post(home, "https://e.example", all)).status;
    };
    expect([await publish(["a", "1"], ["b", "2"]), await publish(["b", "2"], ["a", "1"]), await publish(["b", "1"], ["a", "2"])]).toEqual([
      ...[200, 202, 200],
    ]);
    const listed = async (values: string[]) =>
      (
        await home.ask("POST", "/v2/publish/https://e.example", {
          headers: { "svc-content-based-deduplication": "true", "svc-forward-a": values as unknown as string },
          body: "b",
        })
      ).status;
    expect([await listed(["1", "2"]), await listed(["2", "1"])]).toEqual([200, 200]);
  });

  test("content is destination, body, content type and forwarded headers", async () => {
    const home = await createTestServer();
    const same = { "svc-content-based-deduplication": "true", "content-type": "text/plain", "svc-forward-a": "12" };
    const variants: [url: string, headers: Record<string, string>, body: string][] = [
      ["https://e.example", same, "b"],
      ["https://e.example/", same, "b"],
      ["https://e.example", { ...same, "content-type": "text/html" }, "b"],
      ["https://e.example", { ...same, "svc-forward-a": "1", "svc-forward-b": "2" }, "b"],
      ["https://e.example", { ...same, "svc-forward-a": "1" }, "2b"],
      ["https://e.example", same, "c"],
      ["https://e.example", same, ""],
    ];
    for (const [url, headers, body] of variants) expect((await post(home, url, headers, body)).status).toBe(200);
    for (const [url, headers, body] of variants)
      expect((await post(home, url, { ...headers, "x-other": "1", "svc-retries": "1" }, body)).status).toBe(202);
  });
});
