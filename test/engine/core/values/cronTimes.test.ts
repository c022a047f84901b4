import { afterEach, describe, expect, test, vi } from "vitest";
import { nextCronTime } from "../../../../src/engine/core/values/cron.ts";
import { Refusal } from "../../../../src/engine/core/values/errors.ts";
import type { Millis } from "../../../../src/engine/core/values/basics.ts";
import { minute } from "../../../../src/engine/core/values/time.ts";

describe("nextCronTime", () => {
  /** All times are in UTC. */
  const cases: readonly (readonly [what: string, cron: string, after: string, ...times: string[]])[] = [
    ["every minute", "* * * * *", "2026-01-31T23:59", "2026-02-01T00:00", "2026-02-01T00:01"],
    ["strictly after", "5 * * * *", "2026-01-01T00:05", "2026-01-01T01:05"],
    ["within a minute", "5 * * * *", "2026-01-01T00:04:59.999", "2026-01-01T00:05"],
    [
      "a step",
      "*/25 * * * *",
      "2026-01-01T00:00",
      "2026-01-01T00:25",
      "2026-01-01T00:50",
      "2026-01-01T01:00",
    ],
    [
      "a step in a range",
      "10-30/10 8 * * *",
      "2026-01-01",
      "2026-01-01T08:10",
      "2026-01-01T08:20",
      "2026-01-01T08:30",
      "2026-01-02T08:10",
    ],
    [
      "a step from a number",
      "50/5 8 * * *",
      "2026-01-01",
      "2026-01-01T08:50",
      "2026-01-01T08:55",
      "2026-01-02T08:50",
    ],
    ["a list", "0 6,18 * * *", "2026-01-01", "2026-01-01T06:00", "2026-01-01T18:00", "2026-01-02T06:00"],
    ["leap days", "0 0 29 2 *", "2026-01-01", "2028-02-29", "2032-02-29"],
    ["a skipped leap day", "0 0 29 2 *", "2096-03-01", "2104-02-29"],
    ["month ends", "0 0 31 * *", "2026-01-31", "2026-03-31", "2026-05-31", "2026-07-31", "2026-08-31"],
    ["the 30th", "0 0 30 * *", "2026-01-30", "2026-03-30"],
    [
      "months by name",
      "0 0 1 mar,Jun-AUG *",
      "2026-01-01",
      "2026-03-01",
      "2026-06-01",
      "2026-07-01",
      "2026-08-01",
      "2027-03-01",
    ],
    ["Sunday as 0", "0 0 * * 0", "2026-01-01", "2026-01-04", "2026-01-11"],
    ["Sunday as 7", "0 0 * * 7", "2026-01-01", "2026-01-04", "2026-01-11"],
    ["a range to 7", "0 0 * * 6-7", "2026-01-01", "2026-01-03", "2026-01-04", "2026-01-10"],
    ["a range to Sunday", "0 0 * * Sat-sun", "2026-01-01", "2026-01-03", "2026-01-04", "2026-01-10"],
    ["a range from Sunday", "0 0 * * sun-mon", "2026-01-01", "2026-01-04", "2026-01-05", "2026-01-11"],
    [
      "a step over weekdays",
      "0 0 * * 1/2",
      "2026-01-01",
      "2026-01-02",
      "2026-01-05",
      "2026-01-07",
      "2026-01-09",
    ],
    ["a step from 7", "0 0 * * 7/2", "2026-01-01", "2026-01-04", "2026-01-11"],
    [
      "either day, when both are restricted",
      "0 0 13 * 5",
      "2026-01-01",
      "2026-01-02",
      "2026-01-09",
      "2026-01-13",
      "2026-01-16",
    ],
    ["only a restricted day", "0 0 13 * ?", "2026-01-01", "2026-01-13", "2026-02-13"],
    ["a star in a list", "0 0 *,13 * 5", "2026-01-01", "2026-01-02", "2026-01-09", "2026-01-16"],
    ["@hourly", "@hourly", "2026-01-01T00:30", "2026-01-01T01:00"],
    ["@daily", "@DAILY", "2026-01-01T00:30", "2026-01-02"],
    ["@weekly", "@weekly", "2026-01-01", "2026-01-04"],
    ["@monthly", "@monthly", "2026-01-01", "2026-02-01"],
    ["@yearly", "CRON_TZ=Asia/Kolkata @yearly", "2026-01-01", "2026-12-31T18:30"],
    ["a zone", "CRON_TZ=America/New_York 0 4 * * *", "2026-01-01", "2026-01-01T09:00"],
    ["a zone, in any case", "TZ=america/new_york 0 4 * * *", "2026-01-01", "2026-01-01T09:00"],
    ["a weekday in its zone", "TZ=Asia/Tokyo 0 8 * * mon", "2026-01-01", "2026-01-04T23:00"],
    // Berlin skips 2:00 to 3:00 on 2026-03-29, and repeats it on 2026-10-25.
    [
      "daily, skipped",
      "TZ=Europe/Berlin 30 2 * * *",
      "2026-03-27T12:00",
      "2026-03-28T01:30",
      "2026-03-29T01:00",
      "2026-03-30T00:30",
    ],
    [
      "daily, repeated",
      "TZ=Europe/Berlin 30 2 * * *",
      "2026-10-24T12:00",
      "2026-10-25T00:30",
      "2026-10-26T01:30",
    ],
    ["repeated, asked in between", "TZ=Europe/Berlin 30 2 * * *", "2026-10-25T01:00", "2026-10-26T01:30"],
    [
      "skipped, one of two",
      "TZ=Europe/Berlin 30 2,14 * * *",
      "2026-03-29",
      "2026-03-29T01:00",
      "2026-03-29T12:30",
      "2026-03-30T00:30",
    ],
    [
      "skipped, both of two",
      "TZ=Europe/Berlin 0,30 2 * * *",
      "2026-03-29",
      "2026-03-29T01:00",
      "2026-03-30T00:00",
    ],
    [
      "skipped, then reached",
      "TZ=Europe/Berlin 0 2,3 * * *",
      "2026-03-29",
      "2026-03-29T01:00",
      "2026-03-30T00:00",
    ],
    [
      "a step within the skipped hour",
      "TZ=Europe/Berlin */30 2 * * *",
      "2026-03-29",
      "2026-03-30T00:00",
      "2026-03-30T00:30",
    ],
    [
      "hourly, skipped",
      "TZ=Europe/Berlin 15 * * * *",
      "2026-03-29",
      "2026-03-29T00:15",
      "2026-03-29T01:15",
      "2026-03-29T02:15",
    ],
    [
      "hourly, repeated",
      "TZ=Europe/Berlin 15 * * * *",
      "2026-10-25",
      "2026-10-25T00:15",
      "2026-10-25T01:15",
      "2026-10-25T02:15",
    ],
    [
      "every fifth minute, skipped",
      "TZ=Europe/Berlin */5 * * * *",
      "2026-03-29T00:50",
      "2026-03-29T00:55",
      "2026-03-29T01:00",
      "2026-03-29T01:05",
    ],
    [
      "every fifth minute, repeated",
      "TZ=Europe/Berlin */5 * * * *",
      "2026-10-25T00:50",
      "2026-10-25T00:55",
      "2026-10-25T01:00",
      "2026-10-25T01:05",
    ],
    // New York skips 2:00 to 3:00 on 2026-03-08, and repeats 1:00 to 2:00 on 2026-11-01.
    [
      "New York, skipped",
      "TZ=America/New_York 15 2 * * *",
      "2026-03-07T12:00",
      "2026-03-08T07:00",
      "2026-03-09T06:15",
    ],
    [
      "New York, repeated",
      "TZ=America/New_York 15 1 * * *",
      "2026-10-31T12:00",
      "2026-11-01T05:15",
      "2026-11-02T06:15",
    ],
    // Lord Howe changes by half an hour. It skips 2:00 to 2:30 on 2026-10-04, and repeats 1:30 to 2:00 on
    // 2026-04-05.
    [
      "half an hour, skipped",
      "TZ=Australia/Lord_Howe 15 2 * * *",
      "2026-10-03T12:00",
      "2026-10-03T15:30",
      "2026-10-04T15:15",
    ],
    [
      "half an hour, repeated",
      "TZ=Australia/Lord_Howe 45 1 * * *",
      "2026-04-04T12:00",
      "2026-04-04T14:45",
      "2026-04-05T15:15",
    ],
    [
      "half an hour, not affected",
      "TZ=Australia/Lord_Howe 45 2 * * *",
      "2026-10-03T12:00",
      "2026-10-03T15:45",
      "2026-10-04T15:45",
    ],
    [
      "every quarter, half an hour repeated",
      "TZ=Australia/Lord_Howe */15 * * * *",
      "2026-04-04T14:30",
      "2026-04-04T14:45",
      "2026-04-04T15:00",
      "2026-04-04T15:15",
      "2026-04-04T15:30",
    ],
    // Nuuk skips 23:00 to midnight on 2026-03-28, so the moment of the change is on the next day.
    [
      "skipped before midnight",
      "TZ=America/Nuuk 30 23 * * *",
      "2026-03-27T12:00",
      "2026-03-28T01:30",
      "2026-03-30T00:30",
    ],
    [
      "skipped after midnight",
      "TZ=Africa/Cairo 30 0 * * *",
      "2026-04-23T12:00",
      "2026-04-23T22:00",
      "2026-04-24T21:30",
    ],
  ];

  test.for(cases)("%s: %s", ([, cron, after, ...times]) => {
    expect(firings(cron, instant(after), times.length)).toEqual(
      times.map((time) => new Date(instant(time)).toISOString()),
    );
  });

  test("is null if the expression does not fire before the year 3000", () => {
    expect(nextCronTime("0 0 29 2 *", instant("2995-01-01"))).toBe(instant("2996-02-29"));
    expect(nextCronTime("0 0 29 2 *", instant("2999-01-01"))).toBeNull();
  });

  test("refuses a string that was never parsed", () => {
    expect(() => nextCronTime("often", 0)).toThrow(Refusal);
  });

  test("gives the same result for more expressions than it remembers", () => {
    const crons = Array.from({ length: 600 }, (_, at) => `${at % 60} ${Math.floor(at / 60)} * * *`);
    const ask = (): (Millis | null)[] => crons.map((cron) => nextCronTime(cron, 0));
    const expected = crons.map((_, at) => (at === 0 ? 1440 : at) * minute);
    expect(ask()).toEqual(expected);
    expect(ask()).toEqual(expected);
  });

  const firings = (cron: string, after: Millis, count: number): string[] =>
    Array.from({ length: count })
      .reduce<Millis[]>((times) => [...times, nextCronTime(cron, times.at(-1) ?? after) ?? Number.NaN], [])
      .map((time) => new Date(time).toISOString());
});

describe("the present", () => {
  afterEach(() => vi.useRealTimers());

  // Each case has its own expression, so that it is parsed in the case.
  test.each([
    ["1999-12-31T23:59:30", 1],
    ["2026-10-25T00:30", 2],
    ["2999-06-01", 3],
  ])("%s makes no difference to the result, and no timer is left running", (present, at) => {
    vi.useFakeTimers({ now: instant(present) });
    expect(nextCronTime(`${at} 3 * * *`, 0)).toBe((180 + at) * minute);
    expect(nextCronTime("TZ=Europe/Berlin 30 2 29 * *", instant("2026-03-28"))).toBe(
      instant("2026-03-29T01:00"),
    );
    expect(nextCronTime("0 12 * * *", instant("2026-10-25"))).toBe(instant("2026-10-25T12:00"));
    expect(vi.getTimerCount()).toBe(0);
  });
});

const instant = (text: string): Millis => Date.parse(`${text.includes("T") ? text : `${text}T00:00`}Z`);
