import { fc } from "../../../seeds.ts";
import { describe, expect, test } from "vitest";
import { readIdTime, firstIdAt, createIdGenerator } from "../../../../src/engine/core/values/ids.ts";
import type { IdKind } from "../../../../src/engine/core/values/basics.ts";

const noon = Date.UTC(2026, 0, 1, 12);
const dated: readonly IdKind[] = ["msg", "log", "dlq", "nod", "jwt"];
const time = fc.integer({ min: 0, max: 9_999_999_999_999 });
const chance = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });

describe("ids", () => {
  test.each<[IdKind, RegExp]>([
    ["msg", /^msg_[1-9A-HJ-NP-Za-km-z]{20}$/],
    ["nod", /^nod_[1-9A-HJ-NP-Za-km-z]{20}$/],
    ["jwt", /^jwt_[1-9A-HJ-NP-Za-km-z]{20}$/],
    ["sig", /^sig_[1-9A-HJ-NP-Za-km-z]{28}$/],
    ["log", /^1767268800000-\d{9}$/],
    ["dlq", /^1767268800000-\d{9}$/],
  ])("of kind %s look like %s", (kind, pattern) => {
    expect(createIdGenerator(() => 0.123)(kind, noon)).toMatch(pattern);
  });

  test("of two generators differ by randomness, and of one generator by its counter", () => {
    const one = createIdGenerator(() => 0.1);
    const other = createIdGenerator(() => 0.2);
    expect(one("msg", noon)).not.toBe(other("msg", noon));
    expect(one("msg", noon)).not.toBe(one("msg", noon));
  });

  test("of one generator sort by creation, even after a clock change or 10,000 in a millisecond", () => {
    const make = createIdGenerator(() => 0.999);
    const times = [...Array.from({ length: 10_050 }, () => noon), noon - 60_000, noon + 1, noon + 2];
    const ids = times.map((now) => make("msg", now));
    expect([...ids].sort()).toEqual(ids);
    expect(new Set(ids).size).toBe(ids.length);
    expect(ids.at(-1)).toBeDefined();
    expect(readIdTime(ids.at(-1) ?? "")).toBe(noon + 2);
  });
});

test.each(dated)("the time in a %s id is the time of its creation", (kind) => {
  fc.assert(
    fc.property(time, chance, (now, random) => {
      fc.pre(now > 0);
      expect(readIdTime(createIdGenerator(() => random)(kind, now))).toBe(now);
    }),
  );
});

test.each(dated)(
  "ids created at or after a time sort behind the first %s id of that time, and earlier ids before it",
  (kind) => {
    fc.assert(
      fc.property(time, time, chance, (born, from, random) => {
        fc.pre(born > 0);
        const id = createIdGenerator(() => random)(kind, born);
        expect(id >= firstIdAt(kind, from)).toBe(born >= from);
      }),
    );
  },
);

test.each(dated)("the first %s id of a time that no id reaches sorts behind the ids of today", (kind) => {
  const id = createIdGenerator(() => 0.5)(kind, 1_767_268_800_000);
  for (const late of [9_999_999_999_999, 10_000_000_000_000, 99_999_999_999_999, 100_000_000_000_000])
    expect(firstIdAt(kind, late) > id, String(late)).toBe(true);
});

test("dlq and log ids are positions that begin with the time, as clients read them", () => {
  expect(firstIdAt("dlq", 1)).toBe("0000000000001-");
  expect(readIdTime("1767268800000-000412345")).toBe(1_767_268_800_000);
});
