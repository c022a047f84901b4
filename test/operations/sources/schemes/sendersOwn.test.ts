import { createHmac } from "node:crypto";
import { describe, expect, test } from "vitest";
import type { Verification } from "../../../../src/operations/sources/schemes/verification.ts";
import { verify } from "../../../../src/operations/sources/schemes/verification.ts";
import { makeCall, findSender, slackCall, slackSecret, slackTime, getHeader, withHeader } from "./senders.ts";

describe("stripe", () => {
  const { verification, call } = findSender("stripe");
  const right = "a4d8cf7bf8f4f9daf3d0d4a5905396c32f725d47d08d91a0998fa1fefe70c66a";
  const other = "b1cade626cbc98eca6b654a2931afd6549957468efdf911739ac0f77601c4737";
  const signedAs = (text: string) => verify(verification, withHeader(call, "Stripe-Signature", text));

  test("accepts one correct signature of several, as while Stripe replaces a secret", () => {
    expect(signedAs(`t=1492774577,v1=${other},v1=${right}`).kind).toBe("accepted");
    expect(signedAs(`t=1492774577, v1=${right}, v1=${other}`).kind).toBe("accepted");
    expect(signedAs(`t=1492774577,v1=${other}`).kind).toBe("rejected");
  });

  test("accepts a body that is not UTF-8, and finds no id in it", () => {
    const body = Uint8Array.from([
      ...new TextEncoder().encode('{"id":"evt_'),
      0xff,
      ...new TextEncoder().encode('"}'),
    ]);
    const headers = {
      "Stripe-Signature": "t=1492774577,v1=57edd760566045577fddd3fbe8da1a3c2d6de6f78f9f2601f735f97c5e46dbf1",
    };
    expect(verify(verification, makeCall({ headers, body, now: call.now }))).toEqual({
      kind: "accepted",
      eventId: null,
    });
  });

  test("rejects a signature of another version", () => {
    expect(signedAs(`t=1492774577,v0=${right}`)).toEqual({
      kind: "rejected",
      reason: "Stripe-Signature: has no signature of the form v1=<64 characters of hex> (sha256)",
    });
  });

  test.each([
    "",
    "t=,",
    "t=-1492774577,",
    "t=1492774577.0,",
    "t=0x58FA3A31,",
    "t=1e9,",
    `t=${"9".repeat(400)},`,
  ])("rejects the time %j", (time) => {
    expect(signedAs(`${time}v1=${right}`)).toMatchObject({
      kind: "rejected",
      reason: expect.stringContaining("has no timestamp"),
    });
  });

  test("rejects two times, because one may be recent and the other signed", () => {
    expect(signedAs(`t=1492774577,t=1492774578,v1=${right}`)).toMatchObject({
      reason: "Stripe-Signature: has more than one timestamp",
    });
  });

  test("rejects a time that was changed to a recent one", () => {
    expect(signedAs(`t=1492774578,v1=${right}`)).toMatchObject({
      reason: expect.stringContaining("does not match"),
    });
  });
});

describe("slack", () => {
  const verification: Verification = { scheme: "slack", secret: slackSecret };
  const challenge =
    '{"token":"Jhj5dZrVaK7ZwHHjRyZWjbDl",' +
    '"challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P",' +
    '"type":"url_verification"}';
  const signature = "v0=f9bd80929259f3f6d5fe3a3186c453c89cd1ad4862815a15837584f31c993652";

  test("gets its challenge back as plain text", () => {
    expect(verify(verification, slackCall(challenge, signature))).toEqual({
      kind: "answered",
      status: 200,
      body: "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P",
      headers: { "content-type": "text/plain; charset=utf-8", "x-content-type-options": "nosniff" },
    });
  });

  test("gets no answer to a challenge that it did not sign or signed long ago", () => {
    const wrong = slackCall(challenge, `v0=${"0".repeat(64)}`);
    expect(verify(verification, wrong).kind).toBe("rejected");
    expect(verify(verification, withHeader(wrong, "X-Slack-Signature", null)).kind).toBe("rejected");
    expect(
      verify(verification, { ...slackCall(challenge, signature), now: slackTime * 1000 + 301_000 }).kind,
    ).toBe("rejected");
  });

  test("is rejected without a challenge", () => {
    const call = slackCall(
      '{"type":"url_verification"}',
      "v0=698720b19d0fb00bbaf1dcaa31ed77b055b3c00865f31632a0a17235e27e0180",
    );
    expect(verify(verification, call)).toEqual({
      kind: "rejected",
      reason: "the handshake: has no challenge",
    });
  });

  test("has the event's id", () => {
    const body = '{"type":"event_callback","event_id":"Ev0PV52K21","event":{"type":"message"}}';
    const call = slackCall(body, "v0=b6514d27fd3ffe5e5081377234d1c34ca9f9a978a87a418135bad4e6ab1ecfa3");
    expect(verify(verification, call)).toEqual({ kind: "accepted", eventId: "Ev0PV52K21" });
  });

  test("is rejected without its time", () => {
    const call = withHeader(slackCall(challenge, signature), "X-Slack-Request-Timestamp", null);
    expect(verify(verification, call)).toMatchObject({
      reason: expect.stringContaining("X-Slack-Request-Timestamp: missing"),
    });
  });
});

