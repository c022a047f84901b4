/** The pages of a database file: all of them, and those that hold nothing. */
export type FilePages = { pages: number; free: number };

/** A smaller file keeps all its free pages. */
const minKept = 1_024;
/** The part of a file that stays free for new rows: a page given back and taken again costs two writes. */
const keptPart = 1 / 8;
/** The maximum number of pages of one step, so that a step delays others by a few milliseconds. */
const pagesPerStep = 64;

/**
 * Returns how many free pages of a database file the next step gives back to the disk, or 0. `keepsNone`: the
 * disk has little room, so all free pages go back.
 */
export function countPagesToGiveBack({ pages, free }: FilePages, keepsNone: boolean): number {
  const kept = keepsNone ? 0 : Math.max(minKept, Math.ceil(pages * keptPart));
  return Math.max(0, Math.min(free - kept, pagesPerStep));
}
