import type { IncomingMessage } from "node:http";
import { describe, expect, onTestFinished, test } from "vitest";
import type { Delivery } from "../../../src/engine/core/model/delivery.ts";
import { systemClock } from "../../../src/engine/clock/clock.ts";
import { isAttemptToken, parseAttemptToken } from "../../../src/engine/delivery/attemptToken.ts";
import { verifyJwt } from "../../../src/engine/delivery/signature.ts";
import {
  readBody,
  call,
  makeDelivery,
  httpDestination,
  rawDestination,
  signingKey,
  start,
} from "./http/destination.ts";

type Seen = { line: string; headers: [string, string][]; body: string };

/** Sends one delivery and returns the request as it was written on the wire. */
async function seen(delivery: (port: number) => Delivery): Promise<Seen> {
  let arrived: Seen | undefined;
  const port = await httpDestination(
    (incoming, response) => void record(incoming).then(() => response.end()),
  );
  async function record(incoming: IncomingMessage): Promise<void> {
    const { rawHeaders: raw } = incoming;
    const headers = raw.flatMap((name, at): [string, string][] =>
      at % 2 === 0 ? [[name, raw[at + 1] ?? ""]] : [],
    );
    arrived = {
      line: `${incoming.method} ${incoming.url}`,
      headers,
      body: (await readBody(incoming)).toString(),
    };
  }
  const outcome = await start()(delivery(port));
  if (!arrived) throw new Error(`nothing arrived: ${outcome.error}`);
  return arrived;
}

