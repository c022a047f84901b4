import { expectMutantsCaught } from "./expectMutantsCaught.ts";
import { runMutants } from "./runMutants.ts";

// A separate file, so that these mutants are tried in parallel with the others.
expectMutantsCaught(Object.entries(runMutants), { runs: 0.6, quick: 3 });
