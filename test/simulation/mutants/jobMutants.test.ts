import { manyJobs } from "../simulation.ts";
import { expectMutantsCaught } from "./expectMutantsCaught.ts";
import { jobMutants } from "./jobMutants.ts";

expectMutantsCaught(Object.entries(jobMutants), { ...manyJobs, quick: 2 });
