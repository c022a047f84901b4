import { Cron } from "croner";
import * as fc from "fast-check";
import { afterEach, describe, expect, test, vi } from "vitest";
import { nextCronTime, parseCron } from "../../../src/core/values/cron.ts";
import { Refusal } from "../../../src/core/values/errors.ts";
import type { Millis } from "../../../src/core/model/message.ts";

const minute: Millis = 60_000;

test("every name of a month and of a weekday is its number", () => {
  const [months, weekdays] = ["jan feb mar apr may jun jul aug sep oct nov dec", "sun mon tue wed thu fri sat"].map((words) =>
    words.split(" "),
  );
  const noon = Date.UTC(2026, 0, 1, 12);
  for (const [index, month] of months?.entries() ?? [])
    expect(nextCronTime(parseCron(`0 0 1 ${month} *`), noon), month).toBe(Date.UTC(index === 0 ? 2027 : 2026, index, 1));
  // 1 January 2026 is a Thursday.
  for (const [index, weekday] of weekdays?.entries() ?? [])
    expect(nextCronTime(parseCron(`0 0 * * ${weekday}`), noon), weekday).toBe(Date.UTC(2026, 0, 4 + (index > 4 ? index - 7 : index)));
});

describe("parseCron keeps", () => {
  test.each([
    "* * * * *",
    "*/10 * * * *",
    "0  9\t* * 1-5",
    "0 0 1,15 jan-MAR,dec Mon",
    "0 0 ? * ?",
    "5/15 * * * *",
    "1,2,10-20/3,*/7 * * * 7",
    "0 0 29 2 *",
    "0 0 31 2 1",
    "@hourly",
    "@Midnight",
    "CRON_TZ=America/New_York 0 4 * * *",
    "TZ=europe/berlin  @daily",
    "CRON_TZ=Etc/GMT+5 0 4 * * *",
    "CRON_TZ=UTC * * * * *",
  ])("%s", (text) => {
    expect(parseCron(text)).toBe(text);
    expect(parseCron(` \t${text}  \n`)).toBe(text);
  });
});

test("parseCron sees by itself that there is no such day, and does not look for it in a thousand years", () => {
  const found = vi.spyOn(Cron.prototype, "nextRun");
  for (const times of ["0 0 30 2 *", "1 1 30-31 feb ?", "0 0 31 2,4-6/2,9 *", "0 0 31,30/1 2 *"])
    for (const zone of ["", "CRON_TZ=Europe/Berlin "]) expect(() => parseCron(`${zone}${times}`)).toThrow("never fires");
  expect(found).not.toHaveBeenCalled();
  for (const times of ["0 0 29 2 *", "0 0 31 4-5 *", "0 0 31 */7 *", "0 0 30 2 1", "0 0 */29 2 *", "@yearly"])
    expect(parseCron(times)).toBe(times);
  expect(found).toHaveBeenCalled();
});

