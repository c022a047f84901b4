import { createHmac, hash } from "node:crypto";
import { describe, expect, test } from "vitest";
import type { Line } from "./compare.ts";
import { differences, maskErrors } from "./compare.ts";
import { createNormaliser } from "./normalise.ts";
import { describeSignature } from "./signatures.ts";

const now = Date.parse("2030-01-02T03:04:05Z");

describe("the normaliser", () => {
  const normalise = () =>
    createNormaliser({
      places: { "127.0.0.1:5000": "<server>" },
      secrets: ["the-token"],
      now,
    });
  const message = "msg_1a2b3c4d5e6f7g8h9i1a";

  test.each([
    [`{"messageId":"${message}"}`, '{"messageId":"<id1>"}'],
    [`${message} wfr_1a2b3c4d5e6f7g8h9i1a ${message}`, "<id1> <id2> <id1>"],
    ["wfr_chosen stays", "wfr_chosen stays"],
    [`${now - 5}-000012`, "<id1>"],
    ["Bearer the-token", "Bearer <id1>"],
    ["0a1b2c3d-0000-4000-8000-0123456789ab", "<id1>"],
    [`{"createdAt":${now + 1000},"deadline":${now / 1000 + 60}}`, '{"createdAt":<ms>,"deadline":<s>}'],
    ["4102444800000 and 1000000000", "4102444800000 and 1000000000"],
    ["2030-01-02T03:04:05.678Z", "<date>"],
    ["Wed, 02 Jan 2030 03:04:05 GMT", "<date>"],
    ["http://127.0.0.1:5000/v2", "http://<server>/v2"],
    ['{"took":17,"\\"took\\":3"}', '{"took":<number>,"\\"took\\":<number>"}'],
    ['{"connect":1,"firstByte":12}', '{"connect":<number>,"firstByte":<number>}'],
    [`"${btoa(`{"id":"${message}"}`)}"`, '"<base64 of {\\"id\\":\\"<id1>\\"}>"'],
    ["/v2/publish/api/llm", "/v2/publish/api/llm"],
  ])("%s becomes %s", (text, expected) => {
    expect(normalise()(text)).toBe(expected);
  });
});

test("a signature is described if a key signed this body", () => {
  const body = Buffer.from("body");
  const encode = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  const claims = { iss: "Svc", exp: 400, iat: 100, body: `${hash("sha256", body, "base64url")}=` };
  const seal = (text: string): string =>
    `${text}.${createHmac("sha256", "key").update(text).digest("base64url")}`;
  const good = seal(`${encode({ alg: "HS256" })}.${encode(claims)}`);
  expect(describeSignature(good, body, ["other", "key"])).toBe(
    'valid: {"alg":"HS256"} {"iss":"Svc","iat":100,"life":300}',
  );
  expect(describeSignature(good, body, ["other"])).toMatch(/^invalid/);
  expect(describeSignature(good, Buffer.from("other"), ["key"])).toMatch(/^invalid/);
});

describe("the comparison", () => {
  const line = (label: string, more: Partial<Line> = {}): string =>
    JSON.stringify({
      kind: "request",
      label,
      method: "GET",
      path: "/",
      status: 200,
      headers: [["a", "b"]],
      body: "",
      ...more,
    });

  test("tells nothing of texts of errors, and what appears only there", () => {
    const before = [
      line("one", {
        body: '{"error":"no \\"<id1>\\""}',
      }),
      line("two", { body: "<id2>" }),
    ].join("\n");
    const after = [line("one", { body: '{"error":"none"}' }), line("two", { body: "<id1>" })].join("\n");
    expect(differences(before, after)).toEqual([]);
  });

  test("tells everything else", () => {
    const before = [line("one"), line("two"), line("three", { body: "<id1> <id2>" })].join("\n");
    const after = [
      line("one", {
        headers: [["A", "b"]],
      }),
      line("three", { body: "<id1> <id1>" }),
      line("four"),
    ].join("\n");
    expect(differences(before, after)).toEqual([
      "one: headers\n  - a: b\n  + A: b",
      "two: only in the first recording",
      "three: body\n  - <id1> <id2>\n  + <id1> <id1>",
      "four: only in the second recording",
    ]);
  });

  test.each([
    ['{"error":"a \\"b\\" c","code":"d"}', '{"error":"<text>","code":"d"}'],
    ['{"body":"{\\"message\\":\\"a \\\\\\"b\\\\\\"\\"}"}', '{"body":"{\\"message\\":\\"<text>\\"}"}'],
    ['{"error":""}', '{"error":"<text>"}'],
    ['{"error":null}', '{"error":null}'],
  ])("of %s compares %s", (text, expected) => {
    expect(maskErrors(text)).toBe(expected);
  });
});
