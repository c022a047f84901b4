import { fc } from "../../../seeds.ts";
import { describe, expect, test } from "vitest";
import { nextCronTime, parseCron } from "../../../../src/engine/core/values/cron.ts";
import type { Millis } from "../../../../src/engine/core/values/basics.ts";
import { minute } from "../../../../src/engine/core/values/time.ts";

/** The local time in each minute around a change of the clock. */
type Scan = { zone: string; from: Millis; walls: readonly Millis[] };

describe("any expression", () => {
  const scans: readonly Scan[] = [
    scanOf("UTC", "2028-02-28"),
    scanOf("Europe/Berlin", "2026-03-28"),
    scanOf("Europe/Berlin", "2026-10-24"),
    scanOf("America/New_York", "2026-03-07"),
    scanOf("America/New_York", "2026-10-31"),
    scanOf("Australia/Lord_Howe", "2026-10-03"),
    scanOf("Australia/Lord_Howe", "2026-04-04"),
  ];

  // There are few values, all near the changes, so that they often coincide.
  const minutes = fc.constantFrom("*", "*/7", "0", "15", "45", "0,30", "20-40", "10-50/20");
  const hours = fc.constantFrom("*", "*/2", "1", "2", "1-3", "2,14", "0-23/3", "3", "23");
  const days = fc.constantFrom("*", "*", "*", "1-31", "29", "25,29", "1", "4-8", "*/2");
  const months = fc.constantFrom("*", "*", "2", "3,10", "3-4", "10-11");
  const weekdays = fc.constantFrom("*", "*", "*", "0", "7", "1-5", "0,6", "*/2");
  const expressions = fc.tuple(minutes, hours, days, months, weekdays);

  test("fires exactly in the minutes in which local time matches", () => {
    fc.assert(
      fc.property(expressions, fc.constantFrom(...scans), (fields, scan) => {
        const end = scan.from + scan.walls.length * minute;
        const found: Millis[] = [];
        const cron = `TZ=${scan.zone} ${fields.join(" ")}`;
        for (let at = nextCronTime(cron, scan.from); at !== null && at < end; at = nextCronTime(cron, at))
          found.push(at);
        expect(found).toEqual(byScan(fields, scan));
      }),
      { numRuns: 200 },
    );
  });

  test("fires at a whole minute after the given instant, and never earlier for a later instant", () => {
    const instants = fc.integer({ min: instant("2000-01-01"), max: instant("2100-01-01") });
    const zones = fc.constantFrom(
      "UTC",
      "Europe/Berlin",
      "America/New_York",
      "Australia/Lord_Howe",
      "Asia/Kathmandu",
    );
    const gaps = fc.oneof(
      fc.integer({ min: 0, max: 3 * minute }),
      fc.integer({ min: 0, max: 400 * 1440 * minute }),
    );
    fc.assert(
      fc.property(expressions, zones, fc.tuple(instants, gaps), (fields, zone, [after, gap]) => {
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

/** Returns a scan of two days from a midnight in UTC. */
function scanOf(zone: string, date: string): Scan {
  const style = {
    year: "numeric",
    month: "numeric",
    day: "numeric",
    hour: "numeric",
    minute: "numeric",
    hourCycle: "h23",
  } as const;
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
 * Returns when an expression fires after the first minute of a scan. If the minute or the hour has a star or
 * a step, it fires in each minute whose local time matches. Otherwise, it fires when a matching local time is
 * reached or skipped, counted from the latest local time seen so far.
 */
function byScan(fields: readonly string[], { from, walls }: Scan): Millis[] {
  const isPaced = /[*/]/.test(fields.slice(0, 2).join());
  let latest = walls[0] ?? Number.NaN;
  return walls.flatMap((wall, at) => {
    const first = isPaced ? wall : latest + minute;
    latest = Math.max(latest, wall);
    const passed = Array.from(
      { length: Math.max(0, (wall - first) / minute + 1) },
      (_, count) => first + count * minute,
    );
    return at > 0 && passed.some((time) => fits(fields, new Date(time))) ? [from + at * minute] : [];
  });
}

function fits(
  [minutes = "", hours = "", days = "", months = "", weekdays = ""]: readonly string[],
  wall: Date,
): boolean {
  const onDay = holds(days, wall.getUTCDate(), 1);
  const onWeekday = holds(weekdays, wall.getUTCDay(), 0) || (wall.getUTCDay() === 0 && holds(weekdays, 7, 0));
  const isEither = days !== "*" && weekdays !== "*";
  const isTime =
    holds(minutes, wall.getUTCMinutes(), 0) &&
    holds(hours, wall.getUTCHours(), 0) &&
    holds(months, wall.getUTCMonth() + 1, 1);
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
