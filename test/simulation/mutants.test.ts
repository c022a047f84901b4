import { expect, test } from "vitest";
import { mutants } from "./mutants.ts";
import { runMutants } from "./runMutants.ts";
import { simulate } from "./simulation.ts";

// Every mutant is a fault that somebody could make. A simulation that does not notice it would not notice that somebody either.

const seeds = Array.from({ length: 60 }, (_, index) => index + 1);

test.each(Object.entries(mutants))(
  "is caught: %s",
  async (name, decisions) => {
    const runs = name in runMutants ? 0.6 : 0.05;
    const failures = [];
    for (const seed of seeds) {
      const { failure } = await simulate({ seed, actions: 100, runs, decisions });
      if (failure !== null) failures.push(failure);
      if (failures.length > 0) break;
    }
    expect(failures, `none of ${seeds.length} seeds found anything wrong`).not.toEqual([]);
  },
  120_000,
);
