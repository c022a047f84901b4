import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fc } from "../../../seeds.ts";
import { describe, expect, test } from "vitest";
import type { HeaderList } from "../../../../src/engine/core/values/basics.ts";
import { backoff, decideNextAction } from "../../../../src/engine/core/sending/retry.ts";
import type { NextAction } from "../../../../src/engine/core/sending/retry.ts";
import { defaults } from "../../../../src/engine/core/values/limits.ts";

const guide = readFileSync(join(import.meta.dirname, "../../../../docs/retries-and-timeouts.md"), "utf8");
const now = Date.UTC(2024, 5, 27, 12, 0, 0);
const day = 86_400_000;

type Case = {
  status?: number | null;
  headers?: HeaderList;
  retries?: number;
  retryDelay?: string | null;
  retried?: number;
  at?: number;
};

const judge = ({
  status = 500,
  headers = [],
  retries = 3,
  retryDelay = null,
  retried = 0,
  at = now,
}: Case): NextAction =>
  decideNextAction({ message: { retries, retryDelay }, outcome: { status, headers }, retried, now: at });

const after = (delay: number): NextAction => ({ kind: "retry", at: now + delay });

describe("decideNextAction", () => {
  test.each([200, 201, 204, 299])("a status of %d means delivered, even after the last retry", (status) => {
    expect(judge({ status })).toEqual({ kind: "delivered" });
    expect(judge({ status, retried: 3 })).toEqual({ kind: "delivered" });
    expect(judge({ status, headers: [["Retry-After", "10"]] })).toEqual({ kind: "delivered" });
  });

  test.each([null, 100, 199, 300, 302, 400, 404, 429, 489, 500, 503])("%s is retried", (status) => {
    expect(judge({ status })).toEqual(after(12_182));
  });

  test.each([
    [0, 0, "failed"],
    [1, 0, "retry"],
    [1, 1, "failed"],
    [3, 2, "retry"],
    [3, 3, "failed"],
    [3, 4, "failed"],
  ])("with %d retries, %d of which were made: %s", (retries, retried, kind) => {
    expect(judge({ retries, retried }).kind).toBe(kind);
    expect(judge({ retries, retried, status: null }).kind).toBe(kind);
    expect(judge({ retries, retried, headers: [["Retry-After", "0"]] }).kind).toBe(kind);
  });

  test.each<[number | null, HeaderList, string]>([
    [489, [["Svc-Nonretryable-Error", "true"]], "failed"],
    [489, [["Upstash-Nonretryable-Error", "true"]], "failed"],
    [489, [["Upstash-Nonretryable-Error", " True "]], "failed"],
    [489, [["Svc-Nonretryable-Error", "false"]], "retry"],
    [489, [["Svc-Nonretryable-Error", ""]], "retry"],
    [489, [["Nonretryable-Error", "true"]], "retry"],
    [489, [], "retry"],
    [500, [["Svc-Nonretryable-Error", "true"]], "retry"],
    [400, [["Upstash-Nonretryable-Error", "true"]], "retry"],
    [200, [["Upstash-Nonretryable-Error", "true"]], "delivered"],
  ])("%s with %j: %s", (status, headers, kind) => {
    expect(judge({ status, headers }).kind).toBe(kind);
  });

  test.each([
    ["1000", 0, 1000],
    ["1000 * (1 + retried)", 0, 1000],
    ["1000 * (1 + retried)", 2, 3000],
    ["0", 0, 0],
    ["0 - 1", 0, 0],
    ["1 / 0", 0, day],
  ])("the retry delay %s after %d retries", (retryDelay, retried, delay) => {
    expect(judge({ retryDelay, retried })).toEqual(after(delay));
  });

  test("a stored retry delay that cannot be parsed is replaced by the default backoff", () => {
    expect(judge({ retryDelay: "soon", retried: 1 })).toEqual(after(148_413));
  });

  test("the wait from the destination precedes the retry delay, which precedes the default backoff", () => {
    expect(judge({ headers: [["Retry-After", "10"]], retryDelay: "1000" })).toEqual(after(10_000));
    expect(judge({ retryDelay: "1000" })).toEqual(after(1000));
    expect(judge({})).toEqual(after(12_182));
  });
});

describe("Retry-After", () => {
  test.each([
    ["0", 0],
    ["10", 10_000],
    [" 10 ", 10_000],
    ["1.5", 1500],
    ["0.0001", 1],
    ["86400", day],
    ["Thu, 27 Jun 2024 12:16:24 GMT", 984_000],
    ["Sun, 27 Jun 2024 12:16:24 GMT", 984_000],
    ["thu, 27 jun 2024 12:16:24 gmt", 984_000],
    ["Fri, 28 Jun 2024 12:00:00 GMT", day],
    ["Thu, 27 Jun 2024 11:59:59 GMT", 0],
    ["Thu, 1 Jan 1970 00:00:00 GMT", 0],
    ["6m5s", 365_000],
    ["10s", 10_000],
    ["1h0.5s", 3_600_500],
    ["250ms", 250],
    ["1d", day],
    ["24h", day],
  ])("%j means a wait of %d ms", (value, delay) => {
    expect(judge({ headers: [["Retry-After", value]] })).toEqual(after(delay));
  });

  test.each([
    "",
    "soon",
    "-1",
    "-10s",
    "+5",
    "1e3",
    "1.2.3",
    ".",
    "86401",
    "86400.001",
    "24h1ns",
    "2d",
    "Fri, 28 Jun 2024 12:00:01 GMT",
    "Thu, 27 Jun 2024 25:00:00 GMT",
    "Thu, 27 Foo 2024 12:16:24 GMT",
    "Thu, 27 Jun 2024 12:16:24",
    "Thu, 27 Jun 2024 12:16:24 GMT (soon)",
    "2024-06-27T12:16:24Z",
    "9".repeat(1000),
    "9".repeat(100_000),
  ])("%j is ignored", (value) => {
    expect(judge({ headers: [["Retry-After", value]] })).toEqual(after(12_182));
    expect(judge({ headers: [["Retry-After", value]], retryDelay: "7" })).toEqual(after(7));
  });
});

