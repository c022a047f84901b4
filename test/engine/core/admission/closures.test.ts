import { expect, test } from "vitest";
import { listClosures, unreservedRoom, newLimiter } from "../../../../src/engine/core/admission/limiter.ts";
import { keyGate } from "../../../../src/engine/core/admission/gate.ts";
import type { Limiter } from "../../../../src/engine/core/model/limiter.ts";
import { noon } from "../commandRunner.ts";
import { fc } from "../../../seeds.ts";

const small = fc.nat({ max: 4 });
const limit = fc.option(small);
const limiter: fc.Arbitrary<Limiter> = fc
  .record({
    paused: fc.boolean(),
    parallelism: limit,
    rate: limit,
    running: small,
    period: fc.constantFrom(1, 1000),
    windowStart: fc.constantFrom(noon - 1000, noon - 1, noon, noon + 5000),
    windowUsed: small,
    waitingDownstream: fc.option(small, { nil: undefined }),
  })
  .map(({ waitingDownstream, ...counted }) => {
    const one = newLimiter({ account: "acme", gate: keyGate("k") }, noon);
    return Object.assign(one, counted, waitingDownstream === undefined ? {} : { waitingDownstream });
  });

test("a limiter names a closure if and only if a message without a reservation has no room", () => {
  const property = fc.property(limiter, (one) => {
    expect(listClosures(one, noon).length === 0).toBe(unreservedRoom(one, noon) > 0);
  });
  fc.assert(property, { numRuns: 5_000 });
});

test("a limiter opens when everything that it named is lifted, and not before", () => {
  const property = fc.property(limiter, (one) => {
    const lifted = { ...one };
    for (const closure of listClosures(one, noon)) {
      expect(unreservedRoom(lifted, noon)).toBe(0);
      if (closure.by === "pause") lifted.paused = false;
      if (closure.by === "parallelism") lifted.parallelism = closure.used + 1;
      if (closure.by === "rate") lifted.rate = closure.used + 1;
    }
    expect(unreservedRoom(lifted, noon)).toBeGreaterThan(0);
  });
  fc.assert(property, { numRuns: 5_000 });
});

test("a limiter whose only closure is its rate opens when the period that it named has ended", () => {
  const property = fc.property(limiter, (one) => {
    const [closure, ...others] = listClosures(one, noon);
    if (closure?.by !== "rate" || others.length > 0 || closure.limit <= (one.waitingDownstream ?? 0)) return;
    // A period that begins in the future, because the clock was set back, ends later.
    if (one.windowStart > noon) return;
    expect(unreservedRoom(one, closure.until - 1)).toBe(0);
    expect(unreservedRoom(one, closure.until)).toBeGreaterThan(0);
  });
  fc.assert(property, { numRuns: 5_000 });
});
