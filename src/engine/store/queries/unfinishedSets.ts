import type { GateKind } from "../../core/admission/gate.ts";
import { listGateBounds, parseGate } from "../../core/admission/gate.ts";
import type { MessageId, Millis } from "../../core/values/basics.ts";
import type { MessageState } from "../../core/model/messageState.ts";
import { listWantedHosts } from "../../core/search/filter.ts";
import type { ListedState, PausedGates, UnfinishedFilter } from "../../core/explain/listedState.ts";
import { lastIdTime } from "../../core/values/ids.ts";
import { listTaggedIds, pickTagLookup } from "./byTag.ts";
import type { ListQuery, StorageReads } from "../layout/storageReads.ts";
import { toKeys } from "../layout/storageReads.ts";

/**
 * The orders of unfinished messages: by creation, or by due time. The second omits messages that wait for no
 * time.
 */
export const unfinishedSorts = ["created", "due"] as const;

/** A request for a page of unfinished messages. */
export type UnfinishedQuery = Omit<ListQuery, "filter"> & {
  filter: UnfinishedFilter;
  sort: (typeof unfinishedSorts)[number];
};

/** A place in the list: the due time, or 0 if the list is sorted by creation, and the id. */
export type Position = { at: Millis; id: MessageId };
/** A search for unfinished messages. `position` is that of the last message of the previous page. */
export type Search = {
  storageReads: StorageReads;
  query: UnfinishedQuery;
  position: Position | null;
  paused: PausedGates;
};

/** The number of messages up to which a set is read as a whole and sorted. */
const maxSet = 1_000;
/** The messages in flight, of all accounts, up to which those of one account are looked for. */
const maxLeased = 10_000;
/** The number of paused queues and keys up to which each is looked up. */
const maxPausedLookups = 50;

/** Returns messages that may pass the filter, or null if there are `limit` or more. */
type SetReader = (search: Search, limit: number) => Promise<readonly MessageState[] | null>;

/**
 * Returns all messages that may pass the filter, each once and in no order, if an index says that they are
 * few. Returns null otherwise.
 */
export async function readSmallSet(search: Search): Promise<readonly MessageState[] | null> {
  const { filter } = search.query;
  if (filter.messageIds) return readNamed(search);
  if (filter.runs) return readOfRuns(search);
  for (const readers of listSets(filter, search)) {
    const found = await readUnion(search, readers);
    if (found) return found;
  }
  return null;
}

/** Returns the messages of all readers, each once, or null if they are too many. */
async function readUnion(search: Search, readers: readonly SetReader[]): Promise<MessageState[] | null> {
  const found = new Map<MessageId, MessageState>();
  for (const read of readers) {
    const limit = maxSet + 1 - found.size;
    const states = await read(search, limit);
    if (states === null || states.length >= limit) return null;
    for (const state of states) found.set(state.id, state);
  }
  return [...found.values()];
}

const readNamed = ({ storageReads, query: { account, filter } }: Search): Promise<readonly MessageState[]> =>
  storageReads.rows("messages", toKeys(account, filter.messageIds ?? []));

async function readOfRuns({ storageReads, query: { account, filter } }: Search): Promise<MessageState[]> {
  const runs = [...new Set(filter.runs)];
  return (await Promise.all(runs.map((run) => storageReads.runMessages(account, run)))).flat();
}

/**
 * Returns the sets of which each contains every message that passes the filter. A set is the union of its
 * readers. In the order of creation, tags and hosts lead to their messages without a set.
 */
function listSets(filter: UnfinishedFilter, { query: { sort } }: Search): SetReader[][] {
  const { gates, listedStates = ["pending"], minAttempts = 0, dueFrom, dueTo } = filter;
  const ofStates = listedStates.map((state) => readerOfState[state]);
  const wantsDue = dueFrom !== undefined || dueTo !== undefined;
  return [
    ...(gates ? [gates.map(readHeldAt)] : []),
    ...(ofStates.includes(readNone) ? [] : [ofStates]),
    ...(minAttempts > 0 ? [[readAttempted]] : []),
    ...(wantsDue ? [[readDueWithin]] : []),
    ...(sort === "due" ? [[readTagged], [readToHosts]] : []),
  ];
}

