import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import { readIdTime } from "../../engine/core/values/ids.ts";
import { isUnfinished } from "../../engine/core/model/messageState.ts";
import type { MessageState } from "../../engine/core/model/messageState.ts";
import type { DeadLetter } from "../../engine/core/model/deadLetter.ts";
import type { Run } from "../../engine/core/model/run.ts";
import { initialStepKey, toStepId } from "../../engine/core/model/stepId.ts";
import type { SearchedText } from "../../engine/core/search/textSearch.ts";
import {
  findText,
  listDeadLetterTexts,
  listMessageTexts,
  listRunTexts,
  maxSearchedBody,
} from "../../engine/core/search/textSearch.ts";
import type { Rows } from "../../engine/core/decision/command.ts";
import type { StorageReads } from "../../engine/store/layout/storageReads.ts";
import { countFittingPage, toKeys } from "../../engine/store/layout/storageReads.ts";
import type { FoundThing } from "./found.ts";

/** The lists that are searched, one after the other, each from its newest row on. */
export const searchedLists = ["messages", "deadLetters", "runs"] as const;
/** A list that is searched. */
export type SearchedList = (typeof searchedLists)[number];

/** Where a search continues: before the row with this id, or at the newest row of the list. */
export type SearchPosition = { list: SearchedList; before: string | null };

/** The text to search for. A slice ends with the row that is found as number `count`. */
export type Wanted = { account: AccountId; text: string; count: number };

/** A slice of a search. `next` is null after the last list. `skipped`: bodies that are too large. */
export type SearchedSlice = {
  found: FoundThing[];
  rows: number;
  skipped: number;
  reached: Millis | null;
  next: SearchPosition | null;
};

/** The maximum number of rows of a slice, and of bytes of their bodies, which are read at once. */
const sliceRows = 100;
const sliceBytes = maxSearchedBody;

/** Searches the next rows of a list for text, at least one. */
export async function searchSlice(
  reads: StorageReads,
  { position: { list, before }, ...wanted }: Wanted & { position: SearchPosition },
): Promise<SearchedSlice> {
  switch (list) {
    case "messages":
      return searchRows(reads, { ...wanted, list, before }, messageMatcher);
    case "deadLetters":
      return searchRows(reads, { ...wanted, list, before }, deadLetterMatcher);
    case "runs":
      return searchRows(reads, { ...wanted, list, before }, runMatcher);
  }
}

/** A body of a row, by its table and id. */
type BodyKey = readonly [table: "storedMessages" | "deadLetters" | "steps", id: string];
/** The rows that have the bodies of a slice. A body that is too large is empty. */
type Bodies = <T extends BodyKey[0]>(table: T, id: string) => Rows[T] | undefined;
type Match = { texts: Iterable<SearchedText> } & Omit<FoundThing, "part" | "excerpt">;
type Matcher<Row> = {
  /** Returns the bodies that the search of a row needs. */
  keys(row: Row): readonly BodyKey[];
  /** Returns what is searched of a row, or null if the row is found in another list. */
  match(row: Row, bodies: Bodies): Match | null;
};

const messageMatcher: Matcher<MessageState> = {
  // A finished message that still has a row is in the other lists, or nowhere.
  keys: (state) => (isUnfinished(state) ? [["storedMessages", state.id]] : []),
  match: ({ id }, bodies) => {
    const message = bodies("storedMessages", id);
    if (!message) return null;
    const { createdAt, url } = message;
    return { texts: listMessageTexts(message), kind: "message", id, at: createdAt, url };
  },
};

const deadLetterMatcher: Matcher<DeadLetter> = {
  // A dead letter of a run is found as its run.
  keys: ({ id, messageId, run }) =>
    run
      ? []
      : [
          ["deadLetters", id],
          ["storedMessages", messageId],
        ],
  match: ({ id, messageId }, bodies) => {
    const deadLetter = bodies("deadLetters", id);
    const message = bodies("storedMessages", messageId);
    if (!deadLetter || !message) return null;
    const texts = listDeadLetterTexts(deadLetter, message);
    return { texts, kind: "deadLetter", id, at: readIdTime(id), url: message.url };
  },
};

