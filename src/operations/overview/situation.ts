import { readStart } from "../../engine/core/admission/lease.ts";
import type { StoredMessage, WithoutBody } from "../../engine/core/model/message.ts";
import type { MessageState } from "../../engine/core/model/messageState.ts";
import { isBeingSent } from "../../engine/core/model/messageState.ts";
import type { ListedState } from "../../engine/core/explain/listedState.ts";
import { readListedState } from "../../engine/core/explain/listedState.ts";
import { gateKinds, listGateBounds, parseGate } from "../../engine/core/admission/gate.ts";
import type { GateKind } from "../../engine/core/admission/gate.ts";
import type { HostAttempts, HostPoint } from "../../engine/core/accounts/hostStatistics.ts";
import {
  hostLogEntries,
  readAttemptHost,
  sumAttemptsByHost,
  sumHostPoints,
} from "../../engine/core/accounts/hostStatistics.ts";
import { sumDeadLetters, sumPoints, sumStoredBytes } from "../../engine/core/accounts/statistics.ts";
import type { Point } from "../../engine/core/accounts/statistics.ts";
import { bucketRangeFrom } from "../../engine/core/accounts/usage.ts";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import { firstIdAt, lastIdTime, readIdTime } from "../../engine/core/values/ids.ts";
import { minute } from "../../engine/core/values/time.ts";
import type { HeldCount, Range, StorageReads } from "../../engine/store/layout/storageReads.ts";

/** A number of rows. `more`: there are more than were counted. */
export type CountUpTo = { count: number; more: boolean };
/** The messages that a kind of gate holds. `oldestAt` is when the oldest of those counted was accepted. */
export type HeldAtGate = CountUpTo & { oldestAt: Millis | null; largest: readonly GateWithHeld[] };

/** A gate that holds messages. */
export type GateWithHeld = { name: string; isPaused: boolean; count: number };

/** The figures of an account. */
export type Situation = {
  /** The counts of the last minutes, the current one last. */
  minutes: readonly Point[];
  unfinished: CountUpTo;
  /** The unfinished messages by the state in which lists show them, without those that are being sent. */
  states: Readonly<Record<Exclude<ListedState, "delivering" | "acknowledging">, CountUpTo>>;
  held: Readonly<Record<GateKind, HeldAtGate>>;
  /** The earliest due time of a message that waits for one. It is in the past if the message is late. */
  nextDueAt: Millis | null;
  deadLetters: number;
  storedBytes: number;
  pausedGates: readonly string[];
  pausedSchedules: readonly string[];
  pausedSources: readonly string[];
  activeRuns: CountUpTo;
  failedRuns: CountUpTo;
  hosts: readonly HostAttempts[];
};

/** The deliveries of an account to one host. `attempts` is null if none ended lately. */
export type HostSituation = {
  host: string;
  /** Null if too many messages of all accounts are in flight. */
  inFlight: number | null;
  /** When the longest attempt in flight began, or null. */
  oldestStart: Millis | null;
  /** The messages that wait for delivery capacity for the host. */
  waiting: number;
  attempts: HostAttempts | null;
};

/** Rows are counted up to this number. */
export const maxSituationCount = 10_000;
/** Messages that wait for their due time are counted by state up to this number. */
export const maxStateCount = 1_000;
/** The minutes that an overview covers. */
export const situationMinutes = 15;
const maxListed = 1_000;
const maxLeased = 10_000;

/** Returns the situation of an account. Every read is bounded. */
export async function readSituation(
  storageReads: StorageReads,
  account: AccountId,
  now: Millis,
): Promise<Situation> {
  const limit = maxSituationCount + 1;
  const countRows = async (table: "messages" | "activeRuns"): Promise<CountUpTo> =>
    toCountUpTo(await storageReads.count(table, { account, limit }));
  const from = (Math.floor(now / minute) - situationMinutes + 1) * minute;
  const readUsage = (range: { after: string; before: string }) =>
    storageReads.range("usage", { account, ...range, limit: maxListed * 10 });
  const [recent, all, unfinished, waiting, due, pausedGates, pausedSchedules, sources, activeRuns, failed] =
    await Promise.all([
      readUsage(bucketRangeFrom("1m", from)),
      readUsage(bucketRangeFrom("3h", 0)),
      countRows("messages"),
      readHeld(storageReads, account),
      storageReads.messagesByDue({
        account,
        after: { dueAt: -1, id: "" },
        before: { dueAt: lastIdTime, id: "~" },
        descending: false,
        limit: maxStateCount + 1,
      }),
      storageReads.pausedLimiters({ account, limit: maxListed }),
      storageReads.pausedSchedules({ account, limit: maxListed }),
      storageReads.range("sources", { account, limit: maxListed }),
      countRows("activeRuns"),
      storageReads.countFailedRuns({ account, limit }),
    ]);
  return {
    minutes: sumPoints(recent, { from, step: minute, points: situationMinutes }),
    unfinished,
    states: countByState({ due, waiting, paused: new Set(pausedGates) }),
    held: sumByGate(waiting, new Set(pausedGates)),
    nextDueAt: due[0]?.dueAt ?? null,
    deadLetters: sumDeadLetters(all),
    storedBytes: sumStoredBytes(all),
    pausedGates,
    pausedSchedules,
    pausedSources: sources.flatMap(({ id, paused }) => (paused ? [id] : [])),
    activeRuns,
    failedRuns: toCountUpTo(failed),
    hosts: await readHostAttempts(storageReads, account),
  };
}

