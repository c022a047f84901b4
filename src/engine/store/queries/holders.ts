import type { FlowControlKey, Queue } from "../../core/admission/gate.ts";
import { formatGate, isAccountLimit, listGateBounds, readWaitlist } from "../../core/admission/gate.ts";
import type { AccountId, MessageId } from "../../core/values/basics.ts";
import type { MessageState } from "../../core/model/messageState.ts";
import type { StoredMessage } from "../../core/model/message.ts";
import type { Limiter } from "../../core/model/limiter.ts";
import { toTag } from "../../core/search/tags.ts";
import type { SlotHolders } from "../../core/explain/whyWaiting.ts";
import { readChunks } from "./pages.ts";
import type { StorageReads } from "../layout/storageReads.ts";
import { readMessages, scanLimit, toKeys } from "../layout/storageReads.ts";

/** A request for who holds the slots of a queue or key. `cursor`: the id after which the page starts. */
export type HoldersQuery = {
  account: AccountId;
  gate: Queue | FlowControlKey;
  cursor: MessageId | null;
  count: number;
};

/** A holder of a slot, and what is stored of the message or callback that holds it now. */
export type Holder = SlotHolders & { message: StoredMessage | null };

/** A page of holders, oldest first. `cursor` is null at the end. */
export type HoldersPage = { limiter: Limiter; holders: Holder[]; cursor: string | null };

type FoundHolders = { found: SlotHolders[]; cursor: string | null };

/** The messages in flight, of all accounts, up to which those of one key are looked for among them. */
const maxLeased = 10_000;
/** The messages in the waitlists of account limits up to which they are read as a whole. */
const maxReserved = 1_000;

/** Returns who holds the slots of a queue or key. Returns null if it does not exist. */
export async function readHolders(
  storageReads: StorageReads,
  query: HoldersQuery,
): Promise<HoldersPage | null> {
  const { account, gate } = query;
  const [limiter] = await storageReads.rows("limiters", [[account, formatGate(gate)]]);
  if (!limiter) return null;
  const { found, cursor } = await (gate.kind === "queue" ? findOfQueue : findOfKey)(storageReads, query);
  const messages = await readMessages(
    storageReads,
    account,
    found.flatMap(({ holders }) => holders.map(({ id }) => id)),
  );
  const holders = found.map(({ messageId, holders: states }) => ({
    messageId,
    holders: states,
    message: messages.get(states[0]?.id ?? "") ?? null,
  }));
  return { limiter, holders, cursor };
}

/** A slot is held by its message, or by one of its callbacks after the message has finished. */
async function findOfQueue(storageReads: StorageReads, query: HoldersQuery): Promise<FoundHolders> {
  const { account, gate, cursor, count } = query;
  const after = cursor ?? "";
  const slots = await storageReads.queueSlots({ account, queue: gate.name, after, limit: count + 1 });
  const page = slots.slice(0, count).map(({ id }) => id);
  const states = await storageReads.rows("messages", toKeys(account, page));
  const own = new Map(states.map((state) => [state.id, state]));
  const found = await Promise.all(
    page.map(async (messageId): Promise<SlotHolders> => {
      const state = own.get(messageId);
      const holders = state ? [state] : await storageReads.slotHolders(account, messageId, 1);
      return { messageId, holders };
    }),
  );
  // A slot without a holder became free between the reads.
  return {
    found: found.filter(({ holders }) => holders.length > 0),
    cursor: slots.length > count ? (page.at(-1) ?? null) : null,
  };
}

/** Reports whether a message is in flight with its key, or waits for the account and has a slot there. */
function holdsKey(state: MessageState, key: string): boolean {
  const waitlist = readWaitlist(state);
  const isReserved = waitlist !== null && isAccountLimit(waitlist);
  return state.flowControlKey === key && (state.leasedBy !== null || isReserved);
}

async function findOfKey(storageReads: StorageReads, query: HoldersQuery): Promise<FoundHolders> {
  const { account, gate, cursor, count } = query;
  const readReserved = (kind: "account" | "endpoint") => {
    const { after, before } = listGateBounds(kind);
    return storageReads.heldMessages({ account, from: after, to: before, limit: maxReserved });
  };
  const [leased, ...reserved] = await Promise.all([
    storageReads.leasedMessages({ account, scan: maxLeased }),
    readReserved("account"),
    readReserved("endpoint"),
  ]);
  if (leased === null || reserved.some(({ length }) => length === maxReserved))
    return scanKey(storageReads, query);
  const states = [leased, ...reserved]
    .flat()
    .filter((state) => holdsKey(state, gate.name) && state.id > (cursor ?? ""))
    .sort((a, b) => (a.id < b.id ? -1 : 1));
  return toFound(states, { count, hasMore: states.length > count });
}

/** Searches the messages of a key in the order of acceptance. At most `scanLimit` are read for one page. */
async function scanKey(
  storageReads: StorageReads,
  { account, gate, cursor, count }: HoldersQuery,
): Promise<FoundHolders> {
  const range = { account, ...(cursor === null ? {} : { after: cursor }) };
  const tagLookup = { list: "unfinished" as const, tags: [toTag.key(gate.name)] };
  const holding: MessageState[] = [];
  let scanned = 0;
  for await (const states of readChunks(storageReads, "messages", {
    range,
    tagLookup,
    pageRows: count + 1,
  })) {
    holding.push(...states.filter((state) => holdsKey(state, gate.name)));
    scanned += states.length;
    const last = states.at(-1);
    if (holding.length > count) return toFound(holding, { count, hasMore: true });
    if (scanned >= scanLimit && last)
      return { ...toFound(holding, { count, hasMore: false }), cursor: last.id };
  }
  return toFound(holding, { count, hasMore: false });
}

function toFound(
  states: readonly MessageState[],
  { count, hasMore }: { count: number; hasMore: boolean },
): FoundHolders {
  const page = states.slice(0, count);
  return {
    found: page.map((state) => ({ messageId: state.id, holders: [state] })),
    cursor: hasMore ? (page.at(-1)?.id ?? null) : null,
  };
}
