import { fc } from "../../seeds.ts";
import { describe, expect, test } from "vitest";
import {
  fitLine,
  toSafeJson,
  toSafeLine,
  toSafeText,
  widthOf,
} from "../../../src/client/terminal/safeText.ts";

/** Characters that no line may contain: controls, line breaks, and those that change the direction. */
const controls = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u;

describe("what a stranger wrote", () => {
  test.each([
    ["\u001b[31mred", "\\u{1b}[31mred"],
    ["\u009b31m", "\\u{9b}31m"],
    ["\u001b]0;title\u0007", "\\u{1b}]0;title\\u{7}"],
    ["a\r\nb\tc", "a\\r\\nb\\tc"],
    ["safe\u202eexe.txt", "safe\\u{202e}exe.txt"],
    ["zero\u200bwidth", "zero\\u{200b}width"],
    ["\u2028", "\\u{2028}"],
    ["\ud800", "\\u{d800}"],
    ["\u3164\u2800", "\\u{3164}\\u{2800}"],
    [`zal${"\u0301".repeat(6)}`, `zal${"\u0301".repeat(4)}\\u{301}\\u{301}`],
    ["Zürich 東京 🚀 ❤️ नमस्ते", "Zürich 東京 🚀 ❤️ नमस्ते"],
  ])("%j becomes %j", (given, shown) => expect(toSafeLine(given)).toBe(shown));

  test("a body keeps its line breaks and tabs, and nothing else", () =>
    expect(toSafeText("a\r\nb\tc\u001b[2J\rd")).toBe("a\nb\tc\\u{1b}[2J\\rd"));

  test("a pile of marks is cut in bodies and in JSON, too", () => {
    const pile = `a${"\u0301".repeat(1000)}`;
    expect(toSafeText(pile)).not.toMatch(/\p{M}{5}/u);
    expect(toSafeJson(pile)).not.toMatch(/\p{M}{5}/u);
    expect(JSON.parse(toSafeJson(pile))).toBe(pile);
  });

  test("JSON stays the same value", () => {
    const texts = fc.string({ unit: "binary" });
    fc.assert(
      fc.property(fc.dictionary(texts, fc.array(texts)), (value) => {
        const json = toSafeJson(value);
        expect(json).not.toMatch(controls);
        expect(JSON.stringify(JSON.parse(json))).toBe(JSON.stringify(value));
      }),
      { numRuns: 50 },
    );
  });

  test("no line has a control character", () =>
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (text) => {
        expect(toSafeLine(text)).not.toMatch(controls);
      }),
    ));
});

describe("the width of a line", () => {
  test.each([
    ["plain", 5],
    ["Zürich", 6],
    ["東京", 4],
    ["🚀", 2],
    ["e\u0301", 1],
  ])("%j takes %i columns", (text, width) => expect(widthOf(text)).toBe(width));

  test("a line that is cut ends with an ellipsis", () => {
    expect(fitLine("https://example.com", 8)).toBe("https:/…");
    expect(fitLine("東京都", 4)).toBe("東…");
    expect(fitLine("fits", 4)).toBe("fits");
  });

  test("a line never takes more columns than it may", () =>
    fc.assert(
      fc.property(fc.string({ unit: "grapheme" }), fc.nat(20), (text, width) => {
        expect(widthOf(fitLine(text, width))).toBeLessThanOrEqual(width);
      }),
    ));
});