describe("parseCron refuses", () => {
  const shape = 'expected five fields: minute hour day month weekday, as in "0 9 * * 1-5"';
  const item = "is malformed; expected *, a number, a range (1-5), a step (*/15), or a list of these";
  const zone = "expected an IANA name, as in CRON_TZ=Europe/Berlin 0 9 * * *";
  test.each([
    ["", `is empty; ${shape}`],
    [" \n ", `is empty; ${shape}`],
    ["CRON_TZ=UTC", `is empty; ${shape}`],
    ["*", `"*" has 1 field; ${shape}`],
    ["* * * *", `"* * * *" has 4 fields; ${shape}`],
    ["0 * * * * *", `"0 * * * * *" has 6 fields; ${shape}`],
    ["0 0 * * * * 2030", `"0 0 * * * * 2030" has 7 fields; ${shape}`],
    ["2030-01-01T00:00:00Z", `"2030-01-01T00:00:00Z" has 1 field; ${shape}`],
    ["@every 1h", `"@every 1h" is not known; ${shape}, or @hourly @daily @midnight @weekly @monthly @yearly @annually`],
    ["@reboot", `"@reboot" is not known; ${shape}, or @hourly @daily @midnight @weekly @monthly @yearly @annually`],
    ["60 * * * *", 'the minute must be 0 to 59, not "60"'],
    ["* 24 * * *", 'the hour must be 0 to 23, not "24"'],
    ["* * 0 * *", 'the day of the month must be 1 to 31, not "0"'],
    ["* * 32 * *", 'the day of the month must be 1 to 31, not "32"'],
    ["* * L * *", 'the day of the month must be 1 to 31, not "L"'],
    ["* * * 13 *", 'the month must be 1 to 12 or jan to dec, not "13"'],
    ["* * * january *", 'the month must be 1 to 12 or jan to dec, not "january"'],
    ["* * * * 8", 'the weekday must be 0 to 7 or sun to sat, not "8"'],
    ["* * * mon *", 'the month must be 1 to 12 or jan to dec, not "mon"'],
    ["-1 * * * *", `the minute "-1" ${item}`],
    ["1, * * * *", `the minute "" ${item}`],
    ["/5 * * * *", `the minute "/5" ${item}`],
    ["*/ * * * *", `the minute "*/" ${item}`],
    ["*/5/5 * * * *", `the minute "*/5/5" ${item}`],
    ["1-2-3 * * * *", `the minute "1-2-3" ${item}`],
    ["1.5 * * * *", `the minute "1.5" ${item}`],
    ["* * * * 1#2", `the weekday "1#2" ${item}`],
    ["* * 1 * +1", `the weekday "+1" ${item}`],
    ["* * * *\n* 1", `the month "*\\n*" ${item}`],
    ["*/0 * * * *", 'the step of the minute must be 1 to 60, not "0"'],
    ["* */25 * * *", 'the step of the hour must be 1 to 24, not "25"'],
    ["* 22-6 * * *", 'the hour "22-6" ends before it begins; write what goes past the end as a list of two ranges'],
    ["* * * * fri-mon", 'the weekday "fri-mon" ends before it begins; write what goes past the end as a list of two ranges'],
    ["0 0 31 2 *", '"0 0 31 2 *" never fires: none of its months has such a day'],
    ["0 0 31 2,4,6,9,11 *", '"0 0 31 2,4,6,9,11 *" never fires: none of its months has such a day'],
    ["CRON_TZ=Mars/Olympus 0 9 * * *", `there is no time zone "Mars/Olympus"; ${zone}`],
    ["CRON_TZ= 0 9 * * *", `there is no time zone ""; ${zone}`],
    ["TZ=+01:00 0 9 * * *", `there is no time zone "+01:00"; ${zone}`],
    ["TZ=Local 0 9 * * *", `there is no time zone "Local"; ${zone}`],
    [`${"0,".repeat(124)}0 * * * *`, "has 257 characters; at most 256 are read"],
  ])("%j", (text, reason) => {
    expect(() => parseCron(text)).toThrow(new Refusal("invalid", `cron: ${reason}`));
  });

  test("reads what is just short enough", () => {
    const text = `${"0,".repeat(123)}0  * * * *`;
    expect(text).toHaveLength(256);
    expect(parseCron(text)).toBe(text);
  });

  test("nothing in any other way", () => {
    const pieces = fc.constantFrom(
      "*",
      "?",
      "/",
      "-",
      ",",
      " ",
      "0",
      "5",
      "31",
      "99",
      "mon",
      "sun",
      "L",
      "W",
      "#",
      "@daily",
      "TZ=",
      "UTC",
      "\0",
    );
    const texts = fc.oneof(
      fc.string(),
      fc.array(pieces, { maxLength: 30 }).map((list) => list.join("")),
    );
    fc.assert(fc.property(texts, (text) => ["kept", "invalid"].includes(fateOf(text))));
  });

  function fateOf(text: string): string {
    try {
      return parseCron(text) === text.trim() ? "kept" : "changed";
    } catch (error) {
      return error instanceof Refusal ? error.code : String(error);
    }
  }
});

