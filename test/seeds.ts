import { randomInt } from "node:crypto";
import * as fc from "fast-check";

/** Whether this run decides about one commit. */
const isDeciding = process.env["CI"] !== undefined;
const fixedSeed = 20_261_126;

if (isDeciding) fc.configureGlobal({ seed: fixedSeed });

/**
 * Returns a seed for random tests. Each run has another seed, so that many runs find what one run misses. In
 * CI, the seed is always the same, so that a commit is not refused for a fault that it did not cause.
 */
export const chooseSeed = (): number => (isDeciding ? fixedSeed : randomInt(1e9));

/** fast-check, with a fixed seed in CI. */
export { fc };
