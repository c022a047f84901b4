import { createHmac } from "node:crypto";
import { Receiver } from "@upstash/qstash";
import { fc } from "../../seeds.ts";
import { describe, expect, test } from "vitest";
import { hashBody, signJwt, verifyJwt } from "../../../src/engine/delivery/signature.ts";

const url = "https://shop.example/hook?a=1";
const now = Date.now();
const options = {
  brand: "upstash" as const,
  url,
  bodyHash: hashBody(Buffer.from("hello")),
  signingKey: "sig_current",
  now,
  id: "jwt_1",
};
const body = Buffer.from("hello");
const keys = ["sig_current", "sig_next"];

const seal = (head: object, claims: object, key: string): string => {
  const text = [head, claims]
    .map((part) => Buffer.from(JSON.stringify(part)).toString("base64url"))
    .join(".");
  return `${text}.${createHmac("sha256", key).update(text).digest("base64url")}`;
};

describe("signing", () => {
  test.each([
    ["svc", "Svc"],
    ["upstash", "Upstash"],
  ] as const)("states issuer, URL, times and body hash: brand %s", (brand, iss) => {
    const token = signJwt({ ...options, brand, now: 1_700_000_000_999 });
    const [header = "", payload = ""] = token.split(".");
    expect(JSON.parse(Buffer.from(header, "base64url").toString())).toEqual({ alg: "HS256", typ: "JWT" });
    expect(JSON.parse(Buffer.from(payload, "base64url").toString())).toEqual({
      iss,
      sub: url,
      exp: 1_700_000_300,
      nbf: 1_699_996_400,
      iat: 1_700_000_000,
      jti: "jwt_1",
      body: "LPJNul-wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=",
    });
  });

  test("pads the hash of the body, but no part of the token", () => {
    const token = signJwt({ ...options, bodyHash: hashBody(Buffer.alloc(0)) });
    expect(token).toMatch(/^[\w-]+\.[\w-]+\.[\w-]+$/);
    const claims = JSON.parse(Buffer.from(token.split(".")[1] ?? "", "base64url").toString());
    expect(claims.body).toBe("47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU=");
  });

  test("works with more keys than are cached", () => {
    for (let key = 0; key < 2_000; key++) signJwt({ ...options, signingKey: `sig_${key}` });
    const token = signJwt({ ...options, signingKey: "sig_0" });
    expect(verifyJwt(token, { keys: ["sig_0"], body, now })).not.toBeNull();
  });
});

describe("the receiver of @upstash/qstash", () => {
  const receiver = new Receiver({ currentSigningKey: "sig_current", nextSigningKey: "sig_next" });

  test.each([
    ["the current key", "sig_current", "hello"],
    ["the next key", "sig_next", "hello"],
    ["an empty body", "sig_current", ""],
    ["a body beyond ASCII", "sig_current", "žluťoučký kůň 🐎"],
  ])("accepts %s", async (_case, signingKey, body) => {
    const signature = signJwt({ ...options, signingKey, bodyHash: hashBody(Buffer.from(body)) });
    expect(await receiver.verify({ signature, body, url })).toBe(true);
  });

  test.each([
    ["an hour behind", 3_600, 0],
    ["almost the lifetime ahead", -290, 0],
    ["ahead within the tolerance", -310, 20],
  ])("accepts a signature if its clock is %s", async (_case, behind, clockTolerance) => {
    const signature = signJwt({ ...options, now: now + behind * 1_000 });
    expect(await receiver.verify({ signature, body: "hello", url, clockTolerance })).toBe(true);
  });

  test("accepts a URL with quotes, escapes and other scripts", async () => {
    const odd = 'https://shop.example/"\\%zz/ünï?q=日本';
    const signature = signJwt({ ...options, url: odd });
    expect(await receiver.verify({ signature, body: "hello", url: odd })).toBe(true);
  });

  test("refuses another key", async () => {
    const signature = signJwt({ ...options, signingKey: "sig_other" });
    await expect(receiver.verify({ signature, body: "hello" })).rejects.toThrow(/signature/);
  });
});

describe("verifying", () => {
  const good = { keys, body, url, now };
  const token = signJwt(options);

  test("returns the claims of the token", () => {
    expect(verifyJwt(token, good)).toMatchObject({ iss: "Upstash", sub: url, jti: "jwt_1" });
    expect(
      verifyJwt(signJwt({ ...options, brand: "svc", signingKey: "sig_next" }), {
        keys,
        body,
        now,
      }),
    ).toMatchObject({
      iss: "Svc",
    });
  });

  test.each([
    ["another body", { ...good, body: Buffer.from("hallo") }],
    ["another URL", { ...good, url: "https://shop.example/" }],
    ["no key", { ...good, keys: [] }],
    ["other keys", { ...good, keys: ["sig_other"] }],
    ["its time over", { ...good, now: now + 301_000 }],
  ])("refuses a token with %s", (_case, changed) => {
    expect(verifyJwt(token, changed)).toBeNull();
  });

  const claims = {
    iss: "Svc",
    sub: url,
    exp: now,
    nbf: 0,
    iat: 0,
    jti: "jwt_1",
    body: "LPJNul-wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ",
  };
  const hs256 = { alg: "HS256", typ: "JWT" };

  test.each(["", "="])("accepts a body hash that ends with %j", (padding) => {
    expect(
      verifyJwt(seal(hs256, { ...claims, body: `${claims.body}${padding}` }, "sig_current"), good),
    ).not.toBeNull();
  });

  test.each([
    ["no algorithm", { alg: "none" }, claims],
    ["an unknown issuer", hs256, { ...claims, iss: "Other" }],
    ["a start in the future", hs256, { ...claims, nbf: now }],
    ["times that are text", hs256, { ...claims, exp: "9999999999" }],
    ["claims that are not an object", hs256, []],
  ])("refuses %s, even if the signature is valid", (_case, head, changed) => {
    expect(verifyJwt(seal(head, changed, "sig_current"), good)).toBeNull();
  });

  test("refuses any token with one character changed", () => {
    fc.assert(
      fc.property(fc.nat(token.length - 1), fc.constantFrom(..."Aa0_-.=%"), (at, letter) => {
        fc.pre(token[at] !== letter);
        expect(verifyJwt(token.slice(0, at) + letter + token.slice(at + 1), good)).toBeNull();
      }),
    );
  });

  test("refuses any text without throwing", () => {
    fc.assert(
      fc.property(fc.string(), (text) => {
        expect(verifyJwt(text, good)).toBeNull();
      }),
    );
    expect(verifyJwt(`..${"a".repeat(1_000_000)}`, good)).toBeNull();
  });
});
