import { listAccountLimiterKeys } from "../../core/admission/accountLimits.ts";
import { waitlistHeadNeeds } from "../../core/admission/waitlist.ts";
import type { Decision, DueNeed, Key, WaitlistHead, Moment, Needs } from "../../core/decision/command.ts";
import { commands } from "../../core/commands/index.ts";
import type { Commands } from "../../core/commands/index.ts";
import { RetryInNextBatch, Refusal } from "../../core/values/errors.ts";
import { laneName } from "../../core/admission/capacity.ts";
import type { DeliveryCapacity } from "../../core/admission/capacity.ts";
import type { AccountId, Millis } from "../../core/model/message.ts";
import { WorkingSet } from "./workingSet.ts";
import type { Loader } from "./loader.ts";
import { RecentTimeIndex } from "./recentTimeIndex.ts";
import type { BatchResult, CommandCall, CommandReply, MomentSource } from "../store.ts";

/**
 * The maximum number of loading rounds. No decision needs more: each round loads the rows that the rows of
 * the round before lead to.
 */
const maxRounds = 12;

/** A call of a batch. `earlyReply`: the reply of a call that failed before its decision. */
type PendingCall = CommandCall & { decision: Decision<unknown, unknown>; earlyReply: CommandReply | null };

/**
 * `startTime` resolves once the transaction has begun. It resolves to the time of the transaction if nodes
 * must agree on it, and to null if the time comes from `momentSource`. Most rows of the first round are
 * requested earlier, together with the beginning of the transaction.
 */
type BatchContext = {
  loader: Loader;
  capacity: DeliveryCapacity;
  momentSource: MomentSource;
  startTime: Promise<Millis | null>;
  decisions?: Commands;
  recentTimeIndex?: RecentTimeIndex;
};

/**
 * Runs calls one after another on rows that are loaded together. The first round loads the rows that the
 * calls name. Each later round loads the rows that the loaded rows lead to. A call that is refused or fails
 * changes nothing. The caller writes the changes of the returned set.
 */
export async function decideBatch(
  calls: readonly CommandCall[],
  {
    loader,
    capacity,
    momentSource,
    startTime,
    decisions = commands,
    recentTimeIndex = new RecentTimeIndex(),
  }: BatchContext,
): Promise<{ set: WorkingSet; replies: CommandReply[]; now: Millis }> {
  // The table of commands is typed by name, but calls are plain data.
  const pending = calls.map((call): PendingCall => ({
    ...call,
    decision: decisions[call.name],
    earlyReply: null,
  }));
  const set = new WorkingSet(capacity, { isAlone: calls.length === 1, recentTimeIndex });
  const requested: RequestedKeys = { accounts: new Set(), endpoints: [] };
  const first = collectNeeds(pending, ({ decision, input }) => decision.needs(input));
  // Due rows cannot be loaded before the time is known.
  const loading = first.due ? null : set.load(loader, first, 0);
  // All statements must have completed when this function returns, even if the transaction could not begin. A
  // statement that is sent after the end of the transaction would run outside of it.
  await Promise.allSettled([startTime, loading]);
  const now = (await startTime) ?? momentSource.now();
  await (loading ?? set.load(loader, first, now));
  recordRequested(requested, first);
  const unfinished = pending.filter(({ decision }) => decision.further);
  for (let round = 1; unfinished.length > 0; round++) {
    const needs = withWaitlistHeads(
      set,
      collectNeeds(unfinished, ({ decision, input }) => decision.further?.(input, set) ?? {}),
    );
    recordRequested(requested, needs);
    const loaded = await set.load(loader, withAccountLimiters(set, needs, requested), now);
    if (!loaded) break;
    if (round === maxRounds) throw new Error(`a decision still had needs after ${maxRounds} rounds`);
  }
  const moment: Moment = {
    now,
    node: momentSource.node,
    isDiskLow: momentSource.isDiskLow?.() ?? false,
    newId: (kind) => momentSource.newId(kind, now),
    random: () => momentSource.random(),
  };
  return { set, replies: pending.map((call) => call.earlyReply ?? decideCall(call, set, moment)), now };
}

/**
 * Returns the merged needs of calls. If the needs of a call throw, the call gets its reply here and is not
 * decided.
 */
function collectNeeds(calls: readonly PendingCall[], readNeeds: (one: PendingCall) => Needs): Needs {
  const found: Needs[] = [];
  for (const call of calls) {
    if (call.earlyReply) continue;
    try {
      found.push(readNeeds(call));
    } catch (error) {
      call.earlyReply = toFailureReply(error);
    }
  }
  return mergeNeeds(found);
}

function decideCall({ decision, input }: PendingCall, set: WorkingSet, moment: Moment): CommandReply {
  try {
    return { answer: set.runCommand(() => decision.decide(input, set, moment)) };
  } catch (error) {
    return toFailureReply(error);
  }
}

function toFailureReply(error: unknown): CommandReply {
  if (error instanceof RetryInNextBatch) return { later: true };
  if (error instanceof Refusal) {
    const { code, message, remainingQuota } = error;
    return { refused: { code, message, ...(remainingQuota && { remainingQuota }) } };
  }
  return { failed: error instanceof Error ? (error.stack ?? error.message) : String(error) };
}