describe("the reset headers", () => {
  const all: HeaderList = [
    ["X-Ratelimit-Reset-Tokens", "4"],
    ["X-Ratelimit-Reset-Requests", "3"],
    ["X-Ratelimit-Reset", "2"],
    ["Retry-After", "1"],
  ];

  test("are used in their fixed order, regardless of their order in the response", () => {
    expect(judge({ headers: all })).toEqual(after(1000));
    expect(judge({ headers: all.slice(0, 3) })).toEqual(after(2000));
    expect(judge({ headers: all.slice(0, 2) })).toEqual(after(3000));
    expect(judge({ headers: all.slice(0, 1) })).toEqual(after(4000));
  });

  test("are skipped if they cannot be used", () => {
    const headers: HeaderList = [
      ["Retry-After", "later"],
      ["X-Ratelimit-Reset", "90000"],
      ["X-Ratelimit-Reset-Requests", "6m0s"],
    ];
    expect(judge({ headers })).toEqual(after(360_000));
  });

  const unix = now / 1000;
  test.each([
    [unix + 60, 60_000],
    [unix + 60.25, 60_250],
    [unix + 86_400, day],
    [unix, 0],
    [unix - 2, 0],
    [unix - 86_400, 0],
  ])("%d is a Unix time within a day of now and means a wait of %d ms", (value, delay) => {
    expect(judge({ headers: [["X-Ratelimit-Reset", String(value)]] })).toEqual(after(delay));
  });

  test.each([unix + 86_401, unix - 86_401, now + 60_000, 100_000])(
    "%d is neither seconds nor such a time, and is ignored",
    (value) => {
      expect(judge({ headers: [["X-Ratelimit-Reset", String(value)]] })).toEqual(after(12_182));
    },
  );
});

test("any header gives a wait from 0 to a day, or is ignored", () => {
  const name = fc.constantFrom(
    "Retry-After",
    "X-Ratelimit-Reset",
    "X-Ratelimit-Reset-Requests",
    "X-Ratelimit-Reset-Tokens",
  );
  const value = fc.oneof(
    fc.string(),
    fc.nat().map(String),
    fc.double().map(String),
    fc.date({ noInvalidDate: true }).map((date) => date.toUTCString()),
    fc.stringMatching(/^[0-9.]{0,12}(ns|us|ms|s|m|h|d)?$/),
  );
  fc.assert(
    fc.property(fc.array(fc.tuple(name, value), { maxLength: 4 }), fc.string(), (headers, retryDelay) => {
      const verdict = judge({ headers, retryDelay });
      const wait = verdict.kind === "retry" ? verdict.at - now : Number.NaN;
      expect(Number.isInteger(wait) && wait >= 0 && wait <= day).toBe(true);
    }),
  );
});

test("any time within a day is met to the second, both as a date and as a Unix time", () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 86_400 }), (seconds) => {
      const at = now + seconds * 1000;
      expect(judge({ headers: [["Retry-After", new Date(at).toUTCString()]] })).toEqual({
        kind: "retry",
        at,
      });
      expect(judge({ headers: [["X-Ratelimit-Reset", String(at / 1000)]] })).toEqual({ kind: "retry", at });
    }),
  );
});

describe("backoff", () => {
  test.each([
    [1, 12_182],
    [2, 148_413],
    [3, 1_808_042],
    [4, 22_026_465],
    [5, day],
    [6, day],
    [1000, day],
  ])("waits before retry %d for %d ms", (n, delay) => {
    expect(backoff(n)).toBe(delay);
  });

  // In seconds. The guide rounds times of more than an hour to minutes.
  test.each([
    [1, 12, "12 s"],
    [2, 161, "2 min 41 s"],
    [3, 1969, "32 min 49 s"],
    [4, 24_000, "6 h 40 min"],
    [5, 110_400, "1 day 6 h 40 min"],
    [6, 196_800, "2 days 6 h 40 min"],
  ])("a message with %d retries is given up after %d s, as the guide says", (retries, seconds, text) => {
    const waits = Array.from({ length: retries }, (_none, made) => backoff(made + 1));
    const total = waits.reduce((sum, wait) => sum + wait, 0) / 1000;
    expect(Math.abs(total - seconds)).toBeLessThan(seconds < 3600 ? 0.5 : 30);
    const name = retries === defaults.retries ? `${retries} \\(default\\)` : String(retries);
    expect(guide).toMatch(new RegExp(`^\\| ${name} \\| [^|]+ \\| ${text} \\|$`, "m"));
  });

  test("never decreases", () => {
    fc.assert(
      fc.property(fc.nat(1000), (n) => {
        expect(backoff(n + 1)).toBeGreaterThanOrEqual(backoff(n));
      }),
    );
  });
});
