import type { Draft } from "../decision/command.ts";
import type { Counts, Usage } from "../model/counts.ts";
import { countNames, noCounts } from "../model/counts.ts";
import type { AccountId, LogState, Millis, NodeId } from "../model/message.ts";
import { day, hour, minute } from "../values/time.ts";

// What an account has used, in numbers that are only ever added up. Decisions say what is to be added; nobody reads the
// numbers to do so. Each transaction adds what it counted to one row of each size of bucket, and each node has rows of its
// own, so that no node waits for another one. What was used in a time is the sum of the rows of that time.

// What counts as what (protocol 8): each publish, retry and callback is one message. Of a workflow each step is one message,
// and so are the plan of a branch and the answer of a third party, which makes a call two, and a branch one more.

const message: Partial<Counts> = { messages: 1 };
const workflowMessage: Partial<Counts> = { workflowMessages: 1 };
const workflowRun: Partial<Counts> = { workflowRuns: 1 };

/** For lines of the log by their last state, outside workflows and of a run. */
const countsByState: { readonly [S in LogState]?: readonly [Partial<Counts>, Partial<Counts>] } = {
  RETRY: [message, workflowMessage],
  DELIVERED: [{ delivered: 1 }, { workflowDelivered: 1 }],
  FAILED: [{ failed: 1 }, { workflowFailed: 1 }],
  CANCELLED: [{ cancelled: 1 }, { workflowCancelled: 1 }],
};

/** `run`: the run that waits for a message, if any. A failure callback is sent when nobody waits any more. */
type CountedMessage = { account: AccountId; run: string | null };

/** Counts a message that was taken in or made. */
export const countMessage = (draft: Draft, { account, run }: CountedMessage): void =>
  draft.count(account, run === null ? message : workflowMessage);

/** Counts what a line of the log says. */
export function countStates(draft: Draft, { account, run }: CountedMessage, states: readonly LogState[]): void {
  const last = states.at(-1);
  const counts = last && countsByState[last];
  if (counts) draft.count(account, counts[run === null ? 0 : 1]);
}

export const countRun = (draft: Draft, account: AccountId): void => draft.count(account, workflowRun);

/** Counts bytes of bodies. */
export function countBytes(draft: Draft, account: AccountId, name: "bytesIn" | "bytesOut", bytes: number): void {
  if (bytes > 0) draft.count(account, name === "bytesIn" ? { bytesIn: bytes } : { bytesOut: bytes });
}

/** Counts dead letters that come, or go where it is negative. */
export function countDeadLetters(draft: Draft, account: AccountId, change: number): void {
  if (change !== 0) draft.count(account, { deadLetters: change });
}

/**
 * The sizes of buckets: how long one is, how long it is kept, and how much longer it may stay until there are enough of them
 * to be worth the way. They are kept for as long as the periods of statistics that are made of them, and for the whole month.
 */
export const bucketSizes = {
  "1m": { span: minute, kept: 6 * hour, spare: 6 * hour },
  "12m": { span: 12 * minute, kept: 8 * day, spare: day },
  "3h": { span: 3 * hour, kept: 33 * day, spare: 3 * day },
} as const;

export type BucketSize = keyof typeof bucketSizes;

const sizeNames = ["1m", "12m", "3h"] as const satisfies BucketSize[];

const padded = (time: Millis): string => String(Math.max(0, time)).padStart(13, "0");

/** All that is in a size from a time on, of all nodes: ids between these two. */
export const bucketRangeFrom = (size: BucketSize, from: Millis): { after: string; before: string } => ({
  after: `${size}/${padded(from)}`,
  before: `${size}0`,
});

/** When the bucket of a size begins that a time is in. */
export const startOfBucket = (size: BucketSize, time: Millis): Millis => Math.floor(time / bucketSizes[size].span) * bucketSizes[size].span;

/** Returns what the id of a bucket says. */
function parseBucketId(id: string): { size: BucketSize; startsAt: Millis } {
  const [size = "", time = ""] = id.split("/");
  return { size: size as BucketSize, startsAt: Number(time) };
}

/** When a bucket begins. */
export const readBucketStart = ({ id }: Pick<Usage, "id">): Millis => parseBucketId(id).startsAt;

/**
 * Returns the rows that a node adds its counts to. The largest buckets alone hold the balances. Stored bytes are also in the smallest ones,
 * which tell whether an account has changed within the last minutes.
 */
export const makeBuckets = (account: AccountId, counts: Counts, { now, node }: { now: Millis; node: NodeId }): Usage[] =>
  sizeNames.flatMap((size) => {
    const id = `${size}/${padded(startOfBucket(size, now))}/${escapeNode(node)}`;
    const deadLetters = size === "3h" ? counts.deadLetters : 0;
    const storedBytes = size === "12m" ? 0 : counts.storedBytes;
    const row: Usage = { ...counts, deadLetters, storedBytes, account, id };
    return countNames.some((name) => row[name] !== 0) ? row : [];
  });

/** A slash in it would look like the end of the time. */
const escapeNode = (node: NodeId): string => node.replaceAll("/", "_");

/** Within a size, whatever is a bucket: the first one is not. */
const firstBucketId = (size: BucketSize): string => `${size}/${padded(1)}`;

/** Buckets that are past their time: for each size the ids between these two. */
export const listExpiredBucketRanges = (now: Millis): { after: string; before: string }[] =>
  sizeNames.map((size) => ({ after: firstBucketId(size), before: `${size}/${padded(now - bucketSizes[size].kept)}` }));

export function isExpiredBucket({ id }: Pick<Usage, "id">, now: Millis): boolean {
  const { size, startsAt } = parseBucketId(id);
  return startsAt < now - bucketSizes[size].kept;
}

/** Where the oldest bucket of each size is found, and when it is worth the way to remove it. */
export const bucketRanges = sizeNames.map((size) => ({ after: firstBucketId(size), before: `${size}0` }));
export function worthRemovingAt({ id }: Pick<Usage, "id">): Millis {
  const { size, startsAt } = parseBucketId(id);
  return startsAt + bucketSizes[size].kept + bucketSizes[size].spare;
}

/** Holds the balances of buckets that are gone. It stands before all buckets, and only `expire` changes it. */
export const carriedBalancesId = `3h/${padded(0)}/carried`;

/**
 * Removes buckets that are past their time. The balances of the largest ones are kept, but not those of a deleted account: its row would
 * stay for them. The caller has asked for the row of `carriedBalancesId`.
 */
export function removeBuckets(draft: Draft, account: AccountId, buckets: readonly Usage[], options: { keepsBalances: boolean }): void {
  for (const { id } of buckets) draft.drop("usage", account, id);
  if (!options.keepsBalances) return draft.drop("usage", account, carriedBalancesId);
  const carried = { ...(draft.get("usage", account, carriedBalancesId) ?? { ...noCounts, account, id: carriedBalancesId }) };
  const before = formatBalances(carried);
  for (const bucket of buckets) {
    if (parseBucketId(bucket.id).size !== "3h") continue;
    carried.deadLetters += bucket.deadLetters;
    carried.storedBytes += bucket.storedBytes;
  }
  if (formatBalances(carried) === before) return;
  if (carried.deadLetters === 0 && carried.storedBytes === 0) draft.drop("usage", account, carriedBalancesId);
  else draft.put("usage", carried);
}

const formatBalances = ({ deadLetters, storedBytes }: Usage): string => `${deadLetters} ${storedBytes}`;