describe("nextAfter", () => {
  /** All times are in UTC. */
  const cases: readonly (readonly [what: string, cron: string, after: string, ...times: string[]])[] = [
    ["every minute", "* * * * *", "2026-01-31T23:59", "2026-02-01T00:00", "2026-02-01T00:01"],
    ["strictly after", "5 * * * *", "2026-01-01T00:05", "2026-01-01T01:05"],
    ["within a minute", "5 * * * *", "2026-01-01T00:04:59.999", "2026-01-01T00:05"],
    ["a step", "*/25 * * * *", "2026-01-01T00:00", "2026-01-01T00:25", "2026-01-01T00:50", "2026-01-01T01:00"],
    ["a step in a range", "10-30/10 8 * * *", "2026-01-01", "2026-01-01T08:10", "2026-01-01T08:20", "2026-01-01T08:30", "2026-01-02T08:10"],
    ["a step from a number", "50/5 8 * * *", "2026-01-01", "2026-01-01T08:50", "2026-01-01T08:55", "2026-01-02T08:50"],
    ["a list", "0 6,18 * * *", "2026-01-01", "2026-01-01T06:00", "2026-01-01T18:00", "2026-01-02T06:00"],
    ["leap days", "0 0 29 2 *", "2026-01-01", "2028-02-29", "2032-02-29"],
    ["a leap day that is left out", "0 0 29 2 *", "2096-03-01", "2104-02-29"],
    ["month ends", "0 0 31 * *", "2026-01-31", "2026-03-31", "2026-05-31", "2026-07-31", "2026-08-31"],
    ["the 30th", "0 0 30 * *", "2026-01-30", "2026-03-30"],
    ["months by name", "0 0 1 mar,Jun-AUG *", "2026-01-01", "2026-03-01", "2026-06-01", "2026-07-01", "2026-08-01", "2027-03-01"],
    ["Sunday as 0", "0 0 * * 0", "2026-01-01", "2026-01-04", "2026-01-11"],
    ["Sunday as 7", "0 0 * * 7", "2026-01-01", "2026-01-04", "2026-01-11"],
    ["a range to 7", "0 0 * * 6-7", "2026-01-01", "2026-01-03", "2026-01-04", "2026-01-10"],
    ["a range to Sunday", "0 0 * * Sat-sun", "2026-01-01", "2026-01-03", "2026-01-04", "2026-01-10"],
    ["a range from Sunday", "0 0 * * sun-mon", "2026-01-01", "2026-01-04", "2026-01-05", "2026-01-11"],
    ["a step over weekdays", "0 0 * * 1/2", "2026-01-01", "2026-01-02", "2026-01-05", "2026-01-07", "2026-01-09"],
    ["a step from 7", "0 0 * * 7/2", "2026-01-01", "2026-01-04", "2026-01-11"],
    ["either day, when both are restricted", "0 0 13 * 5", "2026-01-01", "2026-01-02", "2026-01-09", "2026-01-13", "2026-01-16"],
    ["a restricted day alone", "0 0 13 * ?", "2026-01-01", "2026-01-13", "2026-02-13"],
    ["a star in a list", "0 0 *,13 * 5", "2026-01-01", "2026-01-02", "2026-01-09", "2026-01-16"],
    ["@hourly", "@hourly", "2026-01-01T00:30", "2026-01-01T01:00"],
    ["@daily", "@DAILY", "2026-01-01T00:30", "2026-01-02"],
    ["@weekly", "@weekly", "2026-01-01", "2026-01-04"],
    ["@monthly", "@monthly", "2026-01-01", "2026-02-01"],
    ["@yearly", "CRON_TZ=Asia/Kolkata @yearly", "2026-01-01", "2026-12-31T18:30"],
    ["a zone", "CRON_TZ=America/New_York 0 4 * * *", "2026-01-01", "2026-01-01T09:00"],
    ["a zone, in any case", "TZ=america/new_york 0 4 * * *", "2026-01-01", "2026-01-01T09:00"],
    ["a weekday in its zone", "TZ=Asia/Tokyo 0 8 * * mon", "2026-01-01", "2026-01-04T23:00"],
    // Berlin: 2:00 to 3:00 is left out on 2026-03-29, and comes twice on 2026-10-25.
    ["daily, left out", "TZ=Europe/Berlin 30 2 * * *", "2026-03-27T12:00", "2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"],
    ["daily, twice", "TZ=Europe/Berlin 30 2 * * *", "2026-10-24T12:00", "2026-10-25T00:30", "2026-10-26T01:30"],
    ["twice, asked between", "TZ=Europe/Berlin 30 2 * * *", "2026-10-25T01:00", "2026-10-26T01:30"],
    ["left out, one of two", "TZ=Europe/Berlin 30 2,14 * * *", "2026-03-29", "2026-03-29T01:00", "2026-03-29T12:30", "2026-03-30T00:30"],
    ["left out, both of two", "TZ=Europe/Berlin 0,30 2 * * *", "2026-03-29", "2026-03-29T01:00", "2026-03-30T00:00"],
    ["left out, then met", "TZ=Europe/Berlin 0 2,3 * * *", "2026-03-29", "2026-03-29T01:00", "2026-03-30T00:00"],
    ["a step within the hour left out", "TZ=Europe/Berlin */30 2 * * *", "2026-03-29", "2026-03-30T00:00", "2026-03-30T00:30"],
    ["hourly, left out", "TZ=Europe/Berlin 15 * * * *", "2026-03-29", "2026-03-29T00:15", "2026-03-29T01:15", "2026-03-29T02:15"],
    ["hourly, twice", "TZ=Europe/Berlin 15 * * * *", "2026-10-25", "2026-10-25T00:15", "2026-10-25T01:15", "2026-10-25T02:15"],
    [
      "every fifth minute, left out",
      "TZ=Europe/Berlin */5 * * * *",
      "2026-03-29T00:50",
      "2026-03-29T00:55",
      "2026-03-29T01:00",
      "2026-03-29T01:05",
    ],
    [
      "every fifth minute, twice",
      "TZ=Europe/Berlin */5 * * * *",
      "2026-10-25T00:50",
      "2026-10-25T00:55",
      "2026-10-25T01:00",
      "2026-10-25T01:05",
    ],
    // New York: 2026-03-08, and 1:00 to 2:00 twice on 2026-11-01.
    ["New York, left out", "TZ=America/New_York 15 2 * * *", "2026-03-07T12:00", "2026-03-08T07:00", "2026-03-09T06:15"],
    ["New York, twice", "TZ=America/New_York 15 1 * * *", "2026-10-31T12:00", "2026-11-01T05:15", "2026-11-02T06:15"],
    // Lord Howe moves by half an hour: 2:00 to 2:30 is left out on 2026-10-04, 1:30 to 2:00 comes twice on 2026-04-05.
    ["half an hour, left out", "TZ=Australia/Lord_Howe 15 2 * * *", "2026-10-03T12:00", "2026-10-03T15:30", "2026-10-04T15:15"],
    ["half an hour, twice", "TZ=Australia/Lord_Howe 45 1 * * *", "2026-04-04T12:00", "2026-04-04T14:45", "2026-04-05T15:15"],
    ["half an hour, not concerned", "TZ=Australia/Lord_Howe 45 2 * * *", "2026-10-03T12:00", "2026-10-03T15:45", "2026-10-04T15:45"],
    [
      "every quarter, half an hour twice",
      "TZ=Australia/Lord_Howe */15 * * * *",
      "2026-04-04T14:30",
      ...["2026-04-04T14:45", "2026-04-04T15:00", "2026-04-04T15:15", "2026-04-04T15:30"],
    ],
    // Nuuk goes from 23:00 to midnight on 2026-03-28: the clock has moved on the next day only.
    ["left out before midnight", "TZ=America/Nuuk 30 23 * * *", "2026-03-27T12:00", "2026-03-28T01:30", "2026-03-30T00:30"],
    ["left out after midnight", "TZ=Africa/Cairo 30 0 * * *", "2026-04-23T12:00", "2026-04-23T22:00", "2026-04-24T21:30"],
  ];

  test.each(cases)("%s: %s", (_, cron, after, ...times) => {
    expect(firings(cron, instant(after), times.length)).toEqual(times.map((time) => new Date(instant(time)).toISOString()));
  });

  test("is null when it fires no more before the year 3000", () => {
    expect(nextCronTime("0 0 29 2 *", instant("2995-01-01"))).toBe(instant("2996-02-29"));
    expect(nextCronTime("0 0 29 2 *", instant("2999-01-01"))).toBeNull();
  });

  test("refuses what was never parsed", () => {
    expect(() => nextCronTime("often", 0)).toThrow(Refusal);
  });

  test("answers the same for more expressions than it remembers", () => {
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

  // Each with an expression of its own, so that it is parsed then.
  test.each([
    ["1999-12-31T23:59:30", 1],
    ["2026-10-25T00:30", 2],
    ["2999-06-01", 3],
  ])("%s makes no difference, and no timer is left", (present, at) => {
    vi.useFakeTimers({ now: instant(present) });
    expect(nextCronTime(`${at} 3 * * *`, 0)).toBe((180 + at) * minute);
    expect(nextCronTime("TZ=Europe/Berlin 30 2 29 * *", instant("2026-03-28"))).toBe(instant("2026-03-29T01:00"));
    expect(nextCronTime("0 12 * * *", instant("2026-10-25"))).toBe(instant("2026-10-25T12:00"));
    expect(vi.getTimerCount()).toBe(0);
  });
});

/** Around each change of the clock: what it says, minute by minute. */
type Scan = { zone: string; from: Millis; walls: readonly Millis[] };

describe("in any expression", () => {
  const scans: readonly Scan[] = [
    scanOf("UTC", "2028-02-28"),
    scanOf("Europe/Berlin", "2026-03-28"),
    scanOf("Europe/Berlin", "2026-10-24"),
    scanOf("America/New_York", "2026-03-07"),
    scanOf("America/New_York", "2026-10-31"),
    scanOf("Australia/Lord_Howe", "2026-10-03"),
    scanOf("Australia/Lord_Howe", "2026-04-04"),
  ];

  // Few values, near the changes, so that they meet often.
  const minutes = fc.constantFrom("*", "*/7", "0", "15", "45", "0,30", "20-40", "10-50/20");
  const hours = fc.constantFrom("*", "*/2", "1", "2", "1-3", "2,14", "0-23/3", "3", "23");
  const days = fc.constantFrom("*", "*", "*", "1-31", "29", "25,29", "1", "4-8", "*/2");
  const months = fc.constantFrom("*", "*", "2", "3,10", "3-4", "10-11");
  const weekdays = fc.constantFrom("*", "*", "*", "0", "7", "1-5", "0,6", "*/2");
  const expressions = fc.tuple(minutes, hours, days, months, weekdays);

  test("it fires exactly when a look at the clock, each minute, says so", () => {
    fc.assert(
      fc.property(expressions, fc.constantFrom(...scans), (fields, scan) => {
        const end = scan.from + scan.walls.length * minute;
        const found: Millis[] = [];
        const cron = `TZ=${scan.zone} ${fields.join(" ")}`;
        for (let at = nextCronTime(cron, scan.from); at !== null && at < end; at = nextCronTime(cron, at)) found.push(at);
        expect(found).toEqual(byScan(fields, scan));
      }),
      { numRuns: 200 },
    );
  });

  test("it fires at a whole minute after the given instant, the earlier the earlier it is", () => {
    const instants = fc.integer({ min: instant("2000-01-01"), max: instant("2100-01-01") });
    const zones = fc.constantFrom("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu");
    const gaps = fc.oneof(fc.integer({ min: 0, max: 3 * minute }), fc.integer({ min: 0, max: 400 * 1440 * minute }));
    fc.assert(
      fc.property(expressions, zones, instants, gaps, (fields, zone, after, gap) => {
        const cron = `TZ=${zone} ${fields.join(" ")}`;
        fc.pre(isPossible(cron));
        const next = nextCronTime(cron, after) ?? Number.NaN;
        const later = nextCronTime(cron, after + gap) ?? Number.NaN;
        expect(next).toBeGreaterThan(after);
        expect(next % minute).toBe(0);
        expect(later).toBe(after + gap < next ? next : later);
        expect(later).toBeGreaterThanOrEqual(next);
      }),
    );
  });

  function isPossible(cron: string): boolean {
    try {
      return parseCron(cron) === cron;
    } catch {
      return false;
    }
  }
});

/** Two days from a midnight in UTC. */
function scanOf(zone: string, date: string): Scan {
  const style = { year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", hourCycle: "h23" } as const;
  const format = new Intl.DateTimeFormat("en-US", { timeZone: zone, ...style });
  const wallOf = (at: Millis): Millis => {
    const parts = new Map(format.formatToParts(at).map(({ type, value }) => [type, Number(value)]));
    const part = (name: Intl.DateTimeFormatPartTypes): number => parts.get(name) ?? Number.NaN;
    return Date.UTC(part("year"), part("month") - 1, part("day"), part("hour"), part("minute"));
  };
  const from = instant(date);
  return { zone, from, walls: Array.from({ length: 2 * 1440 }, (_, at) => wallOf(from + at * minute)) };
}

/**
 * When it fires after the first minute of a scan. With a star or a step in minute or hour: whenever the clock on the wall fits.
 * Otherwise: when a time that fits has come or been passed over since the latest one ever seen.
 */
function byScan(fields: readonly string[], { from, walls }: Scan): Millis[] {
  const isPaced = /[*/]/.test(fields.slice(0, 2).join());
  let latest = walls[0] ?? Number.NaN;
  return walls.flatMap((wall, at) => {
    const first = isPaced ? wall : latest + minute;
    latest = Math.max(latest, wall);
    const passed = Array.from({ length: Math.max(0, (wall - first) / minute + 1) }, (_, count) => first + count * minute);
    return at > 0 && passed.some((time) => fits(fields, new Date(time))) ? [from + at * minute] : [];
  });
}

function fits([minutes = "", hours = "", days = "", months = "", weekdays = ""]: readonly string[], wall: Date): boolean {
  const onDay = holds(days, wall.getUTCDate(), 1);
  const onWeekday = holds(weekdays, wall.getUTCDay(), 0) || (wall.getUTCDay() === 0 && holds(weekdays, 7, 0));
  const isEither = days !== "*" && weekdays !== "*";
  const isTime = holds(minutes, wall.getUTCMinutes(), 0) && holds(hours, wall.getUTCHours(), 0) && holds(months, wall.getUTCMonth() + 1, 1);
  return isTime && (isEither ? onDay || onWeekday : onDay && onWeekday);
}

function holds(field: string, value: number, lowest: number): boolean {
  return field.split(",").some((item) => {
    const [range = "", step = "1"] = item.split("/");
    const [low = lowest, high = low] = range === "*" ? [lowest, 99] : range.split("-").map(Number);
    return value >= low && value <= high && (value - low) % Number(step) === 0;
  });
}

const instant = (text: string): Millis => Date.parse(`${text.includes("T") ? text : `${text}T00:00`}Z`);
