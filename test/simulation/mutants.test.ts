import { expectCaught } from "./caught.ts";
import { mutants } from "./mutants.ts";
import { runMutants } from "./runMutants.ts";

expectCaught(
  Object.entries(mutants).filter(([name]) => !(name in runMutants)),
  { runs: 0.05, quick: 10 },
);