describe("github", () => {
  const { verification, call } = findSender("github, published");

  test("accepts a signature in capitals, but not without its prefix or with the old SHA-1", () => {
    const digits = getHeader(call, "X-Hub-Signature-256").slice("sha256=".length);
    const signedAs = (text: string) =>
      verify(verification, withHeader(call, "X-Hub-Signature-256", text)).kind;
    expect(signedAs(`sha256=${digits.toUpperCase()}`)).toBe("accepted");
    expect(signedAs(digits)).toBe("rejected");
    expect(signedAs(`sha512=${digits}`)).toBe("rejected");
    expect(signedAs(`sha1=${digits.slice(0, 40)}`)).toBe("rejected");
  });

  test.each(["", "x".repeat(512)])("is known by its signature, regardless of its delivery id", (given) => {
    expect(verify(verification, withHeader(call, "X-GitHub-Delivery", given))).toEqual(
      verify(verification, call),
    );
  });
});

describe("the id of an event", () => {
  const verification: Verification = { scheme: "stripe", secret: "s3cret" };
  const signedBy = (body: string, at: number): string =>
    createHmac("sha256", "s3cret").update(`${at}.${body}`).digest("hex");

  test.each([
    ["", null],
    ["x".repeat(512), "x".repeat(512)],
    ["x".repeat(513), null],
  ])("is ignored if it is empty or too long to store", (id, kept) => {
    const body = JSON.stringify({ id });
    const headers = { "Stripe-Signature": `t=1000,v1=${signedBy(body, 1000)}` };
    expect(verify(verification, makeCall({ headers, body, now: 1_000_000 }))).toEqual({
      kind: "accepted",
      eventId: kept,
    });
  });
});

describe("shopify", () => {
  const { verification, call } = findSender("shopify");
  const verdictWith = (headers: string[]) =>
    verify(verification, { ...call, headers: [...call.headers, ...headers] });

  test("is known by its signature, for each topic", () => {
    const signature = getHeader(call, "X-Shopify-Hmac-Sha256");
    const known = (topic: string) => ({ kind: "accepted", eventId: null, signed: { signature, topic } });
    expect(verdictWith(["X-Shopify-Event-Id", "98880550"])).toEqual(known(""));
    expect(verdictWith(["X-Shopify-Event-Id", "98880550", "X-Shopify-Topic", "orders/paid"])).toEqual(
      known("orders/paid"),
    );
  });
});

describe("linear", () => {
  const { verification } = findSender("linear");

  test.each([
    {
      case: "no time",
      body: '{"action":"create"}',
      signature: "11c5f2085f1b5109af0047bd3ba11bfa9526eead34858087e905ac45bd73c6b6",
      reason: "missing in the body",
    },
    {
      case: "a string as time",
      body: '{"webhookTimestamp":"1676056940508"}',
      signature: "ef4719d42599bd2f6006a4a81554264b984bcd9764ff8ec2140b0e5c2ebe73fe",
      reason: "missing in",
    },
    {
      case: "an endless time",
      body: '{"webhookTimestamp":1e999}',
      signature: "3bfbfa138c934f5f0a3d5c83822eaa66b39a0f1528f3a6986fcc50e5a207eb22",
      reason: "in the future",
    },
    {
      case: "a body that is not an object",
      body: "null",
      signature: "f46a2294703dc3468a3d1470e930c87fc55cf5af8de56dc81bd897c23ec8d137",
      reason: "missing in the body",
    },
    {
      case: "a body that is not UTF-8",
      body: Uint8Array.of(0xff, 0xfe),
      signature: "3f6123afb95d9243392fb9411e3823ce94b8f4abf97c3a94c6bc782d99934bf3",
      reason: "missing in the body",
    },
  ])("is rejected with $case, although it is signed", ({ body, signature, reason }) => {
    const call = makeCall({ headers: { "Linear-Signature": signature }, body, now: 1_676_056_940_508 });
    expect(verify(verification, call)).toMatchObject({
      kind: "rejected",
      reason: expect.stringContaining(reason),
    });
  });
});

