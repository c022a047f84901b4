import { z } from "zod";
import { choice } from "../http/parameters.ts";

const maxCounted = 10_000;
const pageSize = 500;
/** The maximum number of pages that are read. A filter that finds little may read many rows for each page. */
const maxPages = 200;
const maxShown = 10;

/** The parameter of a bulk action that makes it a dry run. */
export const dryRunParameter = {
  dryRun: choice(["true", "false"])
    .optional()
    .describe("`true`: change nothing, and report what the request would change. Default: `false`."),
};

/** The response of a dry run. */
export const dryRunSchema = z.object({
  dryRun: z.literal(true).describe("Nothing was changed."),
  count: z
    .int()
    .describe(`Number of entries that the same request would change, counted up to ${maxCounted}.`),
  sample: z.array(z.string()).describe(`Ids of the first of these entries, at most ${maxShown}.`),
  more: z.literal(true).optional().describe("Present if there may be more entries than were counted."),
});

/** A page of the ids that a filter finds. `cursor`: the start of the next page; null on the last page. */
export type IdPage = { ids: readonly string[]; cursor: string | null };

/**
 * Counts the entries that a bulk action would change, page by page. `max`: the maximum number of entries that
 * the action changes.
 */
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

/** Returns the response of a dry run whose request would change one entry. */
export const dryRunOfOne = (id: string): z.output<typeof dryRunSchema> => ({
  dryRun: true,
  count: 1,
  sample: [id],
});
