import { expectMutantsCaught } from "./expectMutantsCaught.ts";
import { handMutants } from "./handMutants.ts";

expectMutantsCaught(Object.entries(handMutants), { runs: 0.05, quick: 3, byHand: true });
