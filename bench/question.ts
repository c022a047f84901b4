import { common, type Given, type OptionTable } from "./options.ts";
import type { BenchResources } from "./benchResources.ts";

/** What a bench found: the figures to keep, and the same as text. */
export type Finding = { figures: unknown; text: string };

/** One question, its options, and how the answer is found. */
export type Question<T extends OptionTable = OptionTable> = {
  asks: string;
  options: T;
  find(given: Given<T>, resources: BenchResources): Promise<Finding>;
};

/** A question whose options are its own and those that all have. */
export function question<T extends OptionTable>(asked: {
  asks: string;
  options: T;
  find(given: Given<T & typeof common>, resources: BenchResources): Promise<Finding>;
}): Question<T & typeof common> {
  return { ...asked, options: { ...asked.options, ...common } };
}
