import { bulkActions } from "../../core/bulk/actions.ts";
import type { BulkEntry, BulkSelection } from "../../core/bulk/entries.ts";
import type { AccountId, MessageId } from "../../core/values/basics.ts";
import type { DeadLetterPage, DeadLetterQuery } from "./deadLetters.ts";
import type { RunPage, RunQuery } from "./runs.ts";
import type { UnfinishedQuery } from "./unfinishedSets.ts";

/** The queries by which the entries of bulk actions are listed. */
type ListReads = {
  runs(query: RunQuery): Promise<RunPage>;
  unfinished(
    query: Omit<UnfinishedQuery, "order" | "sort">,
  ): Promise<{ messageIds: readonly MessageId[]; cursor: string | null }>;
  deadLetters(query: DeadLetterQuery): Promise<DeadLetterPage>;
};

/** A page of the entries of a bulk action. `cursor` is null at the end. */
export type EntryPage = { entries: readonly BulkEntry[]; cursor: string | null };

/** Returns the entries of a bulk action that follow a cursor, at most `count`, in the order of the action. */
export async function readSelection(
  read: ListReads,
  { account, ...selection }: BulkSelection & { account: AccountId },
  { cursor, count }: { cursor: string | null; count: number },
): Promise<EntryPage> {
  const page = { account, cursor, count };
  if (selection.action === "runs.cancel") {
    const { runs, cursor: next } = await read.runs({ ...page, filter: selection.filter });
    return { entries: runs.map(({ id, runId }) => ({ id, runId })), cursor: next };
  }
  const { action, filter } = selection;
  if (action === "messages.cancel") {
    const { messageIds, cursor: next } = await read.unfinished({ ...page, filter });
    return { entries: messageIds.map((id) => ({ id })), cursor: next };
  }
  const found = await read.deadLetters({ ...page, filter, order: "earliestFirst", bodies: false });
  return { entries: found.entries.map(({ deadLetter: { id } }) => ({ id })), cursor: found.cursor };
}

/**
 * Yields all entries of a bulk action, at most `max`, in portions for one transaction each. A portion is read
 * when the one before was done.
 */
export async function* listPortions(
  read: ListReads,
  selection: BulkSelection & { account: AccountId },
  max = Infinity,
): AsyncGenerator<readonly BulkEntry[]> {
  const { together } = bulkActions[selection.action];
  let cursor: string | null = null;
  let found = 0;
  do {
    const page: EntryPage = await readSelection(read, selection, {
      cursor,
      count: Math.min(together, max - found),
    });
    if (page.entries.length > 0) yield page.entries;
    found += page.entries.length;
    ({ cursor } = page);
  } while (cursor !== null && found < max);
}
