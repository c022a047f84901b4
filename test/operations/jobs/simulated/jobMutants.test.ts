import { manyJobs } from "../../../simulation/simulation.ts";
import { expectMutantsCaught } from "../../../simulation/mutants/expectMutantsCaught.ts";
import { jobMutants } from "./jobMutants.ts";

expectMutantsCaught(Object.entries(jobMutants), { ...manyJobs, quick: 2 });