describe("standard", () => {
  const { verification, call } = findSender("standard, published");
  const { verification: publicKey, call: signedByKey } = findSender("standard, with a public key");
  const right = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
  const wrong = `v1,${"A".repeat(43)}=`;

  test("accepts one correct signature of several of any version", () => {
    const byKey = getHeader(signedByKey, "webhook-signature");
    for (const text of [`${wrong} ${right}`, `${right} ${wrong}`, `v2,x ${right}`, `${byKey} ${right}`]) {
      expect(verify(verification, withHeader(call, "webhook-signature", text)).kind, text).toBe("accepted");
    }
    for (const text of [`${right} ${byKey}`, `v1a,x ${byKey}`])
      expect(verify(publicKey, withHeader(call, "webhook-signature", text)).kind, text).toBe("accepted");
  });

  test("accepts a secret without its prefix or with the version before it", () => {
    for (const secret of ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "v1,whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"])
      expect(verify({ scheme: "standard", secret }, call).kind).toBe("accepted");
  });

  test("does not use a public key as a secret, because anyone could sign with it", () => {
    const key = "whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
    expect(verify({ scheme: "standard", secret: key }, call).kind).toBe("rejected");
    expect(verify(verification, signedByKey).kind).toBe("rejected");
  });

  test.each(["webhook-id", "webhook-timestamp"])("is rejected without %s or with another", (name) => {
    expect(verify(verification, withHeader(call, name, null))).toMatchObject({
      reason: expect.stringContaining(`${name}: missing`),
    });
    expect(verify(verification, withHeader(call, name, "1614265331")).kind).toBe("rejected");
  });

  test("does not mix its two sets of header names", () => {
    const { call: svix } = findSender("standard, under the names of Svix");
    expect(verify(verification, withHeader(svix, "webhook-id", "msg_other")).kind).toBe("rejected");
    const mixed = withHeader(call, "webhook-id", null);
    expect(
      verify(verification, {
        ...mixed,
        headers: [...mixed.headers, "svix-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"],
      }).kind,
    ).toBe("rejected");
  });
});

describe("microsoft", () => {
  const verification: Verification = { scheme: "microsoft", secret: ["s1", "s2"] };
  const url = "https://waypost.example/v2/in/s3cr3t";
  const notified = (...states: unknown[]) =>
    verify(
      verification,
      makeCall({
        headers: {},
        body: JSON.stringify({ value: states.map((clientState) => ({ clientState })) }),
      }),
    );

  test("gets its validation token back, decoded", () => {
    const call = makeCall({
      url: `${url}?validationToken=Validation%3a+Testing+%3cb%3e`,
      headers: {},
      body: "",
    });
    expect(verify(verification, call)).toMatchObject({
      kind: "answered",
      status: 200,
      body: "Validation: Testing <b>",
    });
  });

  test("does not answer a call with a body, regardless of its URL", () => {
    const call = makeCall({
      url: `${url}?validationToken=x`,
      headers: {},
      body: '{"value":[{"clientState":"s1"}]}',
    });
    expect(verify(verification, call)).toEqual({ kind: "accepted", eventId: null });
  });

  test("gets no answer to a token that exceeds the limit", () => {
    const call = makeCall({ url: `${url}?validationToken=${"x".repeat(2049)}`, headers: {}, body: "" });
    expect(verify(verification, call)).toMatchObject({
      kind: "rejected",
      reason: expect.stringContaining("2049"),
    });
  });

  test("is accepted if every notification has one of the secrets", () => {
    expect(notified("s1").kind).toBe("accepted");
    expect(notified("s2", "s1").kind).toBe("accepted");
    for (const states of [["s3"], ["s1", "s3"], ["s1", undefined], [null], [{}], [["s1"]], []])
      expect(notified(...states).kind).toBe("rejected");
  });

  test("is rejected if its length or number of notifications exceeds the limit", () => {
    expect(notified("x".repeat(4 * 1024 * 1024))).toMatchObject({
      reason: expect.stringContaining("bytes exceed the limit of 4194304"),
    });
    expect(notified(...Array.from({ length: 10_001 }, () => "s1"))).toMatchObject({
      reason: expect.stringContaining("10001 notifications"),
    });
  });

  test.each(["", "null", "[]", '{"value":{}}', '{"value":[null]}', '{"value":["s1"]}', "\ufffd{"])(
    "is rejected with the body %j",
    (body) => {
      expect(verify(verification, makeCall({ headers: {}, body })).kind).toBe("rejected");
    },
  );
});
