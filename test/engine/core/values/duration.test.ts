import { fc } from "../../../seeds.ts";
import { describe, expect, test } from "vitest";
import { formatDuration, parseDuration } from "../../../../src/engine/core/values/duration.ts";
import { day } from "../../../../src/engine/core/values/time.ts";

describe("parseDuration", () => {
  test.each([
    ["50s", 50_000],
    ["10m", 600_000],
    ["1h", 3_600_000],
    ["1d10h30m", 124_200_000],
    ["1d1h30m", 91_800_000],
    ["1m1mo1m", 2_592_120_000],
    ["1w", 7 * day],
    ["1mo", 30 * day],
    ["1y", 365 * day],
    ["0s", 0],
    ["0", 0],
    ["90", 90_000],
    ["007s", 7000],
    ["30m1d", 88_200_000],
    ["100y", 36_500 * day],
    [`${36_500 * 86_400}`, 36_500 * day],
    ["50ms", 50],
    ["1m50ms", 60_050],
    ["1ms1mo", 30 * day + 1],
    ["1.5h", 5_400_000],
    ["0.5", 500],
    ["1.0001", 1001],
    ["0.5d", day / 2],
    ["6m5s", 365_000],
    ["1h0.5s", 3_600_500],
    [".5s", 500],
    ["1.s", 1000],
    ["1h2m3s4ms5us6ns", 3_723_005],
    ["1us", 1],
    ["1000µs", 1],
    ["1001μs", 2],
    ["1ns", 1],
    ["1000000ns", 1],
    ["0.4ns", 0],
    ["16.1s", 16_100],
    ["1.0001s", 1001],
    ["0.3333333333333333333333h", 1_200_000],
  ])("%s is %i ms", (text, millis) => {
    expect(parseDuration(text)).toBe(millis);
  });

  test.each([
    ["", "empty"],
    [" ", "blank"],
    ["s", "no digits"],
    ["10 s", "a space inside"],
    ["10s ", "a space at the end"],
    ["10s5", "digits without a unit after an item"],
    [".", "a point alone"],
    [".s", "a point and a unit"],
    [".5", "no digit before the point, and no unit"],
    ["1.", "no digit after the point, and no unit"],
    ["1.2.3s", "two points"],
    ["1,5s", "a comma"],
    ["1hs", "a unit without digits"],
    ["-5s", "a sign"],
    ["+5", "a plus"],
    ["5S", "upper case"],
    ["1o", "an incomplete unit"],
    ["1e3", "an exponent"],
    ["1e3s", "an exponent with a unit"],
    ["٣s", "other digits"],
    ["10s\n", "a line break"],
    ["100y1s", "more than 100 years"],
    ["99999999999999999999s", "far too long"],
    ["9".repeat(400), "beyond the largest number"],
    ["0".repeat(65), "too many characters"],
  ])("%j is null: %s", (text) => {
    expect(parseDuration(text)).toBeNull();
  });

  test("whole milliseconds are exact, regardless of the number of decimals", () => {
    fc.assert(
      fc.property(fc.nat(86_400_000), (millis) => {
        expect(parseDuration(`${(millis / 1000).toFixed(3)}s`)).toBe(millis);
        expect(parseDuration(`${millis}ms`)).toBe(millis);
      }),
    );
  });

  test("parses what a duration is formatted as", () => {
    const units = { s: 1000, m: 60_000, h: 3_600_000, d: day, w: 7 * day, mo: 30 * day };
    const unit = fc.constantFrom("s", "m", "h", "d", "w", "mo");
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.nat(100), unit), { minLength: 1, maxLength: 8 }), (items) => {
        const total = items.reduce((sum, [count, name]) => sum + count * units[name], 0);
        expect(parseDuration(items.map(([count, name]) => `${count}${name}`).join(""))).toBe(total);
      }),
    );
  });
});

describe("formatDuration", () => {
  test.each([
    [0, "0s"],
    [90_000, "1m30s"],
    [2 * 3_600_000, "2h"],
    [36 * 3_600_000, "1d12h"],
    [400 * day, "400d"],
    [50, "50ms"],
    [61_500, "1m1s500ms"],
  ])("%i ms is %s", (millis, text) => {
    expect(formatDuration(millis)).toBe(text);
  });

  test("writes what parseDuration reads", () => {
    fc.assert(
      fc.property(fc.maxSafeNat(), (number) => {
        const millis = number % (36_500 * day);
        expect(parseDuration(formatDuration(millis))).toBe(millis);
      }),
    );
  });
});

const pieces = fc.constantFrom("1", "10", ".", "s", "m", "h", "d", "ms", "mo", "µs", "ns", "-", " ", "0");
const nearlyDurations = fc.oneof(
  fc.string(),
  fc.array(pieces, { maxLength: 40 }).map((parts) => parts.join("")),
);

test("parseDuration gives whole milliseconds up to 100 years, or null, for any text", () => {
  fc.assert(
    fc.property(nearlyDurations, (text) => {
      const parsed = parseDuration(text);
      expect(parsed === null || (Number.isSafeInteger(parsed) && parsed >= 0 && parsed <= 36_500 * day)).toBe(
        true,
      );
    }),
  );
  expect(parseDuration("1".repeat(1_000_000))).toBeNull();
  expect(parseDuration("1s".repeat(1_000_000))).toBeNull();
});
