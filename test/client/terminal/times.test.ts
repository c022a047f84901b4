import { describe, expect, test } from "vitest";
import { formatAge, formatSpan, formatTime, parseTime } from "../../../src/client/terminal/times.ts";

const now = Date.UTC(2026, 10, 25, 12);

test.each([
  [0, "0ms"],
  [999, "999ms"],
  [61_000, "1m 1s"],
  [3_600_000, "1h"],
  [90_061_000, "1d 1h"],
])("%i ms is %s", (span, text) => expect(formatSpan(span)).toBe(text));

test("a time is shown as its distance, or as a date", () => {
  const fields = { past: now - 5_000, future: now + 60_000, far: 1e300 };
  expect(formatAge(fields, "past", now)).toBe("5s ago");
  expect(formatAge(fields, "future", now)).toBe("in 1m");
  expect(formatAge(fields, "absent", now)).toBe("");
  expect(formatTime(fields, "past")).toBe("2026-11-25T11:59:55.000Z");
  expect(formatTime(fields, "far")).toBe("");
});

describe("a time of a flag", () => {
  test.each([
    ["1h", now - 3_600_000],
    ["1795645465398", 1_795_645_465_398],
    ["2026-11-25T12:00Z", now],
    ["2026-11-25", Date.UTC(2026, 10, 25)],
  ])("%s", (text, time) => expect(parseTime("--since", text, now)).toBe(time));

  test.each(["", "soon", "2026-13-45", "-1h"])("%j is refused", (text) =>
    expect(() => parseTime("--since", text, now)).toThrow(/^--since: ".*" is not a time; use/),
  );
});
