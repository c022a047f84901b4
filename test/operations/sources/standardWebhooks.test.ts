import type { IncomingHttpHeaders } from "node:http";
import { Webhook } from "standardwebhooks";
import { describe, expect, test } from "vitest";
import type { Delivery } from "../../../src/engine/core/model/delivery.ts";
import { verifyStandard } from "../../../src/engine/delivery/signature.ts";
import { readBody, httpDestination, start } from "../../engine/delivery/http/destination.ts";
import type { TestServer } from "../../api/testServer.ts";
import { createTestServer } from "../../api/testServer.ts";
import { formatBasic } from "../../api/routes/accounts/possessions.ts";

type Sent = { headers: IncomingHttpHeaders; body: Buffer };

/** Makes a delivery and returns the request that its destination received. */
async function sent(delivery: (port: number) => Promise<Delivery>): Promise<Sent> {
  const arrived: Sent[] = [];
  const port = await httpDestination((request, response) => {
    void readBody(request).then((body) => {
      arrived.push({ headers: request.headers, body });
      response.end();
    });
  });
  await start()(await delivery(port));
  const [only] = arrived;
  if (!only) throw new Error("nothing arrived");
  return only;
}

const text = '{"händler": 1}';
const publish = (server: TestServer, body: string | Buffer = text): Promise<Sent> =>
  sent(async (port) => {
    const headers = { "svc-forward-webhook-id": "forged", "svc-forward-webhook-signature": "v1,forged" };
    expect(
      (await server.ask("POST", `/v2/publish/http://127.0.0.1:${port}/`, { body, headers })).status,
    ).toBe(200);
    return server.delivery();
  });

const turn = async ({ ask }: TestServer, verb: "enable" | "disable", brand = "svc"): Promise<void> => {
  const headers = { authorization: formatBasic("acc_1", "pass") };
  expect(
    (await ask("POST", `/v2/${brand}/${verb}-standard-webhooks/acc_1`, { token: null, headers })).status,
  ).toBe(200);
};

const secretOf = async ({ ask }: TestServer): Promise<string> =>
  (await ask("GET", "/v2/keys")).body.standardWebhooks.current;

/** Verifies a request with the published library. */
const verified = ({ headers, body }: Sent, secret: string): unknown =>
  new Webhook(secret).verify(body, headers as Record<string, string>);

describe("Standard Webhooks", () => {
  test("signs deliveries only while it is enabled", async () => {
    const server = await createTestServer();
    expect((await server.ask("GET", "/v2/keys")).body).toEqual({ current: "sig_1", next: "sig_2" });
    const plain = await publish(server);
    expect(plain.headers).toMatchObject({ "webhook-id": "forged", "webhook-signature": "v1,forged" });
    expect(plain.headers).not.toHaveProperty("webhook-timestamp");
    await turn(server, "enable");
    expect((await publish(server)).headers).toHaveProperty("webhook-timestamp");
    await turn(server, "disable", "qstash");
    expect((await publish(server)).headers).toMatchObject({ "webhook-id": "forged" });
  });

  test("adds a signature that the published library verifies, regardless of forwarded headers", async () => {
    const server = await createTestServer();
    await turn(server, "enable", "qstash");
    const secret = await secretOf(server);
    expect(secret).toMatch(/^whsec_[A-Za-z0-9+/]+=*$/);
    const got = await publish(server);
    expect(verified(got, secret)).toEqual(JSON.parse(text));
    expect(got.headers).toMatchObject({
      "svc-signature": expect.stringMatching(/^eyJ/),
      "webhook-id": got.headers["svc-message-id"],
    });
    expect(() => verified({ ...got, body: Buffer.from(text.replace("1", "2")) }, secret)).toThrow(
      /No matching signature/,
    );
    expect(() => verified(got, "whsec_c2lnXzI=")).toThrow(/No matching signature/);
    const empty = await publish(server, "");
    const bytes = await publish(server, Buffer.from([0, 255, 10]));
    for (const one of [empty, bytes]) {
      const { "webhook-id": id, "webhook-timestamp": time, "webhook-signature": given } = one.headers;
      const signed = { id: String(id), timestamp: String(time), signature: String(given), body: one.body };
      expect(verifyStandard({ ...signed, keys: ["sig_2", "sig_1"], now: Number(time) * 1000 })).toBe(true);
    }
  });

  test("signs with both keys for a day after a rotation, so that the old secret stays valid", async () => {
    const server = await createTestServer();
    await turn(server, "enable");
    const old = await secretOf(server);
    expect((await server.ask("POST", "/v2/keys/rotate")).body).toEqual({
      current: "sig_2",
      next: expect.stringMatching(/^sig_/),
    });
    const current = await secretOf(server);
    expect(current).not.toBe(old);
    const during = await publish(server);
    expect(String(during.headers["webhook-signature"]).split(" ")).toEqual([
      expect.stringMatching(/^v1,/),
      expect.stringMatching(/^v1,/),
    ]);
    for (const secret of [old, current]) expect(verified(during, secret)).toEqual(JSON.parse(text));
    server.clock.now += 24 * 60 * 60 * 1000;
    const after = await publish(server);
    expect(verified(after, current)).toEqual(JSON.parse(text));
    expect(() => verified(after, old)).toThrow(/No matching signature/);
  });
});

describe("verifying", () => {
  const key = "sig_5T8FcSsynBjn9mMLBsXhpacRovJf";
  const now = 1_800_000_000_000;
  const body = Buffer.from("hello");
  const signature = new Webhook(btoa(key)).sign("msg_1", new Date(now), body);
  const good = { id: "msg_1", timestamp: String(now / 1000), signature, body, keys: ["sig_other", key], now };

  test("accepts a signature of the published library", () => {
    expect(verifyStandard(good)).toBe(true);
    expect(verifyStandard({ ...good, signature: `v1,AAAA v2,${signature} ${signature}` })).toBe(true);
  });

  test.each([
    ["another id", { id: "msg_2" }],
    ["another body", { body: Buffer.from("hullo") }],
    ["another time", { timestamp: String(now / 1000 + 1) }],
    ["a malformed time", { timestamp: "soon" }],
    ["other keys", { keys: ["sig_other"] }],
    ["no keys", { keys: [] }],
    ["no signature", { signature: "" }],
    ["the beginning of a signature", { signature: signature.slice(0, -4) }],
    ["an old signature", { now: now + 301_000 }],
    ["a signature from the future", { now: now - 301_000 }],
    ["too many signatures before it", { signature: `${"v1,AAAA ".repeat(16)}${signature}` }],
  ])("refuses %s", (_, wrong) => {
    expect(verifyStandard({ ...good, ...wrong })).toBe(false);
  });
});
