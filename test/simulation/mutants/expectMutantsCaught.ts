import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import type { Commands } from "../../../src/engine/store/catalog/commands.ts";
import { simulate } from "../simulation.ts";

// Every mutant is a mistake that could be made. A simulation that does not detect it would not detect the
// mistake either. A few are so rare that dozens of seeds find nothing wrong, which takes minutes;
// `seeds.json` has the seed that found each of them last. It only saves time: each change of the simulation
// changes what happens with a seed, and then the other seeds are tried. `RECORD_SEEDS=1 npx vitest run
// --project all test/simulation/mutants test/operations/jobs` writes the file again.

const seeds = Array.from({ length: 200 }, (_, index) => index + 1);

const file = join(import.meta.dirname, "seeds.json");
const readSeeds = (): Record<string, number> => JSON.parse(readFileSync(file, "utf8"));
const lastSeeds = readSeeds();
/** A mutant that so few seeds find needs no recorded seed. */
const few = 4;

/** What happens in the simulations, besides messages. */
type Shares = { runs: number; byHand?: boolean; receivers?: boolean; pulls?: boolean; jobs?: number };
type Mutant = readonly [name: string, decisions: Commands];

/**
 * Tests that each mutant is caught by one of a few simulations. `runs`, `byHand` and `jobs` are options of
 * the simulations. The first `quick` mutants belong to `npm test`, the others to the long tests.
 */
export function expectMutantsCaught(
  mutants: readonly Mutant[],
  { quick, ...of }: Shares & { quick: number },
): void {
  const caught: Record<string, number | undefined> = {};
  const expectCaught = async (name: string, decisions: Commands): Promise<void> => {
    const last = lastSeeds[name];
    const { seed, tried } = await findSeed(decisions, of, last === undefined ? seeds : [last, ...seeds]);
    // JSON has no `undefined`, so this removes the seed of a mutant that is not rare.
    caught[name] = seed === last || tried > few ? seed : undefined;
    expect(seed, `none of ${seeds.length} seeds found anything wrong`).toBeDefined();
  };
  test.each(mutants.slice(0, quick))("is caught: %s", (name, decisions) => expectCaught(name, decisions));
  describe("in the long run", { tags: "long" }, () => {
    test.each(mutants.slice(quick))("is caught: %s", (name, decisions) => expectCaught(name, decisions));
  });
  afterAll(() => {
    if (process.env["RECORD_SEEDS"] === undefined) return;
    const all = Object.entries({ ...readSeeds(), ...caught }).toSorted(([a], [b]) => (a < b ? -1 : 1));
    writeFileSync(file, `${JSON.stringify(Object.fromEntries(all), null, 2)}\n`);
  });
}

/** Returns the first seed that finds something wrong, or undefined, and how many were tried. */
async function findSeed(
  decisions: Commands,
  of: Shares,
  candidates: readonly number[],
): Promise<{ seed: number | undefined; tried: number }> {
  for (const [index, seed] of candidates.entries()) {
    const { failure } = await simulate({ seed, actions: 100, ...of, decisions });
    if (failure !== null) return { seed, tried: index + 1 };
  }
  return { seed: undefined, tried: candidates.length };
}
