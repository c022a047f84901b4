import { z } from "zod";
import { choice } from "../http/parameters.ts";

/** The parameter of a bulk action with which it only tells what it would do. */
export const dryRunParameter = {
  dryRun: choice(["true", "false"]).optional().describe("With true nothing is done; the answer tells what would be."),
};

/** What a dry run answers. */
export const dryRunSchema = z.object({
  dryRun: z.literal(true),
  count: z.int().describe("How many the same request would have done something to."),
  sample: z.array(z.string()).describe("The ids of the first of them."),
  more: z.literal(true).optional().describe("There may be more than were counted."),
});

/** A part of what a filter finds, and where the next part begins. Null: it was the last one. */
export type IdPage = { ids: readonly string[]; cursor: string | null };

/** So many are counted. A part of a list may take as long as a page of it, so there is an end to parts, too. */
const maxCounted = 10_000;
const pageSize = 500;
const maxPages = 200;
const maxShown = 10;

/** Counts what a bulk action would do something to, page by page. `most`: the action itself would stop there. */
export async function dryRun(
  readPage: (cursor: string | null, count: number) => Promise<IdPage>,
  max = Infinity,
): Promise<z.output<typeof dryRunSchema>> {
  const sample: string[] = [];
  const end = Math.min(max, maxCounted);
  let count = 0;
  let cursor: string | null = null;
  for (let pages = 0; pages === 0 || (cursor !== null && count < end && pages < maxPages); pages++) {
    const page = await readPage(cursor, Math.min(pageSize, end - count));
    count += page.ids.length;
    sample.push(...page.ids.slice(0, maxShown - sample.length));
    cursor = page.cursor;
  }
  const isCut = cursor !== null && count < max;
  return { dryRun: true, count, sample, ...(isCut ? { more: true } : {}) };
}
