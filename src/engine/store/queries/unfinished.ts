import type { AccountId, MessageId, Millis } from "../../core/values/basics.ts";
import type { MessageState } from "../../core/model/messageState.ts";
import type { StoredMessage } from "../../core/model/message.ts";
import { isUnfinished } from "../../core/model/messageState.ts";
import { listWantedHosts, matchesFilter } from "../../core/search/filter.ts";
import { createTimeKeyTest } from "../../core/search/timeIndex.ts";
import type { ListedState, PausedGates } from "../../core/explain/listedState.ts";
import { matchesState, readListedDueAt, readListedState } from "../../core/explain/listedState.ts";
import type { WaitState } from "../../core/explain/whyWaiting.ts";
import { Refusal } from "../../core/values/errors.ts";
import { pickTagLookup } from "./byTag.ts";
import { readChunks, readChunksToHosts, readGrowingChunks, toIdRange } from "./pages.ts";
import type { StorageReads } from "../layout/storageReads.ts";
import { rangePast, readMessages, scanLimit } from "../layout/storageReads.ts";
import type { Position, Search, UnfinishedQuery } from "./unfinishedSets.ts";
import { readSmallSet, toDueBounds, wantsAttempts } from "./unfinishedSets.ts";
import { readWaitStates } from "./waitState.ts";

type FoundMessage = { state: MessageState; message: StoredMessage };
/** An unfinished message of a list. `dueAt` is null if it does not wait for a time. */
export type UnfinishedEntry = FoundMessage & {
  listedState: ListedState;
  dueAt: Millis | null;
  waitState: WaitState;
};

/** The number of messages of a list. `more`: there are more than were counted. */
export type Total = { count: number; more: boolean };
/**
 * A page of unfinished messages. `cursor` is null at the end. `total` is null if counting would take long.
 */
export type UnfinishedPage = { entries: UnfinishedEntry[]; cursor: string | null; total: Total | null };

/** Messages are counted up to this number. */
const maxTotal = 10_000;
/** Paused queues and keys beyond this number are shown as not paused. */
const maxPaused = 10_000;

/** Returns a page of unfinished messages, with what each waits for. */
export async function listUnfinished(
  storageReads: StorageReads,
  query: UnfinishedQuery,
): Promise<UnfinishedPage> {
  const { account, filter, cursor } = query;
  const paused = await readPaused(storageReads, account);
  const found = await findUnfinished(storageReads, query, paused);
  const waitStates = await readWaitStates(storageReads, account, found.entries);
  const entries = found.entries.flatMap((entry) => {
    const waitState = waitStates.get(entry.state.id);
    if (!waitState) return [];
    const dueAt = readListedDueAt(entry.state, paused);
    return [{ ...entry, listedState: readListedState(entry.state, paused), dueAt, waitState }];
  });
  const isWhole = cursor === null && found.cursor === null;
  const total = found.total ?? (isWhole ? found.entries.length : null);
  if (total !== null) return { entries, cursor: found.cursor, total: { count: total, more: false } };
  if (query.sort !== "created" || Object.keys(filter).length > 0)
    return { entries, cursor: found.cursor, total: null };
  const count = await storageReads.count("messages", { account, limit: maxTotal + 1 });
  return {
    entries,
    cursor: found.cursor,
    total: { count: Math.min(count, maxTotal), more: count > maxTotal },
  };
}

const readPaused = async (storageReads: StorageReads, account: AccountId): Promise<PausedGates> =>
  new Set(await storageReads.pausedLimiters({ account, limit: maxPaused }));

type Found = { entries: FoundMessage[]; cursor: string | null; total: number | null };

/**
 * Returns unfinished messages that pass a filter. If an index says that few messages can pass, these are read
 * as a whole, so their number is known. Otherwise messages are read in the order of the list, at most
 * `scanLimit` in one call.
 */
export async function findUnfinished(
  storageReads: StorageReads,
  query: UnfinishedQuery,
  paused?: PausedGates,
): Promise<Found> {
  const search: Search = {
    storageReads,
    query,
    position: readPosition(query),
    paused: paused ?? (await readPaused(storageReads, query.account)),
  };
  const few = await readSmallSet(search);
  return few ? pageOfSet(search, few) : scan(search);
}

/** Returns a page of the messages that pass the filter, of those that were read. */
async function pageOfSet(search: Search, states: readonly MessageState[]): Promise<Found> {
  const { query, position } = search;
  const passing = await keepMatching(search, states);
  const order = query.order === "latestFirst" ? -1 : 1;
  const ordered = passing
    .flatMap((entry) => {
      const at = toPosition(query, entry.state);
      return at ? [{ entry, at }] : [];
    })
    .sort((a, b) => order * comparePositions(a.at, b.at));
  const rest = position ? ordered.filter(({ at }) => order * comparePositions(at, position) > 0) : ordered;
  const page = rest.slice(0, query.count);
  const last = page.at(-1);
  const cursor = rest.length > page.length && last ? formatPosition(query, last.at) : null;
  return { entries: page.map(({ entry }) => entry), cursor, total: ordered.length };
}