/** Reports whether a filter selects only messages of which an attempt has ended. */
export const wantsAttempts = ({ listedStates = ["pending"], minAttempts = 0 }: UnfinishedFilter): boolean =>
  minAttempts > 0 || (listedStates.length > 0 && listedStates.every((state) => state === "retrying"));

const readHeldAt =
  (kind: GateKind): SetReader =>
  ({ storageReads, query: { account } }, limit) => {
    const { after, before } = listGateBounds(kind);
    return storageReads.heldMessages({ account, from: after, to: before, limit });
  };

const readHeld: SetReader = ({ storageReads, query: { account } }, limit) =>
  storageReads.heldMessages({ account, from: "", to: "~", limit });

const readAttempted: SetReader = ({ storageReads, query: { account } }, limit) =>
  storageReads.attemptedMessages({ account, limit });

const readLeased: SetReader = ({ storageReads, query: { account } }) =>
  storageReads.leasedMessages({ account, scan: maxLeased });

/**
 * Returns the messages in the waitlists of paused queues and keys, and those that hold a slot of such a
 * queue.
 */
const readPausedSet: SetReader = async (search, limit) => {
  const { storageReads, query, paused } = search;
  if (paused.size > maxPausedLookups) return null;
  const found: MessageState[] = [];
  for (const gate of paused) {
    const rest = limit - found.length;
    if (rest <= 0) return null;
    found.push(
      ...(await storageReads.heldMessages({ account: query.account, from: gate, to: gate, limit: rest })),
      ...(await readSlotHolders(search, { gate, limit: rest })),
    );
  }
  return found;
};

async function readSlotHolders(
  { storageReads, query: { account } }: Search,
  { gate, limit }: { gate: string; limit: number },
): Promise<readonly MessageState[]> {
  const { kind, name } = parseGate(gate);
  if (kind !== "queue") return [];
  const slots = await storageReads.queueSlots({ account, queue: name, limit });
  return storageReads.rows(
    "messages",
    slots.map(({ id }) => [account, id] as const),
  );
}

const readNone: SetReader = async () => null;

/** The readers of all messages in a state. Most messages are pending, so they are not looked up. */
const readerOfState: Record<ListedState, SetReader> = {
  pending: readNone,
  retrying: readAttempted,
  delivering: readLeased,
  acknowledging: readLeased,
  held: readHeld,
  paused: readPausedSet,
};

const readDueWithin: SetReader = ({ storageReads, query: { account, filter } }, limit) =>
  storageReads.messagesByDue({ account, ...toDueBounds(filter), descending: false, limit });

/** Returns the positions between which the messages with the wanted due times are. */
export const toDueBounds = ({ dueFrom = 0, dueTo = lastIdTime }: UnfinishedFilter) => ({
  after: { dueAt: dueFrom, id: "" },
  before: { dueAt: Math.min(dueTo, lastIdTime), id: "~" },
});

const readTagged: SetReader = async ({ storageReads, query: { account, filter } }, limit) => {
  const range = { account };
  const lookup = await pickTagLookup(storageReads, { list: "unfinished", filter, range });
  if (!lookup) return null;
  const ids: MessageId[] = [];
  for await (const id of listTaggedIds(storageReads, lookup, range)) if (ids.push(id) >= limit) return null;
  return storageReads.rows("messages", toKeys(account, ids));
};

const readToHosts: SetReader = async ({ storageReads, query: { account, filter } }, limit) => {
  const hosts = listWantedHosts(filter);
  if (!hosts) return null;
  const found: MessageState[] = [];
  for (const host of hosts) {
    found.push(...(await storageReads.messagesToHost(host, { account, limit: limit - found.length })));
    if (found.length >= limit) return null;
  }
  return found;
};