describe("the request", () => {
  test("has nothing of Waypost if the message hides its headers, only a plain user agent", async () => {
    const trace = { parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" };
    const hidden = (port: number, more: [string, string][] = []): Delivery => ({
      ...makeDelivery(
        `http://u:p@127.0.0.1:${port}/hook`,
        {
          headers: [["Content-Type", "text/plain"], ["Webhook-Signature", "own"], ["X-A", "1"], ...more],
          brand: "upstash",
          body: Buffer.from("hello"),
          hideHeaders: true,
          callerIp: "9.9.9.9",
          group: "g",
          scheduleId: "s",
          trace,
        },
        2,
      ),
      signingKey,
      standardKeys: [signingKey],
    });
    const { headers, body } = await seen(hidden);
    expect(body).toBe("hello");
    expect(headers.map(([name, value]) => `${name}: ${value.replace(/:\d+$/, "")}`)).toEqual([
      "Host: 127.0.0.1",
      "Connection: keep-alive",
      "Content-Type: text/plain",
      "Webhook-Signature: own",
      "X-A: 1",
      "User-Agent: Webhook",
      `Authorization: Basic ${btoa("u:p")}`,
      "Content-Length: 5",
    ]);
    const other = await seen((port) =>
      hidden(port, [
        ["User-Agent", "Dub"],
        ["Upstash-Signature", "forged"],
      ]),
    );
    expect(other.headers).toContainEqual(["User-Agent", "Dub"]);
    expect(JSON.stringify(other.headers)).not.toMatch(/upstash|svc/i);
  });

  test("has the headers of the message, then those of Waypost, and the body", async () => {
    const { line, headers, body } = await seen((port) =>
      makeDelivery(
        `http://127.0.0.1:${port}/hook`,
        {
          headers: [
            ["Content-Type", "text/plain"],
            ["X-A", "1"],
            ["X-A", "2"],
          ],
          body: Buffer.from("hello"),
          callerIp: "9.9.9.9",
        },
        2,
      ),
    );
    expect(line).toBe("POST /hook");
    expect(body).toBe("hello");
    expect(
      headers.map(([name, value]) =>
        name === "Svc-Signature" ? name : `${name}: ${value.replace(/:\d+$/, "")}`,
      ),
    ).toEqual([
      "Host: 127.0.0.1",
      "Connection: keep-alive",
      "Content-Type: text/plain",
      "X-A: 1",
      "X-A: 2",
      "User-Agent: Svc-Queue",
      "Svc-Signature",
      "Svc-Message-Id: msg_1",
      "Svc-Retried: 2",
      "Svc-Caller-Ip: 9.9.9.9",
      "Svc-Region: EU-CENTRAL-1",
      "Content-Length: 5",
    ]);
  });

  test.each([
    ["svc", "Svc"],
    ["upstash", "Upstash"],
  ] as const)(
    "names its URL group and schedule in brand %s, and ignores forged ones",
    async (brand, prefix) => {
      const headers = [
        ["Svc-Topic-Name", "forged"],
        ["upstash-schedule-id", "forged"],
      ] as const;
      const ofBoth = async (changes: { group: string | null; scheduleId: string | null }) => {
        const sent = await seen((port) =>
          makeDelivery(`http://127.0.0.1:${port}/`, { brand, headers, ...changes }),
        );
        return sent.headers.filter(([name]) => /topic|schedule/i.test(name));
      };
      expect(await ofBoth({ group: "orders", scheduleId: "scd_1" })).toEqual([
        [`${prefix}-Topic-Name`, "orders"],
        [`${prefix}-Schedule-Id`, "scd_1"],
      ]);
      expect(await ofBoth({ group: null, scheduleId: null })).toEqual([]);
    },
  );

  test("is signed for its URL and body", async () => {
    let url = "";
    const { headers } = await seen((port) =>
      makeDelivery((url = `http://127.0.0.1:${port}/a%2Fb?x=1#top`), { body: Buffer.from("hello") }),
    );
    const token = new Map(headers).get("Svc-Signature") ?? "";
    const claims = verifyJwt(token, {
      keys: [signingKey],
      body: Buffer.from("hello"),
      url,
      now: systemClock.now(),
    });
    expect(claims).toMatchObject({ iss: "Svc", sub: url, jti: "jwt_id" });
  });

  test("has the token of the attempt only if the receiver may report later", async () => {
    const { headers } = await seen((port) =>
      makeDelivery(`http://127.0.0.1:${port}/`, { ackKey: "sig_1" }, 2),
    );
    const [, token = ""] = headers.find(([name]) => name === "Svc-Attempt") ?? [];
    const parsed = parseAttemptToken(token);
    expect(parsed).toMatchObject({ attempt: 2, messageId: "msg_1" });
    expect(parsed && [isAttemptToken(parsed, "sig_1"), isAttemptToken(parsed, "sig_2")]).toEqual([
      true,
      false,
    ]);
    const plain = await seen((port) =>
      makeDelivery(`http://127.0.0.1:${port}/`, { headers: [["Svc-Attempt", "forged"]] }),
    );
    expect(plain.headers.map(([name]) => name)).not.toContain("Svc-Attempt");
  });

  test("keeps the headers of a success if they may say that the outcome comes later", async () => {
    const respond = await httpDestination((_, response) =>
      response.writeHead(202, { "Svc-Ack": "later" }).end(),
    );
    const url = `http://127.0.0.1:${respond}/`;
    const plain = { callback: null };
    const { headers } = await start()(makeDelivery(url, { ...plain, ackKey: "sig_1" }));
    expect(headers).toContainEqual(["Svc-Ack", "later"]);
    expect((await start()(makeDelivery(url, plain))).headers).toEqual([]);
  });

  test("uses the brand of its message", async () => {
    const { headers } = await seen((port) => makeDelivery(`http://127.0.0.1:${port}/`, { brand: "upstash" }));
    expect(headers.map(([name]) => name).filter((name) => name.startsWith("Upstash-"))).toEqual([
      "Upstash-Signature",
      "Upstash-Message-Id",
      "Upstash-Retried",
      "Upstash-Region",
    ]);
    expect(new Map(headers).get("User-Agent")).toBe("Upstash-QStash");
  });

  test("drops forged headers of the connection and of Waypost", async () => {
    const forged = [
      "Host",
      "Content-Length",
      "Transfer-Encoding",
      "Connection",
      "Keep-Alive",
      "Upgrade",
      "Te",
      "Trailer",
      "Expect",
      "Proxy-Authorization",
    ];
    const own = [
      "Signature",
      "Message-Id",
      "Retried",
      "Region",
      "Caller-Ip",
      "Workflow-Runid",
      "Workflow-Createdat",
    ];
    const names = [
      ...forged,
      "host",
      "CONTENT-LENGTH",
      ...own.flatMap((name) => [`Svc-${name}`, `Upstash-${name}`, `svc-${name.toLowerCase()}`]),
    ];
    const { headers } = await seen((port) =>
      makeDelivery(`http://127.0.0.1:${port}/`, {
        headers: [
          ...names.map((name) => [name, "forged"] as const),
          ["Svc-Workflow-Invoke-Count", "1"],
          ["Svc-Label", "kept"],
          ["User-Agent", "mine"],
        ],
      }),
    );
    expect(headers.filter(([, value]) => value === "forged")).toEqual([]);
    const kept = headers.filter(([name]) =>
      ["Svc-Workflow-Invoke-Count", "Svc-Label", "User-Agent"].includes(name),
    );
    expect(kept).toEqual([
      ["Svc-Workflow-Invoke-Count", "1"],
      ["Svc-Label", "kept"],
      ["User-Agent", "mine"],
    ]);
  });

  test.each(["GET", "DELETE", "PUT", "PATCH"] as const)(
    "with %s has a body if the message has one",
    async (method) => {
      const full = await seen((port) =>
        makeDelivery(`http://127.0.0.1:${port}/`, { method, body: Buffer.from("hello") }),
      );
      expect([full.line, full.body]).toEqual([`${method} /`, "hello"]);
      const empty = await seen((port) => makeDelivery(`http://127.0.0.1:${port}/`, { method }));
      expect([empty.line, empty.body]).toEqual([`${method} /`, ""]);
      const length = empty.headers.filter(([name]) => name === "Content-Length").map(([, value]) => value);
      expect(length).toEqual(method === "GET" || method === "DELETE" ? [] : ["0"]);
    },
  );

  test.each([
    ["", "/"],
    ["?", "/?"],
    ["?a=1", "/?a=1"],
    ["#top", "/"],
    ["/a#b?c", "/a"],
    ["//a//b/", "//a//b/"],
    ["/a/../b/./%2e%2E/c", "/a/../b/./%2e%2E/c"],
    ["/%zz%2F%2f|{}\"<>`^'\\?q=\\[]%00+", "/%zz%2F%2f|{}\"<>`^'\\?q=\\[]%00+"],
    ["/http://other.test/?u=https://a@b", "/http://other.test/?u=https://a@b"],
    ["/zkouška/日本", "/zkou%C5%A1ka/%E6%97%A5%E6%9C%AC"],
    ["/a b\t", "/a%20b"],
    ["\\a\\b", "/a/b"],
  ])("keeps the path as it was given: %s", async (given, asked) => {
    const { line } = await seen((port) => makeDelivery(`HTTP://127.0.0.1:${port}${given}`));
    expect(line).toBe(`POST ${asked}`);
  });

  test("turns credentials in the URL into an Authorization header, unless there is one", async () => {
    const { headers } = await seen((port) => makeDelivery(`http://me:p%40ss@127.0.0.1:${port}/a@b`));
    expect(new Map(headers).get("Authorization")).toBe(`Basic ${Buffer.from("me:p@ss").toString("base64")}`);
    expect(new Map(headers).get("Host")).toMatch(/^127\.0\.0\.1:\d+$/);
    const own = await seen((port) =>
      makeDelivery(`http://me:pass@127.0.0.1:${port}/`, { headers: [["Authorization", "Bearer own"]] }),
    );
    expect(own.headers.filter(([name]) => name === "Authorization")).toEqual([
      ["Authorization", "Bearer own"],
    ]);
  });

  test("ignores proxies named in the environment", async () => {
    let proxied = 0;
    const proxy = await rawDestination(() => proxied++);
    const names = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"];
    names.forEach((name) => (process.env[name] = `http://127.0.0.1:${proxy}`));
    onTestFinished(() => names.forEach((name) => delete process.env[name]));
    const port = await httpDestination((_incoming, response) => response.end());
    expect((await call(`http://127.0.0.1:${port}/`)).status).toBe(200);
    expect(proxied).toBe(0);
  });
});