/** The accounts and endpoints whose rows were requested. */
type RequestedKeys = { accounts: Set<AccountId>; endpoints: (readonly Key[])[] };

function recordRequested({ accounts, endpoints }: RequestedKeys, needs: Needs): void {
  for (const [account] of needs.accounts ?? none) accounts.add(account);
  if (needs.endpoints?.length) endpoints.push(needs.endpoints);
}

function withAccountLimiters(set: WorkingSet, needs: Needs, { accounts, endpoints }: RequestedKeys): Needs {
  const limiters = listAccountLimiterKeys(set, accounts, endpoints);
  return limiters.length === 0 ? needs : mergeNeeds([needs, { limiters }]);
}

/**
 * Adds the needs of waitlist heads for all calls together, because a hundred outcomes of one key name the
 * same hundred messages of its waitlist.
 */
const withWaitlistHeads = (set: WorkingSet, needs: Needs): Needs =>
  needs.waitlistHeads?.length ? mergeNeeds([needs, waitlistHeadNeeds(set, needs.waitlistHeads)]) : needs;

/** Merges needs. If several calls read the same list, their limits are added up. */
function mergeNeeds(all: readonly Needs[]): Needs {
  if (all.length === 1 && all[0]) return all[0];
  const lists: Record<string, unknown[]> = {};
  const merged: { -readonly [K in keyof Needs]: Needs[K] } = {};
  for (const needs of all) {
    appendLists(lists, needs);
    if (needs.due) merged.due = merged.due ? addDueNeeds(merged.due, needs.due) : needs.due;
    if (needs.leasedByOthers) merged.leasedByOthers = needs.leasedByOthers;
  }
  Object.assign(merged, lists);
  const withoutBodies = all.flatMap((needs) => needs.withoutBodies ?? none);
  if (withoutBodies.length > 0) {
    merged.withoutBodies = {
      storedMessages: withoutBodies.flatMap(({ storedMessages }) => storedMessages ?? none),
      deadLetters: withoutBodies.flatMap(({ deadLetters }) => deadLetters ?? none),
      steps: withoutBodies.flatMap(({ steps }) => steps ?? none),
    };
  }
  // All outcomes of one host name the same waitlist.
  if (merged.toSendFromWaitlists)
    merged.toSendFromWaitlists = [
      ...new Map(
        merged.toSendFromWaitlists.map((waitlist) => [
          laneName(waitlist.account, waitlist.waitlist),
          waitlist,
        ]),
      ).values(),
    ];
  if (merged.waitlistHeads) merged.waitlistHeads = mergeHeads(merged.waitlistHeads);
  return merged;
}

/**
 * Appends the lists of a call's needs. Only the properties that exist are visited, because a call names few
 * of them and this function runs for every message.
 */
function appendLists(lists: Record<string, unknown[]>, needs: Needs): void {
  for (const name in needs) {
    const list: unknown = needs[name as keyof Needs];
    if (!Array.isArray(list) || list.length === 0) continue;
    const existing = lists[name];
    if (existing) for (const item of list) existing.push(item);
    else lists[name] = Array.from<unknown>(list);
  }
}

const addDueNeeds = (a: DueNeed, b: DueNeed): DueNeed => ({
  limit: a.limit + b.limit,
  hostWaitlists: a.hostWaitlists + b.hostWaitlists,
  limiters: a.limiters + b.limiters,
  schedules: a.schedules + b.schedules,
  waiters: a.waiters + b.waiters,
  turns: { ...a.turns, ...b.turns },
});

const none: readonly never[] = [];

function mergeHeads(all: readonly WaitlistHead[]): WaitlistHead[] {
  const heads = new Map<string, WaitlistHead>();
  for (const head of all) {
    const lane = laneName(head.account, head.waitlist);
    heads.set(lane, { ...head, limit: head.limit + (heads.get(lane)?.limit ?? 0) });
  }
  return [...heads.values()];
}

/**
 * Returns the result of a batch: its deliveries, the leases to abort, and the due time of the earliest row
 * that it left due.
 */
export function makeBatchResult(set: WorkingSet, replies: CommandReply[]): BatchResult {
  let dueAt: Millis | null = null;
  const noteDue = (at: Millis | null): void => {
    if (at !== null && (dueAt === null || at < dueAt)) dueAt = at;
  };
  for (const { now } of set.changes("messages")) if (now) noteDue(now.dueAt);
  for (const { now } of set.changes("hostWaitlists")) if (now) noteDue(now.dueAt);
  for (const { now } of set.changes("limiters")) if (now) noteDue(now.dueAt);
  for (const { now } of set.changes("schedules")) if (now) noteDue(now.dueAt);
  for (const { now } of set.changes("waiters")) if (now) noteDue(now.dueAt);
  const { deliveries, abortedLeases, faults } = set.effects;
  return { replies, deliveries, abortedLeases, dueAt, faults };
}