const toCountUpTo = (count: number): CountUpTo => ({
  count: Math.min(count, maxSituationCount),
  more: count > maxSituationCount,
});

/** The waitlists of an account with the number of messages in each, by the kind of their gate. */
type HeldByGate = readonly (readonly [GateKind, readonly HeldCount[]])[];

const readHeld = (storageReads: StorageReads, account: AccountId): Promise<HeldByGate> =>
  Promise.all(gateKinds.map(async (kind) => [kind, await countHeldAt(storageReads, account, kind)] as const));

const sumCounts = (groups: readonly { count: number }[]): number =>
  groups.reduce((sum, { count }) => sum + count, 0);

/** The gates of each kind that are named. */
export const maxNamedGates = 3;

const findLargest = (groups: readonly HeldCount[], paused: ReadonlySet<string>): GateWithHeld[] =>
  groups
    .toSorted((one, other) => other.count - one.count)
    .slice(0, maxNamedGates)
    .map(({ waitlist, count }) => ({
      name: parseGate(waitlist).name,
      count,
      isPaused: paused.has(waitlist),
    }));

const sumByGate = (held: HeldByGate, paused: ReadonlySet<string>): Record<GateKind, HeldAtGate> =>
  Object.fromEntries(
    held.map(([kind, groups]): [GateKind, HeldAtGate] => {
      const oldest = groups.map(({ oldestId }) => oldestId).sort()[0];
      const oldestAt = oldest === undefined ? null : readIdTime(oldest);
      const largest = findLargest(groups, paused);
      return [kind, { ...toCountUpTo(sumCounts(groups)), oldestAt, largest }];
    }),
  ) as Record<GateKind, HeldAtGate>;

type Waiting = {
  /** The first messages that wait for their due time, one more than are counted. */
  due: readonly MessageState[];
  waiting: HeldByGate;
  paused: ReadonlySet<string>;
};

/** Counts messages by the state in which lists show them. */
function countByState({ due, waiting, paused }: Waiting): Situation["states"] {
  const counted = due.slice(0, maxStateCount);
  const byState = Map.groupBy(counted, (state) => readListedState(state, paused));
  const more = due.length > maxStateCount;
  const countDue = (state: ListedState): CountUpTo => ({ count: byState.get(state)?.length ?? 0, more });
  const groups = waiting.flatMap(([, counts]) => counts);
  const sumHeld = (isPaused: boolean): CountUpTo =>
    toCountUpTo(sumCounts(groups.filter(({ waitlist }) => paused.has(waitlist) === isPaused)));
  const [pausedAtGate, pausedInSlot] = [sumHeld(true), countDue("paused")];
  return {
    pending: countDue("pending"),
    retrying: countDue("retrying"),
    held: sumHeld(false),
    paused: {
      count: pausedAtGate.count + pausedInSlot.count,
      more: pausedAtGate.more || (paused.size > 0 && pausedInSlot.more),
    },
  };
}

/** Returns how many messages of an account the gates hold. */
export async function countHeldMessages(storageReads: StorageReads, account: AccountId): Promise<CountUpTo> {
  const held = (await readHeld(storageReads, account)).map(([, groups]) => toCountUpTo(sumCounts(groups)));
  return { count: sumCounts(held), more: held.some(({ more }) => more) };
}

function countHeldAt(
  storageReads: StorageReads,
  account: AccountId,
  kind: GateKind,
): Promise<readonly HeldCount[]> {
  const { after, before } = listGateBounds(kind);
  return storageReads.countHeld({ account, from: after, to: before, limit: maxSituationCount + 1 });
}

