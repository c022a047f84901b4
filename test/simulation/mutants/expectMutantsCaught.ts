import { describe, expect, test } from "vitest";
import type { Commands } from "../../../src/engine/store/catalog/commands.ts";
import { simulate } from "../simulation.ts";

// Every mutant is a mistake that could be made. A simulation that does not detect it would not detect the
// mistake either.

/** The first seeds detect rare faults. */
const seeds = [
  72,
  76,
  103,
  71,
  61,
  67,
  94,
  69,
  73,
  181,
  ...Array.from({ length: 60 }, (_, index) => index + 1),
];

/** What happens in the simulations, besides messages. */
type Shares = { runs: number; byHand?: boolean; jobs?: number };
type Mutant = readonly [name: string, decisions: Commands];

/**
 * Tests that each mutant is caught by one of a few simulations. `runs`, `byHand` and `jobs` are options of
 * the simulations. The first `quick` mutants belong to `npm test`, the others to the long tests.
 */
export function expectMutantsCaught(
  mutants: readonly Mutant[],
  { quick, ...of }: Shares & { quick: number },
): void {
  test.each(mutants.slice(0, quick))("is caught: %s", (_, decisions) => expectFailure(decisions, of));
  describe("in the long run", { tags: "long" }, () => {
    test.each(mutants.slice(quick))("is caught: %s", (_, decisions) => expectFailure(decisions, of));
  });
}

async function expectFailure(decisions: Commands, of: Shares): Promise<void> {
  const failures = [];
  for (const seed of seeds) {
    const { failure } = await simulate({ seed, actions: 100, ...of, decisions });
    if (failure !== null) failures.push(failure);
    if (failures.length > 0) break;
  }
  expect(failures, `none of ${seeds.length} seeds found anything wrong`).not.toEqual([]);
}
