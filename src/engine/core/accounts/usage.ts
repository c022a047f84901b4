import type { Draft, Key } from "../decision/command.ts";
import type { ActivityName } from "../model/activity.ts";
import type { Counts, Usage } from "../model/counts.ts";
import { countNames, noCounts } from "../model/counts.ts";
import type { AccountId, Millis, NodeId } from "../values/basics.ts";
import type { LogState } from "../model/logRow.ts";
import { fingerprint } from "../values/fingerprint.ts";
import { day, hour, minute } from "../values/time.ts";

// The usage of an account is a set of counts. Decisions only say what to add, and never read the counts. Each
// transaction adds its counts to one row for each size of bucket. Each node has its own rows, so that nodes
// do not wait for each other. The usage of a period is the sum of its rows.

// Messages are counted as follows. Each publish, retry and callback is one message. In a
// workflow, each step is one message. The plan of a parallel step and the response of a third party are also
// one message each. A call to a third party therefore counts as two messages, and a parallel step counts as
// one message more than the same step alone.

const message: Partial<Counts> = { messages: 1 };
const workflowMessage: Partial<Counts> = { workflowMessages: 1 };
const workflowRun: Partial<Counts> = { workflowRuns: 1 };

/**
 * The counts of a log row by its last state. The first entry is for messages outside workflows, the second
 * for messages of a run.
 */
const countsByState: { readonly [S in LogState]?: readonly [Partial<Counts>, Partial<Counts>] } = {
  RETRY: [message, workflowMessage],
  DELIVERED: [{ delivered: 1 }, { workflowDelivered: 1 }],
  FAILED: [{ failed: 1 }, { workflowFailed: 1 }],
  CANCELLED: [{ cancelled: 1 }, { workflowCancelled: 1 }],
};

const endActivities: { readonly [S in LogState]?: ActivityName } = {
  DELIVERED: "finished delivered",
  FAILED: "finished failed",
  CANCELLED: "finished cancelled",
};

/** `run` is the run that waits for a message, if any. No run waits for a failure callback. */
type CountedMessage = { account: AccountId; run: string | null };

/** Counts a message that was accepted or created. */
export const countMessage = (draft: Draft, { account, run }: CountedMessage): void =>
  draft.count(account, run === null ? message : workflowMessage);

/** Counts the last state of a log row, and records the end of a message. */
export function countStates(
  draft: Draft,
  { account, run }: CountedMessage,
  states: readonly LogState[],
): void {
  const last = states.at(-1);
  const end = last && endActivities[last];
  if (end) draft.record(end);
  const counts = last && countsByState[last];
  if (counts) draft.count(account, counts[run === null ? 0 : 1]);
}

/** Counts a run that was started, resumed or restarted. */
export function countRun(draft: Draft, account: AccountId): void {
  draft.count(account, workflowRun);
  draft.record("run started");
}

/** Counts bytes of bodies. */
export function countBytes(
  draft: Draft,
  account: AccountId,
  counts: Pick<Counts, "bytesIn"> | Pick<Counts, "bytesOut">,
): void {
  const bytes = "bytesIn" in counts ? counts.bytesIn : counts.bytesOut;
  if (bytes > 0) draft.count(account, counts);
}

/** Counts dead letters that were added or, if `change` is negative, removed. */
export function countDeadLetters(draft: Draft, account: AccountId, change: number): void {
  if (change !== 0) draft.count(account, { deadLetters: change });
}

/**
 * The sizes of buckets: their length, how long they are kept, and how much longer they may stay before one
 * command removes many of them together. They are kept for the periods of statistics that use them. The
 * largest are kept for the whole month, because spending is added up from them.
 */
export const bucketSizes = {
  "1m": { span: minute, kept: 6 * hour, spare: 6 * hour },
  "12m": { span: 12 * minute, kept: 8 * day, spare: day },
  "3h": { span: 3 * hour, kept: 33 * day, spare: 3 * day },
} as const;

/** The name of a size of bucket. */
export type BucketSize = keyof typeof bucketSizes;

const sizeNames = ["1m", "12m", "3h"] as const satisfies BucketSize[];

const padded = (time: Millis): string => String(Math.max(0, time)).padStart(13, "0");

/** Returns the bounds of the ids of all buckets of a size from a time on, of all nodes. */
export const bucketRangeFrom = (size: BucketSize, from: Millis): { after: string; before: string } => ({
  after: `${size}/${padded(from)}`,
  before: `${size}0`,
});

/** Returns the start of the bucket of a size that contains a time. */
export const startOfBucket = (size: BucketSize, time: Millis): Millis =>
  Math.floor(time / bucketSizes[size].span) * bucketSizes[size].span;

/** Parses the id of a bucket. */
function parseBucketId(id: string): { size: BucketSize; startsAt: Millis } {
  const [size = "", time = ""] = id.split("/");
  return { size: size as BucketSize, startsAt: Number(time) };
}