async function readHostAttempts(storageReads: StorageReads, account: AccountId): Promise<HostAttempts[]> {
  const range: Range = { account, descending: true, limit: hostLogEntries, bodies: false };
  return sumAttemptsByHost(await storageReads.range("log", range));
}

/** Returns when the longest attempt of some messages in flight began, or null. */
function readOldestStart(states: readonly MessageState[]): Millis | null {
  const starts = states.flatMap((state) => readStart(state) ?? []);
  return starts.length === 0 ? null : Math.min(...starts);
}

/** The attempts in flight that a page of a host lists. */
const maxRunning = 100;
/** The newest log entries of the account among which those of a host are. */
const maxEntries = 5_000;
/** The minutes that the figures of a host cover. */
export const hostMinutes = 60;

/** An attempt in flight. Its stored message is missing if it has ended in the meantime. */
export type RunningToHost = { state: MessageState; message: WithoutBody<StoredMessage> | null };

/**
 * Everything about the deliveries to one host. `completeFrom`: the figures of earlier minutes lack attempts,
 * because the account has many.
 */
export type HostDetails = HostSituation & {
  at: Millis;
  minutes: readonly HostPoint[];
  completeFrom: Millis | null;
  running: readonly RunningToHost[];
};

/** Returns how deliveries to a host go. Every read is bounded. */
export async function readHost(
  storageReads: StorageReads,
  account: AccountId,
  { host, now }: { host: string; now: Millis },
): Promise<HostDetails> {
  const from = (Math.floor(now / minute) - hostMinutes + 1) * minute;
  const newest: Range = { account, descending: true, limit: maxEntries, bodies: false };
  const [log, running, waiting] = await Promise.all([
    storageReads.range("log", { ...newest, after: firstIdAt("log", from) }),
    readRunningTo(storageReads, account, host),
    countHeldAt(storageReads, account, "capacity"),
  ]);
  const rows = log.filter((row) => readAttemptHost(row) === host);
  const shown = (running ?? []).slice(0, maxRunning);
  const keys = shown.map(({ id }) => [account, id] as const);
  const messages = await storageReads.rows("storedMessages", keys, { bodies: false });
  const byId = new Map(messages.map((message) => [message.id, message]));
  const starts = (running ?? []).flatMap((state) => readStart(state) ?? []);
  return {
    ...{ host, at: now, inFlight: running?.length ?? null, oldestStart: readOldestStart(running ?? []) },
    waiting: waiting.find(({ waitlist }) => parseGate(waitlist).name === host)?.count ?? 0,
    attempts: sumAttemptsByHost(rows)[0] ?? null,
    minutes: sumHostPoints(rows, starts, { from, step: minute, points: hostMinutes }),
    completeFrom: log.length < maxEntries ? null : (log.at(-1)?.time ?? null),
    running: shown.map((state) => ({ state, message: byId.get(state.id) ?? null })),
  };
}

/** The messages in flight, of all accounts, up to which those to a host are looked for among them. */
const maxSearched = 100_000;

/**
 * Returns the messages that are being sent to a host, the longest attempt first. Null: there are too many to
 * search.
 */
export async function readRunningTo(
  storageReads: StorageReads,
  account: AccountId,
  host: string,
): Promise<MessageState[] | null> {
  const leased = await storageReads.leasedMessages({ account, scan: maxSearched });
  if (leased === null) return null;
  const running = leased.filter((state) => state.host === host && isBeingSent(state));
  return running.sort((a, b) => (readStart(a) ?? 0) - (readStart(b) ?? 0));
}

/**
 * Returns the hosts that the account has lately delivered to, delivers to, or waits for. The host with the
 * largest share of failures comes first.
 */
export async function readHosts(storageReads: StorageReads, account: AccountId): Promise<HostSituation[]> {
  const [attempts, leased, waiting] = await Promise.all([
    readHostAttempts(storageReads, account),
    storageReads.leasedMessages({ account, scan: maxLeased }),
    countHeldAt(storageReads, account, "capacity"),
  ]);
  const inFlight = leased && Map.groupBy(leased, ({ host }) => host);
  const waitingAt = new Map(waiting.map(({ waitlist, count }) => [parseGate(waitlist).name, count]));
  const byHost = new Map(attempts.map((one) => [one.host, one]));
  const names = new Set([...byHost.keys(), ...(inFlight?.keys() ?? []), ...waitingAt.keys()]);
  return [...names].map((host) => ({
    host,
    inFlight: inFlight ? (inFlight.get(host)?.length ?? 0) : null,
    oldestStart: readOldestStart(inFlight?.get(host) ?? []),
    waiting: waitingAt.get(host) ?? 0,
    attempts: byHost.get(host) ?? null,
  }));
}
