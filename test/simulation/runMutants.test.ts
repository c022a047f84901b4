import { expectMutantsCaught } from "./expectMutantsCaught.ts";
import { runMutants } from "./runMutants.ts";

// A file of its own, so that they are tried beside the others.
expectMutantsCaught(Object.entries(runMutants), { runs: 0.6, quick: 3 });