const readsPayload = ({ state }: Run): boolean => state === "RUN_STARTED" || state === "RUN_FAILED";
const toPayloadId = ({ id }: Run): string => toStepId(id, initialStepKey);
const runMatcher: Matcher<Run> = {
  keys: (run) => (readsPayload(run) ? [["steps", toPayloadId(run)]] : []),
  match: (run, bodies) => {
    const payload = bodies("steps", toPayloadId(run))?.body ?? null;
    const { runId, createdAt, url } = run;
    return { texts: listRunTexts(run, payload), kind: "run", id: runId, at: createdAt, url };
  },
};

type RowsToSearch<T> = Wanted & { list: T; before: string | null };

async function searchRows<T extends SearchedList>(
  reads: StorageReads,
  { account, text, count, list, before }: RowsToSearch<T>,
  { keys, match }: Matcher<Rows[T]>,
): Promise<SearchedSlice> {
  const rows: readonly Rows[T][] = await reads.range(list, {
    account,
    descending: true,
    limit: sliceRows,
    bodies: false,
    ...(before !== null && { before }),
  });
  const { bodies, fitting, countSkipped } = await loadBodies(reads, account, rows.map(keys));
  const found: FoundThing[] = [];
  let searched = 0;
  while (searched < fitting && found.length < count) {
    const row = rows[searched++];
    const { texts = [], ...thing } = (row && match(row, bodies)) ?? {};
    const place = findText(texts, text);
    if (place) found.push({ ...(thing as FoundThing), ...place });
  }
  const last = rows[searched - 1];
  const isDone = searched === rows.length && rows.length < sliceRows;
  return {
    found,
    rows: searched,
    skipped: countSkipped(searched),
    reached: last ? readIdTime(last.id) : null,
    next: isDone || !last ? nextList(list) : { list, before: last.id },
  };
}

function nextList(list: SearchedList): SearchPosition | null {
  const next = searchedLists[searchedLists.indexOf(list) + 1];
  return next === undefined ? null : { list: next, before: null };
}

/** Loads the bodies of the first rows, as many as fit into a slice. */
async function loadBodies(
  reads: StorageReads,
  account: AccountId,
  keysByRow: readonly (readonly BodyKey[])[],
): Promise<{ bodies: Bodies; fitting: number; countSkipped(rows: number): number }> {
  const tables = [...new Set(keysByRow.flat().map(([table]) => table))];
  const sizes = new Map<string, number>();
  for (const table of tables)
    for (const [id, size] of await reads.sizes(table, toKeys(account, idsOf(table, keysByRow.flat()))))
      sizes.set(`${table} ${id}`, size);
  const readSize = ([table, id]: BodyKey): number => sizes.get(`${table} ${id}`) ?? 0;
  const isSearched = (key: BodyKey): boolean => readSize(key) <= maxSearchedBody;
  const fitting = countFittingPage(
    keysByRow.map((keys) => keys.filter(isSearched).reduce((sum, key) => sum + readSize(key), 0)),
    sliceBytes,
  );
  const wanted = keysByRow.slice(0, fitting).flat();
  const loaded = new Map<string, Rows[BodyKey[0]]>();
  for (const table of tables) {
    const load = async (keys: readonly BodyKey[], options: { bodies?: false }): Promise<void> => {
      const rowKeys = toKeys(account, idsOf(table, keys));
      for (const row of await reads.rows(table, rowKeys, options)) loaded.set(`${table} ${row.id}`, row);
    };
    await load(wanted.filter(isSearched), {});
    await load(
      wanted.filter((key) => !isSearched(key)),
      { bodies: false },
    );
  }
  return {
    bodies: (table, id) => loaded.get(`${table} ${id}`) as Rows[typeof table] | undefined,
    fitting,
    countSkipped: (rows) =>
      keysByRow
        .slice(0, rows)
        .flat()
        .filter((key) => !isSearched(key)).length,
  };
}

const idsOf = (wanted: BodyKey[0], keys: readonly BodyKey[]): string[] =>
  keys.flatMap(([table, id]) => (table === wanted ? id : []));
