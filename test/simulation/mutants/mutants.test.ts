import { expectMutantsCaught } from "./expectMutantsCaught.ts";
import { mutants } from "./mutants.ts";
import { runMutants } from "./runMutants.ts";

expectMutantsCaught(
  Object.entries(mutants).filter(([name]) => !(name in runMutants)),
  { runs: 0.05, quick: 10 },
);