async function scan(search: Search): Promise<Found> {
  const { query } = search;
  const entries: FoundMessage[] = [];
  let last: MessageState | null = null;
  const cursor = (): string | null => {
    const at = last && toPosition(query, last);
    return at && formatPosition(query, at);
  };
  let scanned = 0;
  for await (const states of await openScan(search)) {
    const passing = new Map(
      (await keepMatching(search, states)).map((entry) => [entry.state.id, entry] as const),
    );
    for (const state of states) {
      // One more message than fits shows that there is another page.
      if (entries.length === query.count || scanned++ >= scanLimit)
        return { entries, cursor: cursor(), total: null };
      last = state;
      const entry = passing.get(state.id);
      if (entry) entries.push(entry);
    }
  }
  return { entries, cursor: null, total: null };
}

/** Returns the messages that pass the filter, in their order, with their stored messages. */
async function keepMatching(
  { storageReads, query: { account, filter, sort }, paused }: Search,
  states: readonly MessageState[],
): Promise<FoundMessage[]> {
  const mayMatch = createTimeKeyTest(filter);
  // The id says when a message was accepted, so messages of other times need not be read.
  const { after = "", before = "~" } = toIdRange("msg", filter, { cursor: null });
  const passing = states.filter(
    (state) =>
      isUnfinished(state) &&
      state.id > after &&
      state.id < before &&
      mayMatch(state.timeKeys) &&
      matchesState(filter, state, paused) &&
      (sort === "created" || readListedDueAt(state, paused) !== null),
  );
  if (passing.length === 0) return [];
  const messages = await readMessages(
    storageReads,
    account,
    passing.map(({ id }) => id),
  );
  return passing.flatMap((state) => {
    const message = messages.get(state.id);
    return message && matchesFilter(filter, { message, time: message.createdAt }) ? [{ state, message }] : [];
  });
}

/** Returns the messages of the list from the cursor on, chunk by chunk. */
async function openScan(search: Search): Promise<AsyncGenerator<readonly MessageState[]>> {
  const { storageReads, query, position } = search;
  const { account, filter, count } = query;
  if (query.sort === "due") return readChunksByDue(search);
  const descending = query.order === "latestFirst";
  const range = {
    account,
    descending,
    ...toIdRange("msg", filter, { cursor: position?.id ?? null, descending }),
  };
  const tagLookup = await pickTagLookup(storageReads, { list: "unfinished", filter, range });
  const hosts = tagLookup ? null : listWantedHosts(filter);
  if (hosts) return readChunksToHosts(storageReads, hosts, range);
  const pageRows = count + 1;
  if (!tagLookup && wantsAttempts(filter))
    return readGrowingChunks(pageRows, (limit, last: MessageState | null) =>
      storageReads.attemptedMessages({ ...range, ...(last && rangePast(last.id, range)), limit }),
    );
  return readChunks(storageReads, "messages", { range, tagLookup, pageRows });
}

function readChunksByDue({ storageReads, query, position }: Search): AsyncGenerator<readonly MessageState[]> {
  const { account, filter, order, count } = query;
  const descending = order === "latestFirst";
  let { after, before } = toDueBounds(filter);
  const continueAt = (at: { dueAt: Millis; id: MessageId }): void => {
    if (descending) before = at;
    else after = at;
  };
  if (position) continueAt({ dueAt: position.at, id: position.id });
  return readGrowingChunks(count + 1, (limit, last: MessageState | null) => {
    if (last && last.dueAt !== null) continueAt({ dueAt: last.dueAt, id: last.id });
    return storageReads.messagesByDue({ account, after, before, descending, limit });
  });
}

/** Returns the place of a message in the order of the list, or null if it has none. */
function toPosition({ sort }: UnfinishedQuery, { id, dueAt, leasedBy }: MessageState): Position | null {
  if (sort === "created") return { at: 0, id };
  return leasedBy !== null || dueAt === null ? null : { at: dueAt, id };
}

const comparePositions = (a: Position, b: Position): number =>
  a.at - b.at || (a.id === b.id ? 0 : a.id < b.id ? -1 : 1);

const formatPosition = ({ sort }: UnfinishedQuery, { at, id }: Position): string =>
  sort === "created" ? id : `${at}-${id}`;

/** Parses the cursor of a list. Throws `Refusal` for any text that is not a cursor of this order. */
function readPosition({ sort, cursor }: UnfinishedQuery): Position | null {
  if (cursor === null) return null;
  const [, at, id] =
    (sort === "created" ? /^()(msg_\w{1,64})$/ : /^(\d{1,15})-(msg_\w{1,64})$/).exec(cursor) ?? [];
  if (id === undefined) throw new Refusal("invalid", "cursor: unknown; use the cursor of the previous page");
  return { at: Number(at), id };
}
