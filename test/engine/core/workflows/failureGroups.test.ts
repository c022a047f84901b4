import { fc } from "../../../seeds.ts";
import { describe, expect, test } from "vitest";
import { findRunCause, normalizeError } from "../../../../src/engine/core/model/cause.ts";
import { noBytes } from "../../../../src/engine/core/values/basics.ts";
import { groupFailures, makeTrendBounds } from "../../../../src/engine/core/workflows/failureGroups.ts";
import type { FailureSummary } from "../../../../src/engine/core/workflows/failureGroups.ts";

describe("an error without its varying parts", () => {
  test.each([
    ["order 12345 not found", "order … not found"],
    ["took 1.234s, limit 1.000s", "took …, limit …"],
    ["user 3f2504e0-4f89-11d3-9a0c-0305e82c3301 is gone", "user … is gone"],
    ["no run wfr_8Yq2LmA1 in msg_26hZCxZC", "no run … in …"],
    ["hash deadbeef and 0xFF and cafebabe12", "hash … and … and …"],
    ['cannot read "name" of undefined', "cannot read … of undefined"],
    ["cannot read 'name' of `thing`", "cannot read … of …"],
    ["the customer's card can't be charged", "the customer's card can't be charged"],
    ["connect ECONNREFUSED 127.0.0.1:8080", "connect ECONNREFUSED …"],
    ["at 2026-01-01T12:00:00.000Z", "at …"],
    ["first line\nsecond line 2", "first line"],
    ["  much \t space  ", "much space"],
    ["Größe 7 überschritten", "Größe … überschritten"],
    [
      'step 2: history has "charge 1", the endpoint ran "a \\"b"',
      'step …: history has "charge 1", the endpoint ran "a \\"b"',
    ],
    ['a step: history has "a", the endpoint ran "b"', 'step …: history has "a", the endpoint ran "b"'],
    ['order 2: history has "a", the endpoint ran "b"', "order …: history has …, the endpoint ran …"],
    ["", ""],
  ])("of %j is %j", (text, expected) => {
    expect(normalizeError(text)).toBe(expected);
  });

  test("is equal for errors that differ only in numbers, and is never long", () => {
    fc.assert(
      fc.property(fc.nat(), fc.nat(), fc.string(), (a, b, rest) => {
        const words = rest.replaceAll(/["'`]/g, "");
        expect(normalizeError(`order ${a} failed: ${words}`)).toBe(
          normalizeError(`order ${b} failed: ${words}`),
        );
        expect(normalizeError(rest.repeat(400)).length).toBeLessThanOrEqual(301);
      }),
    );
  });

  test("is computed quickly for any text of an endpoint", () => {
    for (const part of ["'", '"', "`", "a'", "…", "1-", ". ", "_"])
      expect(normalizeError(part.repeat(1_000_000)).length).toBeLessThanOrEqual(301);
  });
});

describe("failure groups", () => {
  const seen = (time: number, said: string, more: Partial<FailureSummary> = {}): FailureSummary => {
    const place = { url: "https://a.example", stepName: null, afterStep: null, ...more };
    const response = { status: null, error: said, body: noBytes, redaction: null };
    const { id: cause, error } = findRunCause({ ...response, url: place.url, step: place });
    return { dlqId: `${time}-0`, time, cause, error, ...place };
  };

  test("have the same workflow, step and error; the largest is first, then the latest", () => {
    const groups = groupFailures([
      seen(5, "order 1 is gone"),
      seen(3, "timed out"),
      seen(9, "order 2 is gone", { stepName: "pay" }),
      seen(4, "order 3 is gone"),
      seen(8, "timed out", { url: "https://b.example" }),
    ]);
    const ofRuns = { status: null, cause: expect.stringMatching(/^[\da-z]{11}$/), isCut: false, trend: [] };
    expect(groups).toEqual([
      {
        url: "https://a.example",
        stepName: null,
        afterStep: null,
        error: "order … is gone",
        ...ofRuns,
        count: 2,
        firstAt: 4,
        lastAt: 5,
        dlqId: "5-0",
      },
      {
        url: "https://a.example",
        stepName: "pay",
        afterStep: null,
        error: "order … is gone",
        ...ofRuns,
        count: 1,
        firstAt: 9,
        lastAt: 9,
        dlqId: "9-0",
      },
      {
        url: "https://b.example",
        stepName: null,
        afterStep: null,
        error: "timed out",
        ...ofRuns,
        count: 1,
        firstAt: 8,
        lastAt: 8,
        dlqId: "8-0",
      },
      {
        url: "https://a.example",
        stepName: null,
        afterStep: null,
        error: "timed out",
        ...ofRuns,
        count: 1,
        firstAt: 3,
        lastAt: 3,
        dlqId: "3-0",
      },
    ]);
  });

  test("of messages have one cause, and show the error of the latest failure", () => {
    const groups = groupFailures(
      [
        seen(7, "", { error: "ORA-00060: deadlock", cause: "a", url: "https://a.example/…", status: 500 }),
        seen(9, "", { error: "ORA-00061: deadlock", cause: "a", url: "https://a.example/…", status: 500 }),
        seen(12, "other", { cause: "b" }),
      ],
      [0, 8, 12],
    );
    expect(groups).toMatchObject([
      { cause: "a", count: 2, error: "ORA-00061: deadlock", status: 500, dlqId: "9-0", trend: [1, 1] },
      { cause: "b", count: 1, trend: [0, 0] },
    ]);
  });

  test("show a trend of equal parts, also of no time", () => {
    expect(makeTrendBounds({ from: 0, to: 240 }).slice(0, 3)).toEqual([0, 10, 20]);
    expect(makeTrendBounds({ from: 5, to: 5 })).toEqual(Array(25).fill(5));
    expect(makeTrendBounds({ from: 9, to: 5 })).toEqual(Array(25).fill(9));
  });

  test("do not depend on the order of the failures", () => {
    const some = Array.from({ length: 12 }, (_, n) =>
      seen(1_000 + n, ["a 1", "b", "c"][n % 3] ?? "", { url: `https://${n % 2}.example` }),
    );
    const expected = groupFailures(some);
    expect(expected.reduce((sum, { count }) => sum + count, 0)).toBe(12);
    fc.assert(
      fc.property(fc.shuffledSubarray(some, { minLength: 12 }), (order) => {
        expect(groupFailures(order)).toEqual(expected);
      }),
    );
  });
});
