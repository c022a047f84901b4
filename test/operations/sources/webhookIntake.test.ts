import { createHmac, timingSafeEqual } from "node:crypto";
import { describe, expect, test } from "vitest";
import { noBytes } from "../../../src/engine/core/values/basics.ts";
import { readBody, httpDestination, start } from "../../engine/delivery/http/destination.ts";
import { createTestServer, token } from "../../api/testServer.ts";
import type { TestServer } from "../../api/testServer.ts";
import { listen, parseReply, request, send } from "../../api/wire.ts";

type Arrived = { url: string; headers: [name: string, value: string][]; body: Buffer };

/** Starts a destination that keeps the requests it receives. */
async function destination(): Promise<{ origin: string; arrived: Arrived[] }> {
  const arrived: Arrived[] = [];
  const port = await httpDestination((incoming, response) => {
    const { rawHeaders: raw, url = "" } = incoming;
    const headers = raw.flatMap((name, at): [string, string][] =>
      at % 2 === 0 ? [[name, raw[at + 1] ?? ""]] : [],
    );
    void readBody(incoming).then((body) => {
      arrived.push({ url, headers, body });
      response.end();
    });
  });
  return { origin: `http://127.0.0.1:${port}`, arrived };
}

/** Sends a call like a sender of webhooks, byte for byte, and makes the resulting deliveries. */
async function call(
  server: TestServer,
  target: string,
  { headers, body = "" }: { headers: readonly string[]; body?: string },
): Promise<number> {
  const port = await listen(server);
  const reply = parseReply(await send(port, request(`POST /v2/publish/${target} HTTP/1.1`, headers, body)));
  const deliver = start();
  for (const delivery of server.deliveries.splice(0))
    expect(await deliver(delivery)).toMatchObject({ status: 200, error: null });
  return reply.status;
}

const valuesOf = ({ headers }: Arrived, name: string): string[] =>
  headers.flatMap(([key, value]) => (key.toLowerCase() === name.toLowerCase() ? [value] : []));

const byQuery = `svc_token=${encodeURIComponent(token)}&svc-header-forward=true&svc-retries=3`;
const secret = "It's a Secret to Everybody";
const signatureOf = (body: Buffer): string =>
  `sha256=${createHmac("sha256", secret).update(body).digest("hex")}`;

/** Verifies a call like the sender's own library at the destination. */
function verifies(call: Arrived): boolean {
  const [given = ""] = valuesOf(call, "X-Hub-Signature-256");
  const wanted = signatureOf(call.body);
  return given.length === wanted.length && timingSafeEqual(Buffer.from(given), Buffer.from(wanted));
}

// Spaces, escapes, a byte order mark, a repeated name, and bytes that are not UTF-8. All of them would change
// if the body were parsed and rewritten.
const body = '\xef\xbb\xbf{ "zen":"\\u00e4\xc3\xa4\\/", "a":1.0,"a" : 1e2 }\r\n\x00\xff\xfe';
const github = [
  "User-Agent: GitHub-Hookshot/044aadd",
  "Content-Type: application/json; charset=utf-8",
  "X-GitHub-Event: push",
  "X-GitHub-Delivery: 72d3162e-cc78-11e3-81ab-4c9367dc0958",
  `X-Hub-Signature-256: ${signatureOf(Buffer.from(body, "latin1"))}`,
];

