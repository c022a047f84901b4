import { expectMutantsCaught } from "./expectMutantsCaught.ts";
import { receiverMutants } from "./receiverMutants.ts";

expectMutantsCaught(Object.entries(receiverMutants), { runs: 0.05, quick: 2, receivers: true });
