import { describe, expect, test } from "vitest";
import type { Verification } from "../../../../src/operations/sources/schemes/verification.ts";
import { verificationSchema, verify } from "../../../../src/operations/sources/schemes/verification.ts";
import { makeCall, notUtf8, findSender, withHeader } from "./senders.ts";

const plain = { scheme: "hmac", secret: "key", header: "X-Signature" };
const stored = (options: object): Verification => verificationSchema.parse({ ...plain, ...options });
const signed = (signature: string) => makeCall({ headers: { "X-Signature": signature }, body: notUtf8 });

const digests = {
  sha1: ["d6329ccc532c5255bedacff99cfa908ba426135f", "1jKczFMsUlW+2s/5nPqQi6QmE18="],
  sha256: [
    "3529e0d709de81b6ef633422e88eb0254b0116d3547c9a453dd6b6bb1edf0948",
    "NSng1wnegbbvYzQi6I6wJUsBFtNUfJpFPda2ux7fCUg=",
  ],
  sha512: [
    "084b97e302002aeace083c60f9800c20615147f0a957285945719474f1e566e3" +
      "3d95f45aeca35c1f4726319df1e930349ed25755b6a8243656eb40498aaddcc4",
    "CEuX4wIAKurOCDxg+YAMIGFRR/CpVyhZRXGUdPHlZuM9lfRa7KNcH0cmMZ3x6TA0ntJXVbaoJDZW60BJiq3cxA==",
  ],
};

describe.each(Object.entries(digests))("with %s", (algorithm, [hex = "", base64 = ""]) => {
  test("accepts only the configured encoding, with the configured prefix", () => {
    expect(verify(stored({ algorithm }), signed(hex)).kind).toBe("accepted");
    expect(verify(stored({ algorithm, encoding: "base64" }), signed(base64)).kind).toBe("accepted");
    expect(verify(stored({ algorithm }), signed(base64)).kind).toBe("rejected");
    expect(verify(stored({ algorithm, encoding: "base64" }), signed(hex)).kind).toBe("rejected");
    expect(verify(stored({ algorithm, prefix: "sha=" }), signed(`sha=${hex}`)).kind).toBe("accepted");
    expect(verify(stored({ algorithm, prefix: "sha=" }), signed(hex)).kind).toBe("rejected");
    expect(verify(stored({ algorithm }), signed(`sha=${hex}`)).kind).toBe("rejected");
  });
});

test("hmac is SHA-256 of the body in hex by default", () => {
  expect(stored({})).toEqual({
    ...plain,
    algorithm: "sha256",
    encoding: "hex",
    prefix: "",
    signed: "{body}",
  });
  expect(verify(stored({}), signed(digests.sha256[0] ?? ""))).toEqual({ kind: "accepted", eventId: null });
});

describe("a signed time", () => {
  const verification = stored({ signed: "{timestamp}.{body}", timestamp: { header: "X-Time" } });
  const call = {
    ...makeCall({
      headers: {
        "X-Signature": "2bcf96fae7631da3717e847d1b300ea25f7fa560b69fa1190c48247d4f33970a",
        "X-Time": "1700000000",
      },
      body: notUtf8,
    }),
    now: 1_700_000_000_000 + 300_000,
  };

  test("is in seconds and may be 5 minutes off by default", () => {
    expect(verify(verification, call).kind).toBe("accepted");
    expect(verify(verification, { ...call, now: call.now + 1 }).kind).toBe("rejected");
  });

  test.each([
    null,
    "",
    "1700000001",
    "01700000000",
    "1700000000 ",
    "+1700000000",
    "{body}",
    "$&",
    "9".repeat(1000),
  ])("may not be %j instead", (time) => {
    expect(verify(verification, withHeader(call, "X-Time", time)).kind).toBe("rejected");
  });
});

