import { expect, test } from "vitest";
import type { Commands } from "../../src/core/commands/index.ts";
import { simulate } from "./simulation.ts";

// Every mutant is a fault that somebody could make. A simulation that does not notice it would not notice that somebody either.

/** The first ones are those that notice a rare one. */
const seeds = [72, 103, 71, 61, 67, 94, 69, 73, ...Array.from({ length: 60 }, (_, index) => index + 1)];

/** Tests that each of these faults is noticed by one of a few simulations. `runs`: the share of workflow runs in them. */
export function expectCaught(mutants: readonly (readonly [name: string, decisions: Commands])[], { runs }: { runs: number }): void {
  test.each(mutants)(
    "is caught: %s",
    async (_, decisions) => {
      const failures = [];
      for (const seed of seeds) {
        const { failure } = await simulate({ seed, actions: 100, runs, decisions });
        if (failure !== null) failures.push(failure);
        if (failures.length > 0) break;
      }
      expect(failures, `none of ${seeds.length} seeds found anything wrong`).not.toEqual([]);
    },
    600_000,
  );
}
