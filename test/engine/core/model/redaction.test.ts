import { fc } from "../../../seeds.ts";
import { describe, expect, test } from "vitest";
import { Refusal } from "../../../../src/engine/core/values/errors.ts";
import { noBytes } from "../../../../src/engine/core/values/basics.ts";
import type { Bytes, HeaderList } from "../../../../src/engine/core/values/basics.ts";
import type { Redaction } from "../../../../src/engine/core/model/sendSettings.ts";
import {
  mergeRedactions,
  parseRedaction,
  redactBody,
  redactHeaders,
} from "../../../../src/engine/core/model/redaction.ts";

describe("parseRedaction", () => {
  test.each<[string, Redaction]>([
    ["body", { body: true, headers: false }],
    ["header", { body: false, headers: true }],
    ["headers", { body: false, headers: true }],
    ["body,headers", { body: true, headers: true }],
    [" body , header ", { body: true, headers: true }],
    ["header[Authorization]", { body: false, headers: ["Authorization"] }],
    ["headers[authorization]", { body: false, headers: ["Authorization"] }],
    ["header[ x-api-key ]", { body: false, headers: ["X-Api-Key"] }],
    ["body,header[a],headers[B]", { body: true, headers: ["A", "B"] }],
    ["header[a],header[A],headers[a]", { body: false, headers: ["A"] }],
    ["header[a],header", { body: false, headers: true }],
    ["body,body", { body: true, headers: false }],
    ["header[x_1.~!]", { body: false, headers: ["X_1.~!"] }],
  ])("%j", (text, redaction) => {
    expect(parseRedaction(text)).toEqual(redaction);
  });

  test.each([
    ["", ""],
    ["body,", ""],
    ["body,,header", ""],
    ["bodies", "bodies"],
    ["Body", "Body"],
    ["body, query", "query"],
    ["body header", "body header"],
    ["header[]", "header[]"],
    ["header[a b]", "header[a b]"],
    ["header[a,b]", "header[a"],
    ["header[a", "header[a"],
    ["header[a]]", "header[a]]"],
    ["header[[a]", "header[[a]"],
    ["header[a]x", "header[a]x"],
    ["header [a]", "header [a]"],
    ["header[é]", "header[é]"],
    ["body[a]", "body[a]"],
  ])("%j is refused with an error that names %j", (text, item) => {
    const words =
      `redact fields: cannot read ${JSON.stringify(item)}; use body, header or header[Name], ` +
      "separated by commas";
    expect(() => parseRedaction(text)).toThrow(new Refusal("invalid", words));
  });

  test("any text gives a redaction that hides something, or a Refusal", () => {
    const pieces = fc.constantFrom("body", "header", "headers", "[", "]", "Name", ",", " ", "x-y", "\n");
    const text = fc.oneof(
      fc.string(),
      fc.array(pieces, { maxLength: 12 }).map((parts) => parts.join("")),
    );
    fc.assert(
      fc.property(text, (each) => {
        const redaction = orRefusal(() => parseRedaction(each));
        if (redaction instanceof Refusal) return;
        expect(
          redaction.body ||
            redaction.headers === true ||
            (redaction.headers !== false && redaction.headers.length > 0),
        ).toBe(true);
      }),
    );
    expect(orRefusal(() => parseRedaction("header[".repeat(100_000)))).toBeInstanceOf(Refusal);
  });

  function orRefusal<T>(ask: () => T): T | Refusal {
    try {
      return ask();
    } catch (error) {
      if (error instanceof Refusal) return error;
      throw error;
    }
  }
});

const bytes = (text: string): Bytes => new TextEncoder().encode(text);
const hash = (value: string | Bytes): string =>
  `#${typeof value === "string" ? value : new TextDecoder().decode(value)}`;

describe("redactBody", () => {
  test("replaces the body by its hash", () => {
    expect(redactBody(bytes("secret"), { body: true, headers: false }, hash)).toEqual(
      bytes("REDACTED:#secret"),
    );
  });

  test("leaves an empty body empty", () => {
    expect(redactBody(noBytes, { body: true, headers: false }, hash)).toBe(noBytes);
  });

  test.each<[Redaction | null]>([[null], [{ body: false, headers: true }]])(
    "does not change the body with %j",
    (redaction) => {
      const body = bytes("open");
      expect(redactBody(body, redaction, hash)).toBe(body);
    },
  );
});

describe("redactHeaders", () => {
  const headers: HeaderList = [
    ["Accept", "a"],
    ["X-Key", "k1"],
    ["X-Key", "k2"],
    ["Empty", ""],
  ];

  test("replaces every value, and keeps names, order and repetition", () => {
    expect(redactHeaders(headers, { body: false, headers: true }, hash)).toEqual([
      ["Accept", "REDACTED:#a"],
      ["X-Key", "REDACTED:#k1"],
      ["X-Key", "REDACTED:#k2"],
      ["Empty", "REDACTED:#"],
    ]);
  });

  test("replaces only the values of the named headers", () => {
    expect(redactHeaders(headers, parseRedaction("header[x-key],header[absent]"), hash)).toEqual([
      ["Accept", "a"],
      ["X-Key", "REDACTED:#k1"],
      ["X-Key", "REDACTED:#k2"],
      ["Empty", ""],
    ]);
  });

  test.each<[Redaction | null]>([[null], [{ body: true, headers: false }], [{ body: false, headers: [] }]])(
    "does not change headers with %j",
    (redaction) => {
      expect(redactHeaders(headers, redaction, hash)).toEqual(headers);
    },
  );
});

test.each([
  ["body", "body", { body: true, headers: false }],
  ["body", "header[X]", { body: true, headers: ["X"] }],
  ["header[X]", "header[Y], header[X]", { body: false, headers: ["X", "Y"] }],
  ["header[X]", "header", { body: false, headers: true }],
])("%s and %s together hide everything that one of them hides", (one, other, hidden) => {
  expect(mergeRedactions(parseRedaction(one), parseRedaction(other))).toEqual(hidden);
  expect(mergeRedactions(parseRedaction(other), parseRedaction(one))).toMatchObject({ body: hidden.body });
  expect(mergeRedactions(parseRedaction(one), null)).toEqual(parseRedaction(one));
});