/** Returns the start of a bucket. */
export const readBucketStart = ({ id }: Pick<Usage, "id">): Millis => parseBucketId(id).startsAt;

/**
 * Returns the rows to which a node adds its counts. Only the largest buckets have both balances (dead letters
 * and stored bytes). The smallest buckets also have stored bytes, to show whether an account has changed
 * within the last minutes.
 */
export const makeBuckets = (
  account: AccountId,
  counts: Counts,
  { now, node }: { now: Millis; node: NodeId },
): Usage[] =>
  sizeNames.flatMap((size) => {
    const id = `${size}/${padded(startOfBucket(size, now))}/${escapeNode(node)}`;
    const deadLetters = size === "3h" ? counts.deadLetters : 0;
    const storedBytes = size === "12m" ? 0 : counts.storedBytes;
    const row: Usage = { ...counts, deadLetters, storedBytes, account, id };
    return countNames.some((name) => row[name] !== 0) ? row : [];
  });

/** The number of rows among which the nodes share the accepted calls of a source. */
const sourceParts = 8;

/** Returns the keys of the rows that count the accepted calls of sources. */
export const listSourceCountKeys = (account: AccountId, sources: readonly string[]): Key[] =>
  sources.flatMap((source) =>
    Array.from({ length: sourceParts }, (_, part) => [account, `source/${source}/${part}`] as const),
  );

/** Returns the number of accepted calls of each source with such rows. */
export function sumSourceCalls(rows: readonly Usage[]): ReadonlyMap<string, number> {
  const sums = new Map<string, number>();
  for (const { id, messages } of rows) {
    const [, source = ""] = id.split("/");
    sums.set(source, (sums.get(source) ?? 0) + messages);
  }
  return sums;
}

/** Sorts before the ids of the rows that count the calls of sources, and after those of all buckets. */
export const firstSourceCountId = "source/";

/** Counts a call that a source accepted. */
export const countSourceCall = (draft: Draft, account: AccountId, source: string): void =>
  draft.count(account, message, source);

/**
 * Returns the row to which a node adds the calls of a source. Nodes get new ids when they start, so they
 * share a fixed number of rows.
 */
export const makeSourceCounts = (
  { account, source }: { account: AccountId; source: string },
  { messages }: Counts,
  node: NodeId,
): Usage => {
  const part = Number.parseInt(fingerprint(node), 36) % sourceParts;
  return { ...noCounts, messages, account, id: `source/${source}/${part}` };
};

/** A slash separates the parts of an id, so the name of a node must not contain one. */
const escapeNode = (node: NodeId): string => node.replaceAll("/", "_");

/** Returns the smallest id of a bucket of a size. The row of `carriedBalancesId` sorts before it. */
const firstBucketId = (size: BucketSize): string => `${size}/${padded(1)}`;

/** Returns the bounds of the ids of expired buckets, for each size. */
export const listExpiredBucketRanges = (now: Millis): { after: string; before: string }[] =>
  sizeNames.map((size) => ({
    after: firstBucketId(size),
    before: `${size}/${padded(now - bucketSizes[size].kept)}`,
  }));

/** Reports whether a bucket is past its retention. */
export function isExpiredBucket({ id }: Pick<Usage, "id">, now: Millis): boolean {
  const { size, startsAt } = parseBucketId(id);
  return startsAt < now - bucketSizes[size].kept;
}

/** The bounds of the ids of all buckets, for each size. */
export const bucketRanges = sizeNames.map((size) => ({ after: firstBucketId(size), before: `${size}0` }));
/** Returns when the oldest bucket of a size should be removed, with all other expired ones. */
export function worthRemovingAt({ id }: Pick<Usage, "id">): Millis {
  const { size, startsAt } = parseBucketId(id);
  return startsAt + bucketSizes[size].kept + bucketSizes[size].spare;
}

/**
 * The row that holds the balances of removed buckets. It sorts before all buckets, and only `expire` changes
 * it.
 */
export const carriedBalancesId = `3h/${padded(0)}/carried`;

/**
 * Removes expired buckets. The balances of the largest buckets are added to the row of `carriedBalancesId`.
 * If `keepsBalances` is false, as for a deleted account, this row is removed instead.
 */
export function removeBuckets(
  draft: Draft,
  account: AccountId,
  { buckets, keepsBalances }: { buckets: readonly Usage[]; keepsBalances: boolean },
): void {
  for (const { id } of buckets) draft.drop("usage", account, id);
  if (!keepsBalances) return draft.drop("usage", account, carriedBalancesId);
  const carried = {
    ...(draft.get("usage", account, carriedBalancesId) ?? { ...noCounts, account, id: carriedBalancesId }),
  };
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