describe("a signed webhook", () => {
  test("still verifies at the destination, with its original headers", async () => {
    const server = await createTestServer();
    const { origin, arrived } = await destination();
    expect(
      await call(server, `${origin}/hooks//github?repo=a%2Fb&${byQuery}`, { headers: github, body }),
    ).toBe(200);
    const [only] = arrived;
    if (!only) throw new Error("nothing arrived");
    expect(verifies(only)).toBe(true);
    expect(only.url).toBe("/hooks//github?repo=a%2Fb");
    expect(only.body.toString("latin1")).toBe(body);
    for (const line of github) {
      const [name = "", value = ""] = line.split(/: (.*)/s);
      expect(valuesOf(only, name)).toEqual([value]);
    }
    expect(valuesOf(only, "Svc-Retried")).toEqual(["0"]);
    expect(valuesOf(only, "Svc-Topic-Name")).toEqual([]);
    expect(arrived).toHaveLength(1);
  });

  test("verifies at every endpoint of a URL group with default headers", async () => {
    const server = await createTestServer();
    const { origin, arrived } = await destination();
    const endpoints = [{ url: `${origin}/one`, name: "one" }, { url: `${origin}/two?x=1` }];
    await server.ask("POST", "/v2/topics/github/endpoints", { body: JSON.stringify({ endpoints }) });
    const headers = { "Svc-Header-Forward": ["true"], "Svc-Retries": "3" };
    await server.ask("PATCH", "/v2/topics/github", { body: JSON.stringify({ headers }) });
    expect(
      await call(server, `github?svc_token=${encodeURIComponent(token)}`, { headers: github, body }),
    ).toBe(200);
    expect(arrived.map(({ url }) => url)).toEqual(["/one", "/two?x=1"]);
    expect(arrived.map(verifies)).toEqual([true, true]);
    expect(arrived.map((one) => valuesOf(one, "Svc-Topic-Name"))).toEqual([["github"], ["github"]]);
    const [first, second] = arrived.map((one) => valuesOf(one, "Svc-Message-Id")[0]);
    expect(first).not.toBe(second);
  });
});

describe("a webhook", () => {
  const forwarded = async (headers: readonly string[], content = "") => {
    const server = await createTestServer();
    const { origin, arrived } = await destination();
    expect(await call(server, `${origin}/?${byQuery}`, { headers, body: content })).toBe(200);
    const [only] = arrived;
    if (!only) throw new Error("nothing arrived");
    return { only, server };
  };

  test.each([
    ["application/x-www-form-urlencoded", "payload=%7B%7D&a+b=c"],
    ["multipart/form-data; boundary=x", '--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--x--'],
    ["application/cloudevents+json", "{"],
    ["nonsense", "\x00\x01\x80\xff"],
    ["text/plain; charset=ISO-8859-1", "\xe4"],
  ])("of type %s arrives unchanged", async (type, content) => {
    const { only } = await forwarded([`Content-Type: ${type}`], content);
    expect(only.body.toString("latin1")).toBe(content);
    expect(valuesOf(only, "Content-Type")).toEqual([type]);
  });

  test("without a body and a content type arrives without them", async () => {
    const { only } = await forwarded(["X-Event: ping"]);
    expect(only.body).toEqual(Buffer.from(noBytes));
    expect(valuesOf(only, "Content-Type")).toEqual([]);
    expect(valuesOf(only, "X-Event")).toEqual(["ping"]);
  });

  test("keeps repeated headers in order, with the bytes of their values", async () => {
    const { only } = await forwarded(["X-Tag: b", "X-Other: 1", "X-Tag: a", "x-tag: \xe4, c"]);
    expect(valuesOf(only, "X-Tag")).toEqual(["b", "a", "\xe4, c"]);
  });

  test("keeps its own Authorization, and loses the headers of the connection and of proxies", async () => {
    const { only } = await forwarded([
      "Authorization: Basic dTpw",
      "X-Forwarded-For: 1.2.3.4",
      "Via: 1.1 proxy",
      "TE: trailers",
      "Keep-Alive: timeout=5",
      "Proxy-Authorization: Basic x",
      "Upgrade: h2c",
      "Upstash-Signature: forged",
      "Svc-Topic-Name: forged",
    ]);
    expect(valuesOf(only, "Authorization")).toEqual(["Basic dTpw"]);
    const names = [
      "X-Forwarded-For",
      "Via",
      "TE",
      "Keep-Alive",
      "Proxy-Authorization",
      "Upgrade",
      "Upstash-Signature",
      "Svc-Topic-Name",
    ];
    expect(names.flatMap((name) => valuesOf(only, name))).toEqual([]);
  });

  test("never reveals the token to the destination, in the request log or in a message", async () => {
    const { only, server } = await forwarded([
      `Referer: https://x.example/?${byQuery}`,
      `X-Copy: ${token}`,
      `Authorization: Bearer ${token}`,
    ]);
    const encoded = encodeURIComponent(token);
    const seen = [
      JSON.stringify(only.headers),
      only.url,
      JSON.stringify(server.lines),
      JSON.stringify((await server.ask("GET", "/v2/events")).body),
    ];
    for (const text of seen) {
      expect(text).not.toContain(token);
      expect(text).not.toContain(encoded);
    }
    expect(server.lines[0]).toMatchObject({ status: 200, path: "/v2/publish/http://127.0.0.1" });
  });
});
