import { describe, expect, test } from "vitest";
import { truncateJson } from "../../../../src/engine/core/sending/truncateJson.ts";
import { bytes } from "../commandRunner.ts";

const textOf = (body: Uint8Array): string => new TextDecoder("utf-8", { fatal: true }).decode(body);
const cut = (text: string, most: number): string => textOf(truncateJson(bytes(text), most));

describe("a JSON text that is cut", () => {
  test.each([
    ['{"error":"E","message":"abcdef"}', 28, '{"error":"E","message":"ab"}'],
    ['{"error":"E","message":"abcdef"}', 24, '{"error":"E"}'],
    ['{"a":123,"b":1}', 8, "{}"],
    ['{"a":123,"b":1}', 9, '{"a":123}'],
    ['{"a":true,"b":false}', 18, '{"a":true}'],
    ['[{"a":["x","y"]},2]', 15, '[{"a":["x"]}]'],
    ['[{"a":["x","y"]},2]', 16, '[{"a":["x",""]}]'],
    [" [1,2,3]", 7, " [1,2]"],
    ['{"k":"a\\u00e9b"}', 15, '{"k":"a\\u00e9"}'],
    ['{"k":"a\\u00e9b"}', 14, '{"k":"a"}'],
    ['{"k":"é"}', 9, '{"k":""}'],
    ['{"k":"a"}', 100, '{"k":"a"}'],
    ["{}", 1, ""],
  ])("%s cut to %i bytes is %s", (text, most, expected) => expect(cut(text, most)).toBe(expected));

  test("is valid and as long as possible at every length", () => {
    const text = JSON.stringify({
      message: 'a "quoted" \\ line\n ☃ é 😀',
      list: [1, -2.5e3, true, null, [], {}, [[["deep"]]], { a: { b: "c" } }],
      "key \u0007 é": "last",
      n: 12,
    });
    const { byteLength } = bytes(text);
    let longest = 0;
    for (let most = 2; most <= byteLength; most++) {
      const body = truncateJson(bytes(text), most);
      expect(body.byteLength).toBeLessThanOrEqual(most);
      expect(() => JSON.parse(textOf(body))).not.toThrow();
      longest = Math.max(longest, body.byteLength);
    }
    expect(longest).toBe(byteLength);
  });

  test("is closed if it was incomplete", () => {
    const whole = '{"error":"E","message":"x y z","stack":["a","b"]}';
    for (let end = 1; end <= whole.length; end++)
      expect(() => JSON.parse(cut(whole.slice(0, end), 1_000) || "{}")).not.toThrow();
  });
});

test("any other text keeps its beginning, without half a character", () => {
  expect(cut("plain é text", 7)).toBe("plain ");
  expect(cut("plain é text", 8)).toBe("plain é");
  expect(cut('"a string"', 4)).toBe('"a s');
  expect(truncateJson(Uint8Array.of(0x80, 0x81, 0x82, 0x83, 0x84), 4)).toEqual(
    Uint8Array.of(0x80, 0x81, 0x82, 0x83),
  );
  expect(cut("", 4)).toBe("");
});
