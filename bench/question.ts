import { common, type Given, type OptionTable } from "./options.ts";
import type { BenchResources } from "./benchResources.ts";

/** The result of a bench: the figures to keep, and the same as text. */
export type Finding = { figures: unknown; text: string };

/** A question, its options, and how its answer is measured. */
export type Question<T extends OptionTable = OptionTable> = {
  asks: string;
  options: T;
  find(given: Given<T>, resources: BenchResources): Promise<Finding>;
};

/** Returns a question with its own options and those of all benches. */
export function question<T extends OptionTable>(asked: {
  asks: string;
  options: T;
  find(given: Given<T & typeof common>, resources: BenchResources): Promise<Finding>;
}): Question<T & typeof common> {
  return { ...asked, options: { ...asked.options, ...common } };
}
