import { expectMutantsCaught } from "./expectMutantsCaught.ts";
import { pullMutants } from "./pullMutants.ts";

expectMutantsCaught(Object.entries(pullMutants), { runs: 0.05, quick: 2, pulls: true });
