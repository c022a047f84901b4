import { Cron } from "croner";
import { fc } from "../../../seeds.ts";
import { describe, expect, test, vi } from "vitest";
import { listCronTimes, nextCronTime, parseCron } from "../../../../src/engine/core/values/cron.ts";
import { Refusal } from "../../../../src/engine/core/values/errors.ts";

test("every name of a month or a weekday means its number", () => {
  const months = "jan feb mar apr may jun jul aug sep oct nov dec".split(" ");
  const weekdays = "sun mon tue wed thu fri sat".split(" ");
  const noon = Date.UTC(2026, 0, 1, 12);
  for (const [index, month] of months.entries())
    expect(nextCronTime(parseCron(`0 0 1 ${month} *`), noon), month).toBe(
      Date.UTC(index === 0 ? 2027 : 2026, index, 1),
    );
  // 1 January 2026 is a Thursday.
  for (const [index, weekday] of weekdays.entries())
    expect(nextCronTime(parseCron(`0 0 * * ${weekday}`), noon), weekday).toBe(
      Date.UTC(2026, 0, 4 + (index > 4 ? index - 7 : index)),
    );
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
  ])('the expression "%s" as it is', (text) => {
    expect(parseCron(text)).toBe(text);
    expect(parseCron(` \t${text}  \n`)).toBe(text);
  });
});

test("parseCron detects an impossible date without a search over years", () => {
  const found = vi.spyOn(Cron.prototype, "nextRun");
  for (const times of ["0 0 30 2 *", "1 1 30-31 feb ?", "0 0 31 2,4-6/2,9 *", "0 0 31,30/1 2 *"])
    for (const zone of ["", "CRON_TZ=Europe/Berlin "])
      expect(() => parseCron(`${zone}${times}`)).toThrow("never fires");
  expect(found).not.toHaveBeenCalled();
  for (const times of ["0 0 29 2 *", "0 0 31 4-5 *", "0 0 31 */7 *", "0 0 30 2 1", "0 0 */29 2 *", "@yearly"])
    expect(parseCron(times)).toBe(times);
  expect(found).toHaveBeenCalled();
});

describe("parseCron refuses", () => {
  const shape = 'expected five fields: minute hour day month weekday, as in "0 9 * * 1-5"';
  const item = "is malformed; expected *, a number, a range (1-5), a step (*/15), or a list of these";
  const zone = "use an IANA name, as in CRON_TZ=Europe/Berlin 0 9 * * *";
  test.each([
    ["", `is empty; ${shape}`],
    [" \n ", `is empty; ${shape}`],
    ["CRON_TZ=UTC", `is empty; ${shape}`],
    ["*", `"*" has 1 field; ${shape}`],
    ["* * * *", `"* * * *" has 4 fields; ${shape}`],
    ["0 * * * * *", `"0 * * * * *" has 6 fields; ${shape}`],
    ["0 0 * * * * 2030", `"0 0 * * * * 2030" has 7 fields; ${shape}`],
    ["2030-01-01T00:00:00Z", `"2030-01-01T00:00:00Z" has 1 field; ${shape}`],
    [
      "@every 1h",
      `"@every 1h" is not supported; ${shape}, or @hourly @daily @midnight @weekly @monthly @yearly ` +
        "@annually",
    ],
    [
      "@reboot",
      `"@reboot" is not supported; ${shape}, or @hourly @daily @midnight @weekly @monthly @yearly @annually`,
    ],
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
    ["* 22-6 * * *", 'the hour "22-6" ends before it begins; use a list of two ranges instead'],
    ["* * * * fri-mon", 'the weekday "fri-mon" ends before it begins; use a list of two ranges instead'],
    ["0 0 31 2 *", '"0 0 31 2 *" never fires: none of its months has such a day'],
    ["0 0 31 2,4,6,9,11 *", '"0 0 31 2,4,6,9,11 *" never fires: none of its months has such a day'],
    ["CRON_TZ=Mars/Olympus 0 9 * * *", `unknown time zone "Mars/Olympus"; ${zone}`],
    ["CRON_TZ= 0 9 * * *", `unknown time zone ""; ${zone}`],
    ["TZ=+01:00 0 9 * * *", `unknown time zone "+01:00"; ${zone}`],
    ["TZ=Local 0 9 * * *", `unknown time zone "Local"; ${zone}`],
    [`${"0,".repeat(124)}0 * * * *`, "has 257 characters; the limit is 256"],
  ])("%j", (text, reason) => {
    expect(() => parseCron(text)).toThrow(new Refusal("invalid", `cron: ${reason}`));
  });

  test("reads a string of the largest allowed length", () => {
    const text = `${"0,".repeat(123)}0  * * * *`;
    expect(text).toHaveLength(256);
    expect(parseCron(text)).toBe(text);
  });

  test("refuses any other text, and throws nothing but a Refusal", () => {
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

describe("the next times of an expression", () => {
  const list = (cron: string, dueAt: number, now = dueAt) => listCronTimes(cron, { dueAt, now, count: 3 });

  test("begin with the due time, even if it is late, and continue after the present", () => {
    const due = Date.UTC(2026, 0, 1, 12);
    const hours = (...all: number[]) => all.map((at) => due + at * 3_600_000);
    expect(list("0 * * * *", due)).toEqual(hours(0, 1, 2));
    expect(list("0 * * * *", due, due + 90 * 60_000)).toEqual(hours(0, 2, 3));
  });

  test("end if the expression does not fire again, or cannot be read any more", () => {
    expect(list("0 0 29 2 *", Date.UTC(2996, 1, 29))).toEqual([Date.UTC(2996, 1, 29)]);
    expect(list("CRON_TZ=Gone/Zone 0 * * * *", 5)).toEqual([5]);
  });
});