describe("handshakes", () => {
  const meta = stored({
    header: "X-Hub-Signature-256",
    prefix: "sha256=",
    secret: "appsecret",
    handshake: { kind: "hub", verifyToken: "meatyhamhock" },
  });
  const url = "https://waypost.example/v2/in/s3cr3t";
  const asked = (query: string, method = "GET") =>
    makeCall({ url: `${url}?${query}`, method, headers: {}, body: "" });

  test("hub: a challenge is answered if the call has the token", () => {
    expect(
      verify(meta, asked("hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=meatyhamhock")),
    ).toMatchObject({
      kind: "answered",
      status: 200,
      body: "1158201444",
      headers: { "content-type": "text/plain; charset=utf-8" },
    });
  });

  test.each(["", "&hub.verify_token=", "&hub.verify_token=meatyhamhocl", "&hub.verify_token=meatyhamhockx"])(
    "hub: a challenge is not answered with another token: %j",
    (token) => {
      expect(verify(meta, asked(`hub.mode=subscribe&hub.challenge=1${token}`))).toMatchObject({
        kind: "rejected",
        reason: expect.stringMatching(/^hub.verify_token: (?!.*meaty)/),
      });
    },
  );

  test("hub: any other call must be signed, and is accepted then", () => {
    for (const call of [
      asked("hub.mode=unsubscribe"),
      asked("hub.mode=subscribe&hub.challenge=1&hub.verify_token=meatyhamhock", "POST"),
    ])
      expect(verify(meta, call)).toMatchObject({
        kind: "rejected",
        reason: expect.stringContaining("X-Hub-Signature-256: missing"),
      });
    const headers = {
      "X-Hub-Signature-256": "sha256=0e9e0080a310f376450c46d999aa4d49ed772bfe43c13205f38a3a6e6611ed2b",
    };
    expect(verify(meta, makeCall({ headers, body: '{"object":"page","entry":[]}' })).kind).toBe("accepted");
  });

  test("echo: the parameter of a call without a body is the answer", () => {
    const dropbox = stored({
      header: "X-Dropbox-Signature",
      handshake: { kind: "echo", parameter: "challenge" },
    });
    expect(verify(dropbox, asked("challenge=%3Cscript%3E"))).toEqual({
      kind: "answered",
      status: 200,
      body: "<script>",
      headers: { "content-type": "text/plain; charset=utf-8", "x-content-type-options": "nosniff" },
    });
    expect(verify(dropbox, asked("challenge=")).kind).toBe("rejected");
    expect(verify(dropbox, asked("other=1")).kind).toBe("rejected");
    expect(verify(dropbox, { ...asked("challenge=1"), body: notUtf8 }).kind).toBe("rejected");
  });

  test("are not answered if they are not configured", () => {
    for (const { verification } of [findSender("hmac, of the body"), findSender("github, published")])
      expect(
        verify(verification, asked("challenge=1&validationToken=1&hub.mode=subscribe&hub.challenge=1")).kind,
      ).toBe("rejected");
  });
});

describe("the API", () => {
  test.each([
    ["no scheme", { secret: "x" }],
    ["an unknown scheme", { scheme: "stripes", secret: "x" }],
    ["no secret", { scheme: "github" }],
    ["an empty secret", { scheme: "github", secret: "" }],
    ["no secrets", { scheme: "github", secret: [] }],
    ["too many secrets", { scheme: "github", secret: ["1", "2", "3", "4", "5"] }],
    ["a secret that is too long", { scheme: "github", secret: "x".repeat(1025) }],
    ["an unknown option", { scheme: "github", secret: "x", tolerance: 1 }],
    ["a standard secret that is not base64", { scheme: "standard", secret: "whsec_?" }],
    ["a public key that is too short", { scheme: "standard", secret: "whpk_11qYAYKxCrfVS/7TyWQHOg==" }],
    ["no header", { scheme: "hmac", secret: "x" }],
    ["an invalid header name", { ...plain, header: "X Signature" }],
    ["an algorithm that is too weak", { ...plain, algorithm: "md5" }],
    ["a signed text without the body", { ...plain, signed: "x" }],
    ["a signed text with the body twice", { ...plain, signed: "{body}{body}" }],
    ["an unsigned time", { ...plain, timestamp: { header: "X-Time" } }],
    ["a signed time without its header", { ...plain, signed: "{timestamp}.{body}" }],
    [
      "an unlimited tolerance",
      { ...plain, signed: "{timestamp}.{body}", timestamp: { header: "X-Time", toleranceSeconds: 1e9 } },
    ],
    ["a handshake without its token", { ...plain, handshake: { kind: "hub" } }],
  ])("rejects %s", (_, given) => {
    expect(verificationSchema.safeParse(given).success).toBe(false);
  });
});
