import { describe, expect, test } from "vitest";
import { token } from "../testServer.ts";
import { authorization, publish } from "./publishOverWire.ts";

const bare = (headers: readonly string[], query = "") => publish(`https://e.example/${query}`, headers);

describe("delivered headers", () => {
  test("are those with the prefix of either brand, each as often as sent and byte for byte", async () => {
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

  test("may have names with a prefix of Waypost", async () => {
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
    "Svc-Signature",
    "Upstash-Signature",
    "Svc-Message-Id",
    "Upstash-Retried",
    "Svc-Region",
    "Svc-Topic-Name",
    "Upstash-Schedule-Id",
    "Upstash-Caller-Ip",
    "Svc-Workflow-RunId",
  ])("are never %s", async (name) => {
    expect((await bare([authorization, `Svc-Forward-${name}: 1`])).message?.headers).toEqual([]);
  });

  const incoming = [
    "X-A: 1",
    "X-A: 2",
    "User-Agent: me",
    "Cookie: c=1; waypost-session=a.b; __Host-waypost-operator=c.d",
    "Content-Type: text/plain",
    "Accept-Encoding: br",
    "Svc-Label: l",
    "Upstash-Telemetry-Sdk: s",
    "X-Forwarded-For: 1.1.1.1",
    "X-Forwarded-Proto: https",
    "Forwarded: for=1",
    "Via: p",
    "X-Real-IP: 1.1.1.1",
    "CF-Ray: 1",
    "CDN-Loop: x",
    "Keep-Alive: 1",
    "TE: trailers",
    "Connection: X-Hop",
    "X-Hop: 1",
  ];
  const forwarded = [
    ["Content-Type", "text/plain"],
    ["X-A", "1"],
    ["X-A", "2"],
    ["User-Agent", "me"],
    ["Cookie", "c=1"],
    ["Accept-Encoding", "br"],
  ];

  test("are all with header-forward, except those of the connection, proxies and Waypost", async () => {
    expect((await bare([authorization, "Svc-Header-Forward: true", ...incoming])).message?.headers).toEqual(
      forwarded,
    );
    expect(
      (await bare([authorization, ...incoming], "?upstash-header-forward=true")).message?.headers,
    ).toEqual(forwarded);
    expect((await bare([authorization, "Svc-Header-Forward: false", ...incoming])).message?.headers).toEqual([
      ["Content-Type", "text/plain"],
    ]);
  });

  test("include signatures, but not other headers that proxies add or require", async () => {
    const signed = ["X-Vercel-Signature: abc", "Cf-Webhook-Auth: secret", "X-Fly-Signature: 1"];
    const added = [
      "Cf-Connecting-Ip: 1.1.1.1",
      "Cf-IpCountry: DE",
      "X-Vercel-Id: 1",
      "X-Vercel-Ip-City: B",
      "Fly-Client-Ip: 1.1.1.1",
    ];
    const shown = ["Cf-Access-Client-Secret: 1", "X-Vercel-Protection-Bypass: 2", "X-Vercel-Oidc-Token: 3"];
    const { message } = await bare([
      authorization,
      "Svc-Header-Forward: true",
      ...signed,
      ...added,
      ...shown,
    ]);
    expect(message?.headers.map(([name, value]) => `${name}: ${value}`)).toEqual(signed);
  });

  test("set the content type only if the request has none", async () => {
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

  test("with the prefix replace forwarded headers of the same name", async () => {
    const { message } = await bare([
      authorization,
      "Svc-Header-Forward: true",
      "X-A: 1",
      "X-B: 1",
      "Svc-Forward-X-A: 2",
    ]);
    expect(message?.headers).toEqual([
      ["X-B", "1"],
      ["X-A", "2"],
    ]);
  });

  test("include Authorization only if it has no token of Waypost", async () => {
    const query = `?svc_token=${encodeURIComponent(token)}&svc-header-forward=true`;
    expect((await bare(["Authorization: Bearer theirs"], query)).message?.headers).toEqual([
      ["Authorization", "Bearer theirs"],
    ]);
    expect((await bare(["Authorization: Basic dTpw"], query)).message?.headers).toEqual([
      ["Authorization", "Basic dTpw"],
    ]);
    expect((await bare([authorization], query)).message?.headers).toEqual([]);
    expect((await bare([authorization, "Svc-Forward-Authorization: Bearer x"])).message?.headers).toEqual([
      ["Authorization", "Bearer x"],
    ]);
  });
});

describe("the token of a request", () => {
  const encoded = encodeURIComponent(token);
  const byQuery = `?svc_token=${encoded}&svc-header-forward=true`;

  test.each([
    [`Authorization: ${token}`],
    [`Authorization: Bearer ${token}, x`],
    [`Referer: https://console.example/?svc_token=${encoded}`],
    [`Referer: https://console.example/?svc_token=${encoded.replaceAll("%3D", "%3d")}&%`],
    [`Cookie: token=${token}; a=1`],
    [`X-Token: ${token}`],
  ])("is not forwarded in %s", async (line) => {
    const { reply, message } = await bare([line, "X-A: 1"], byQuery);
    expect(reply.status).toBe(200);
    expect(message?.headers).toEqual([["X-A", "1"]]);
  });

  test("is not forwarded in a second line or another header if it is in Authorization", async () => {
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
