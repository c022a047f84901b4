import { fc } from "../../../seeds.ts";
import { describe, expect, test } from "vitest";
import type { ParsedStepKey } from "../../../../src/engine/core/model/stepId.ts";
import {
  formatStepKey,
  listRunBounds,
  parseStepId,
  parseStepKey,
  readRunKey,
  toStepId,
  toStepKey,
} from "../../../../src/engine/core/model/stepId.ts";

const key: fc.Arbitrary<ParsedStepKey> = fc.oneof(
  fc.constant({ kind: "initial" as const, number: 0 }),
  fc.record({
    kind: fc.constantFrom(
      "plan" as const,
      "result" as const,
      "call" as const,
      "answer" as const,
      "unreadable" as const,
    ),
    number: fc.nat(),
  }),
);

describe("the key of a step", () => {
  test("is the same after formatting and parsing, also within an id", () => {
    const property = fc.property(key, (one) => {
      const id = toStepId("run_1", formatStepKey(one));
      expect([parseStepKey(formatStepKey(one)), parseStepId(id), readRunKey(id)]).toEqual([
        one,
        one,
        "run_1",
      ]);
      const { after, before } = listRunBounds("run_1");
      expect([id > after, id < before, toStepId("run_12", "i") < before]).toEqual([true, true, false]);
    });
    fc.assert(property);
  });

  test.each(["", "y3", "p", "r1x", "r01", "i2", "r1e3"])("is unreadable if it is %j", (text) => {
    expect(parseStepKey(text)).toEqual({ kind: "unreadable", number: 0 });
  });

  test("follows from the posted step", () => {
    const head = { stepId: 3, stepName: "n", stepType: "Run", concurrent: 1 };
    const plan = { ...head, stepId: 0, targetStep: 4 };
    expect(
      [
        ["step", head],
        ["step", plan],
        ["toCallback", head],
        ["fromCallback", head],
        ["step", null],
      ].map(([type, one]) => toStepKey(type as "step", one as typeof head, 7)),
    ).toEqual(["r3", "p4", "c3", "f3", "x7"]);
  });
});
