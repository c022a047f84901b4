import { createHmac, hash } from "node:crypto";
import type { InjectOptions } from "fastify";
import { beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { alarm as wakeAfter, idleAlarm as wakeWhenIdle, createLongWork } from "../../../../src/clock/clock.ts";
import { createApi } from "../../../../src/api/server/fastify.ts";
import type { TestServer, Reply } from "../../testServer.ts";
import { testTime, createTestServer, otherToken } from "../../testServer.ts";

const destination = "https://shop.example/hook?key=k";
const verification = { scheme: "github", secret: "gh-secret" };

let home: TestServer;

beforeEach(async () => {
  home = await createTestServer();
});

type Made = { sourceId: string; url: string; path: string; secret: string };

/** Makes a source, and answers where it is called. */
async function make(fields: object = {}, { from = home, token }: { from?: TestServer; token?: string } = {}): Promise<Made> {
  const body = JSON.stringify({ destination, ...fields });
  const reply = await from.ask("POST", "/v2/sources", { body, ...(token === undefined ? {} : { token }) });
  expect(reply.body).not.toHaveProperty("error");
  expect(reply.status).toBe(201);
  const { sourceId, url } = reply.body as { sourceId: string; url: string };
  const path = new URL(url).pathname;
  return { sourceId, url, path, secret: path.slice("/v2/in/".length) };
}

const change = (id: string, fields: object, token?: string): Promise<Reply> =>
  home.ask("PATCH", `/v2/sources/${id}`, { body: JSON.stringify(fields), ...(token === undefined ? {} : { token }) });

type Called = { status: number; text: string; headers: Record<string, unknown> };

/** Calls as a sender does: without a token. */
async function call(
  path: string,
  { method = "POST", headers = {}, body }: { method?: "POST" | "GET"; headers?: Record<string, string>; body?: string | Buffer } = {},
) {
  const request: InjectOptions = { method, url: path, headers, ...(body === undefined ? {} : { payload: body }) };
  const { statusCode, body: text, headers: answered } = await home.api.inject(request);
  return { status: statusCode, text, headers: answered } satisfies Called;
}

const signed = (body: string | Buffer, { secret = "gh-secret", event = "evt-1" } = {}): Record<string, string> => ({
  ...{ "content-type": "application/json", "x-github-delivery": event },
  "x-hub-signature-256": `sha256=${createHmac("sha256", secret).update(body).digest("hex")}`,
});

const rejectionsOf = async ({ sourceId }: Made) =>
  (await home.ask("GET", `/v2/sources/${sourceId}/rejections`)).body.rejections as Record<string, unknown>[];

describe("a source", () => {
  test("is made with a URL that is shown once, and of which only a hash is kept", async () => {
    const reply = await home.ask("POST", "/v2/sources", {
      body: JSON.stringify({ name: "GitHub", destination, verification, settings: { "Svc-Retries": "5", "Svc-Forward-X-A": ["1", "2"] } }),
    });
    const { sourceId, url } = reply.body as { sourceId: string; url: string };
    expect(url).toMatch(/^http:\/\/localhost:80\/v2\/in\/[\w-]{32}$/);
    const shown = {
      ...{ sourceId, name: "GitHub", destination, settings: { "Svc-Retries": "5", "Svc-Forward-X-A": ["1", "2"] } },
      ...{ verification: { scheme: "github", secrets: 1 }, deduplicate: true, paused: false, createdAt: testTime, rejected: 0 },
    };
    expect(reply).toMatchObject({ status: 201, body: { ...shown, url } });
    expect(await home.ask("GET", `/v2/sources/${sourceId}`)).toMatchObject({ status: 200, body: shown });
    const list = await home.ask("GET", "/v2/sources");
    expect(list.body).toEqual({ sources: [shown] });
    const secret = url.split("/").at(-1) ?? "";
    const kept = JSON.stringify(await home.store.read.listResources("sources", { account: "acc_1", limit: 10 }));
    expect(kept).toContain(hash("sha256", secret, "hex"));
    expect(kept).not.toContain(secret);
    expect(JSON.stringify(list.body)).not.toContain("gh-secret");
  });

  test("has a URL where the server says it is reached", async () => {
    const api = createApi({
      ...{
        store: home.store,
        now: () => home.clock.now,
        retention: { log: 1, deadLetters: 1 },
        trustProxy: false,
        wakeWhenIdle,
        wakeAfter,
        longWork: createLongWork(),
        log: () => {},
      },
      ...{ notReadyReason: () => null, health: () => ({}), publicUrl: "https://queue.example/base" },
    });
    onTestFinished(() => api.close());
    const { url } = await make({}, { from: { ...home, ask: askOf(api) } });
    expect(url).toMatch(/^https:\/\/queue\.example\/base\/v2\/in\/[\w-]{32}$/);
  });

  test("is listed in pages", async () => {
    const ids: string[] = [];
    for (let number = 0; number < 5; number++) ids.push((await make()).sourceId);
    const found: string[] = [];
    let cursor: string | undefined;
    do {
      const { body } = await home.ask("GET", `/v2/sources?count=2${cursor === undefined ? "" : `&cursor=${cursor}`}`);
      found.push(...(body.sources as { sourceId: string }[]).map(({ sourceId }) => sourceId));
      cursor = body.cursor as string | undefined;
    } while (cursor !== undefined);
    expect(found).toEqual(ids);
    expect((await home.ask("GET", "/v2/sources?cursor=%27")).status).toBe(400);
  });

  test("is one of a thousand at most", async () => {
    const row = { name: "", destination, headers: [], verification: null, deduplicate: true, paused: false };
    for (let number = 0; number < 1000; number++)
      await home.store.execute("createSource", { account: "acc_1", secretHash: String(number), ...row });
    const reply = await home.ask("POST", "/v2/sources", { body: JSON.stringify({ destination }) });
    expect(reply).toMatchObject({ status: 412, body: { error: expect.stringContaining("sources: there are 1000") } });
    await make({}, { token: otherToken });
  });

  test.each([
    [{}, 400, "destination: is missing"],
    [{ destination: 1 }, 400, "destination: is missing, or not a text"],
    [{ destination: "" }, 400, "destination: missing"],
    [{ destination: "ftp://x" }, 400, "destination: "],
    [{ destination: "nobody" }, 404, "nor a known URL group"],
    [{ destination, colour: "red" }, 400, "colour: there is no such field"],
    [{ destination, settings: { "Svc-Retrys": "1" } }, 400, "did you mean Svc-Retries"],
    [{ destination, settings: { "Svc-Retries": "many" } }, 400, "Svc-Retries: "],
    [{ destination, settings: { "Svc-Retries": "1000000" } }, 412, "settings: retries: "],
    [{ destination, settings: { "X-A": "1" } }, 400, "settings.X-A: is no setting; Svc-Forward-X-A has a header delivered"],
    [{ destination, settings: { "Svc-Deduplication-Id": "1" } }, 400, "would make all calls one message"],
    [{ destination, settings: { "Svc-Cron": "* * * * *" } }, 400, "Svc-Cron: "],
    [{ destination, settings: { "Svc-Callback": "nowhere" } }, 400, "Svc-Callback: "],
    [{ destination, settings: { "Svc-Forward-X": "a\r\nb" } }, 400, "Svc-Forward-X: "],
    [{ destination, settings: { "Svc-Forward-X": `REDACTED:${"0".repeat(64)}` } }, 400, "give the value itself"],
    [{ destination, settings: { "Svc-Retries": 3 } }, 400, "settings.Svc-Retries: is neither a text nor a list of texts"],
    [{ destination, settings: "x" }, 400, "settings: "],
    [{ destination, settings: JSON.parse('{"__proto__":"1"}') }, 400, "settings.__proto__: there is no such field"],
    [{ destination, verification: { scheme: "morse", secret: "s" } }, 400, "verification.scheme: is missing, or none of stripe, github, "],
    [{ destination, verification: { secret: "s" } }, 400, "verification.scheme: is missing, or none of stripe, github, "],
    [{ destination, verification: { scheme: "github" } }, 400, "verification.secret: is missing"],
    [{ destination, verification: { scheme: "github", secret: ["1", "2", "3", "4", "5"] } }, 400, "nor a list of 1 to 4 such texts"],
    [{ destination, verification: { scheme: "github", secret: "" } }, 400, "verification.secret: is empty"],
    [{ destination, verification: { scheme: "hmac", secret: "s" } }, 400, "verification.header: is missing"],
    [
      { destination, verification: { scheme: "hmac", secret: "s", header: "X-S", algorithm: "md5" } },
      400,
      "algorithm: is none of sha1, sha256, sha512",
    ],
    [
      { destination, verification: { scheme: "hmac", secret: "s", header: "X-S", timestamp: { header: "X-T", toleranceSeconds: 0 } } },
      400,
      "toleranceSeconds: is less than 1",
    ],
    [{ destination, verification: { scheme: "github" } }, 400, "verification.secret: "],
    [{ destination, verification: { scheme: "standard", secret: "tell-nobody!" } }, 400, "verification.secret: "],
    [{ destination, paused: "yes" }, 400, "paused: is neither true nor false"],
    [{ destination, name: "n".repeat(513) }, 400, "name: is longer than 512 characters"],
  ])("%o is refused", async (body, status, error) => {
    const reply = await home.ask("POST", "/v2/sources", { body: JSON.stringify(body) });
    expect(reply).toMatchObject({ status, body: { error: expect.stringContaining(error) } });
    expect(reply.body.error).not.toContain("tell-nobody!");
    expect((await home.ask("GET", "/v2/sources")).body).toEqual({ sources: [] });
  });

  test("is changed where it is said, and nowhere else", async () => {
    const { sourceId, path } = await make({ settings: { "Svc-Retries": "5" } });
    expect((await change(sourceId, { name: "n", settings: { "Svc-Method": "PUT" } })).body).toMatchObject({
      ...{ name: "n", destination, settings: { "Svc-Method": "PUT" }, paused: false, deduplicate: true, verification: null },
    });
    expect((await change(sourceId, { destination: "https://two.example/" })).status).toBe(200);
    expect((await call(path, { body: "x" })).status).toBe(200);
    expect(home.delivery().message).toMatchObject({ url: "https://two.example/", method: "PUT", retries: 3 });
    expect((await change(sourceId, { verification: { scheme: "stripe", secret: ["a", "b"] } })).body.verification).toEqual({
      scheme: "stripe",
      secrets: 2,
    });
    expect((await call(path, { body: "x" })).status).toBe(401);
    expect((await change(sourceId, { verification: null })).body.verification).toBeNull();
    expect((await call(path, { body: "x" })).status).toBe(200);
    for (const wrong of [{ settings: { "Svc-Retries": "x" } }, { destination: "x y" }, { secretHash: "x" }, { url: "x" }])
      expect((await change(sourceId, wrong)).status).toBe(400);
    expect((await change("src_unknown", { name: "n" })).status).toBe(404);
  });

  test("hides what its settings redact", async () => {
    const settings = { "Svc-Forward-Authorization": "Bearer deep", "Svc-Redact-Fields": "header[Authorization], body" };
    const made = await make({ settings, verification });
    const shown = await home.ask("GET", `/v2/sources/${made.sourceId}`);
    expect(shown.body.settings).toEqual({ ...settings, "Svc-Forward-Authorization": `REDACTED:${hash("sha256", "Bearer deep", "hex")}` });
    expect((await change(made.sourceId, { settings: shown.body.settings as object })).status).toBe(400);
    await call(made.path, { body: "private" });
    expect((await rejectionsOf(made))[0]).toMatchObject({ body: `REDACTED:${hash("sha256", "private", "hex")}` });
  });
});

describe("a call", () => {
  test("is published with the settings of the source, and with nothing of its own but body and headers", async () => {
    const { path, secret } = await make({ settings: { "Svc-Retries": "7", "Svc-Forward-X-Own": "o", "Svc-Label": "l" } });
    const headers = {
      ...{ "content-type": "text/x; charset=y", "content-encoding": "gzip", "x-event": "push", "user-agent": "Sender/1" },
      ...{ "svc-retries": "0", "upstash-delay": "1h", "svc-forward-x-own": "theirs", "svc-callback": "https://evil.example/" },
      ...{ "svc-method": "DELETE", authorization: "Basic abc", cookie: "a=b", "proxy-authorization": "x", "x-forwarded-for": "9.9.9.9" },
      ...{
        referer: `https://queue.example/v2/in/${secret}`,
        "x-original-uri": `/v2/in/%${secret.charCodeAt(0).toString(16)}${secret.slice(1)}`,
      },
    };
    const query = "?svc-delay=1d&upstash-method=PUT&svc_token=x&admin=1&svc-deduplication-id=1";
    const body = Buffer.from([0, 255, 13, 10, 0xe2, 0x82]);
    const reply = await call(path + query, { headers, body });
    const { message } = home.delivery();
    expect(reply).toMatchObject({ status: 200, text: JSON.stringify({ messageId: message.id }) });
    expect(message).toMatchObject({
      ...{
        account: "acc_1",
        url: destination,
        method: "POST",
        retries: 7,
        callback: null,
        labels: ["l"],
        notBefore: testTime,
        deduplication: null,
      },
    });
    expect(Buffer.from(message.body)).toEqual(body);
    expect(message.headers.filter(([name]) => name !== "Accept" && name !== "Accept-Encoding")).toEqual([
      ["Content-Type", "text/x; charset=y"],
      ["Content-Encoding", "gzip"],
      ["X-Event", "push"],
      ["User-Agent", "Sender/1"],
      ["X-Own", "o"],
    ]);
    expect(JSON.stringify([message, reply, home.lines])).not.toContain(secret);
  });

  test("leaves its headers behind when the source says so", async () => {
    const { path } = await make({ settings: { "Upstash-Header-Forward": "false" } });
    await call(path, { headers: { "content-type": "text/plain", "x-a": "1" }, body: "x" });
    expect(home.delivery().message).toMatchObject({ headers: [["Content-Type", "text/plain"]], brand: "upstash" });
  });

  test("keeps the brand of the source", async () => {
    const { path } = await make({ settings: { "Upstash-Retries": "1" } });
    await call(path, { headers: { "svc-retries": "2" }, body: "x" });
    expect(home.delivery().message).toMatchObject({ brand: "upstash", retries: 1 });
  });

  test("goes to all endpoints of a group, of which the sender is told nothing", async () => {
    const endpoints = ["https://one.example/a", "https://two.example/b"].map((url) => ({ url }));
    await home.ask("POST", "/v2/topics/shops/endpoints", { body: JSON.stringify({ endpoints }) });
    const { path } = await make({ destination: "shops", verification });
    const reply = await call(path, { headers: signed("{}"), body: "{}" });
    const sent = home.deliveries.splice(0);
    expect(sent.map(({ message }) => message.url).toSorted()).toEqual(["https://one.example/a", "https://two.example/b"]);
    expect(reply.status).toBe(200);
    expect(JSON.parse(reply.text)).toEqual(sent.map(({ message }) => ({ messageId: message.id })));
    expect((await call(path, { headers: signed("{}"), body: "{}" })).status).toBe(202);
    expect(home.deliveries).toEqual([]);
  });

  test("takes settings from the query of a group destination", async () => {
    const endpoints = [{ url: "https://one.example/a" }];
    await home.ask("POST", "/v2/topics/shops/endpoints", { body: JSON.stringify({ endpoints }) });
    const { path } = await make({ destination: "shops?svc-retries=5&shop=1" });
    await call(path, { body: "x" });
    expect(home.delivery().message).toMatchObject({ url: "https://one.example/a?shop=1", retries: 5 });
  });

  test("whose group is gone is to come again, and its owner sees why", async () => {
    const endpoints = [{ url: "https://one.example/a" }];
    await home.ask("POST", "/v2/topics/shops/endpoints", { body: JSON.stringify({ endpoints }) });
    const made = await make({ destination: "shops" });
    expect((await home.ask("DELETE", "/v2/topics/shops")).status).toBe(200);
    const reply = await call(made.path, { body: "x" });
    expect(reply).toMatchObject({ status: 503, headers: { "retry-after": expect.any(String) } });
    expect(reply.text).not.toContain("shops");
    expect(await rejectionsOf(made)).toMatchObject([{ reason: expect.stringContaining("shops") }]);
  });

  test("with the same signed event is accepted once, by each source for itself", async () => {
    const [one, other] = [await make({ verification }), await make({ verification })];
    const first = await call(one.path, { headers: signed("{}"), body: "{}" });
    const { message } = home.delivery();
    const again = await call(one.path, { headers: signed("{}"), body: "{}" });
    expect(again).toMatchObject({ status: 202, text: JSON.stringify({ messageId: message.id, deduplicated: true }) });
    expect(first.text).toBe(JSON.stringify({ messageId: message.id }));
    expect(home.deliveries).toEqual([]);
    expect((await call(one.path, { headers: signed("{}", { event: "evt-2" }), body: "{}" })).status).toBe(202);
    expect((await call(one.path, { headers: signed("[]"), body: "[]" })).status).toBe(200);
    expect((await call(other.path, { headers: signed("{}"), body: "{}" })).status).toBe(200);
    await change(one.sourceId, { deduplicate: false });
    expect((await call(one.path, { headers: signed("{}"), body: "{}" })).status).toBe(200);
    home.deliveries.splice(0);
    // What its holder publishes with the same id is something else.
    const own = await home.ask("POST", `/v2/publish/${destination}`, { headers: { "svc-deduplication-id": "evt-1" } });
    expect(own.status).toBe(200);
  });

  test("that was accepted is known to the minute", async () => {
    const { path, sourceId } = await make();
    await call(path, { body: "x" });
    home.clock.now += 30_000;
    await call(path, { body: "x" });
    expect((await home.ask("GET", `/v2/sources/${sourceId}`)).body.acceptedAt).toBe(testTime);
    home.clock.now += 30_000;
    await call(path, { body: "x" });
    expect((await home.ask("GET", `/v2/sources/${sourceId}`)).body.acceptedAt).toBe(testTime + 60_000);
  });

  test("is verified with the public URL: as it was addressed, or as a proxy that is trusted says", async () => {
    const twilio = { scheme: "twilio", secret: "12345" };
    const body = "MessageSid=SM1&MessageStatus=sent";
    const headersFor = (url: string) => ({
      ...{ "content-type": "application/x-www-form-urlencoded", host: "queue.example" },
      "x-twilio-signature": createHmac("sha1", "12345").update(`${url}MessageSidSM1MessageStatussent`).digest("base64"),
    });
    const plain = await make({ verification: twilio });
    expect((await call(`${plain.path}?a=1`, { headers: headersFor(`http://queue.example${plain.path}?a=1`), body })).status).toBe(200);
    const forged = { ...headersFor(`https://evil.example${plain.path}`), "x-forwarded-proto": "https", "x-forwarded-host": "evil.example" };
    expect((await call(plain.path, { headers: forged, body })).status).toBe(401);
    home = await createTestServer({ trustProxy: true });
    const proxied = await make({ verification: twilio });
    const through = {
      ...headersFor(`https://front.example${proxied.path}`),
      "x-forwarded-proto": "https",
      "x-forwarded-host": "front.example",
    };
    expect((await call(proxied.path, { headers: through, body })).status).toBe(200);
  });
});

describe("handshakes", () => {
  test("of Slack are answered once they are verified, and nothing is published", async () => {
    const { path } = await make({ verification: { scheme: "slack", secret: "sl" } });
    const body = JSON.stringify({ type: "url_verification", challenge: "3eZbrw1a" });
    const time = String(testTime / 1000);
    const signature = `v0=${createHmac("sha256", "sl").update(`v0:${time}:${body}`).digest("hex")}`;
    const headers = { "content-type": "application/json", "x-slack-request-timestamp": time, "x-slack-signature": signature };
    const reply = await call(path, { headers, body });
    expect(reply).toMatchObject({ status: 200, text: "3eZbrw1a", headers: { "content-type": "text/plain; charset=utf-8" } });
    expect((await call(path, { headers: { ...headers, "x-slack-signature": `v0=${"0".repeat(64)}` }, body })).status).toBe(401);
    expect(home.deliveries).toEqual([]);
  });

  test("by GET are answered where the scheme has them", async () => {
    const handshake = { kind: "hub", verifyToken: "vt" };
    const made = await make({ verification: { scheme: "hmac", secret: "s", header: "X-Signature", handshake } });
    const query = "?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=";
    expect(await call(`${made.path}${query}vt`, { method: "GET" })).toMatchObject({ status: 200, text: "1158201444" });
    expect((await call(`${made.path}${query}wrong`, { method: "GET" })).status).toBe(401);
    expect((await call(made.path, { method: "GET" })).status).toBe(401);
    expect(home.deliveries).toEqual([]);
    expect(await rejectionsOf(made)).toMatchObject([{ method: "GET" }, { reason: expect.stringContaining("hub.verify_token") }]);
  });

  test("by Microsoft are answered with the token, as plain text", async () => {
    const { path } = await make({ verification: { scheme: "microsoft", secret: "cs" } });
    const reply = await call(`${path}?validationToken=a%3Cb%3E`);
    expect(reply).toMatchObject({
      status: 200,
      text: "a<b>",
      headers: { "content-type": "text/plain; charset=utf-8", "x-content-type-options": "nosniff" },
    });
  });

  test("a GET publishes nothing, whatever is in it", async () => {
    const open = await make();
    expect(await call(open.path, { method: "GET" })).toMatchObject({ status: 200, text: '{"ready":true}' });
    const twilio = await make({ verification: { scheme: "twilio", secret: "12345" } });
    const signature = createHmac("sha1", "12345").update(`http://localhost:80${twilio.path}?MessageSid=1`).digest("base64");
    const reply = await call(`${twilio.path}?MessageSid=1`, { method: "GET", headers: { "x-twilio-signature": signature } });
    expect(reply.status).toBe(400);
    expect(await rejectionsOf(twilio)).toMatchObject([{ reason: expect.stringContaining("let the sender call with POST") }]);
    expect(home.deliveries).toEqual([]);
  });
});

function askOf(api: TestServer["api"]): TestServer["ask"] {
  return async (method, url, { headers = {}, body } = {}) => {
    const request = {
      method: method as "POST",
      url,
      headers: { authorization: "Bearer eyJVc2VySUQiOiJ1c2VyIiwiUGFzc3dvcmQiOiJwYXNzIn0=", ...headers },
    };
    const response = await api.inject({ ...request, ...(body === undefined ? {} : { payload: body }) });
    return { status: response.statusCode, body: response.json(), headers: response.headers };
  };
}
