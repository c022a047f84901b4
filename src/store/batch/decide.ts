import type { Decision, Hint, Moment } from "../../core/decision/command.ts";
import { commands } from "../../core/commands/index.ts";
import type { Commands } from "../../core/commands/index.ts";
import { RetryInNextBatch, Refusal } from "../../core/values/errors.ts";
import type { DeliveryCapacity } from "../../core/admission/capacity.ts";
import { createIdGenerator } from "../../core/values/ids.ts";
import type { IdKind, Millis } from "../../core/model/message.ts";
import { RowsMissing, WorkingSet } from "./workingSet.ts";
import type { Loader } from "./loader.ts";
import { RecentTimeIndex } from "./recentTimeIndex.ts";
import type { BatchResult, CommandCall, CommandReply, MomentSource } from "../store.ts";

/**
 * A command runs at most this often. Each time, it reads further, because what it read the time before is
 * loaded.
 */
const maxRuns = 50;

/** A command and its decision. */
type PendingCall = CommandCall & { decision: Decision<unknown, unknown> };

/**
 * The context of a batch. `startTime`: resolves to the time of the transaction when it has begun, or to null
 * if the time is that of `momentSource`. The rows of hints are requested together with the beginning.
 * `usesHints`: false if nothing is loaded before a decision asks for it, which tests use.
 */
type BatchContext = {
  loader: Loader;
  capacity: DeliveryCapacity;
  momentSource: MomentSource;
  startTime: Promise<Millis | null>;
  decisions?: Commands;
  recentTimeIndex?: RecentTimeIndex;
  usesHints?: boolean;
};

/**
 * Runs commands one after another. A command that is refused or fails makes no changes. The caller writes the
 * changes of the returned set.
 *
 * If a command reads what is not loaded, it is stopped, and the commands after it run once for a trial, only
 * to find out what they read. Everything that is missing is then loaded together, and the command runs again.
 */
export async function decideBatch(
  calls: readonly CommandCall[],
  context: BatchContext,
): Promise<{ set: WorkingSet; replies: CommandReply[]; now: Millis }> {
  const { loader, capacity, momentSource, startTime, decisions = commands, usesHints = true } = context;
  const { recentTimeIndex = new RecentTimeIndex() } = context;
  // The table of commands is typed by name; here, inputs and answers are plain data.
  const pending = calls.map((call): PendingCall => ({ ...call, decision: decisions[call.name] }));
  const set = new WorkingSet(loader, capacity, { isAlone: calls.length === 1, recentTimeIndex });
  const hints = usesHints ? pending.flatMap(({ decision, input }) => readHint(decision, input)) : [];
  const loading = set.loadHints(hints);
  // Both have ended before an error is thrown, because a statement that was sent later would be part of
  // another transaction.
  await Promise.allSettled([startTime, loading]);
  const now = (await startTime) ?? momentSource.now();
  await loading;
  const replies: CommandReply[] = [];
  for (const [number, call] of pending.entries()) {
    const moment = new ReplayedMoment(momentSource, now, set.isMissing);
    let reply = decideCall(set, number, { call, moment });
    for (let runs = 1; reply === null; runs++) {
      if (runs === maxRuns) throw new Error(`${call.name} still read missing rows after ${maxRuns} runs`);
      for (const [later, { decision, input }] of pending.entries())
        if (later > number)
          set.tryCommand(later, () => decision.decide(input, set, makeTrialMoment(momentSource, now)));
      await set.loadMissing(now);
      moment.restart();
      reply = decideCall(set, number, { call, moment });
    }
    replies.push(reply);
  }
  return { set, replies, now };
}

/** Returns the hint of a decision. A hint that throws is left to the decision, which throws as well. */
function readHint({ hint }: Decision<unknown, unknown>, input: unknown): Hint[] {
  try {
    return hint ? [hint(input)] : [];
  } catch {
    return [];
  }
}

/** Runs a command. Returns null if it has read something that is not loaded. */
function decideCall(
  set: WorkingSet,
  number: number,
  { call: { decision, input }, moment }: { call: PendingCall; moment: Moment },
): CommandReply | null {
  try {
    return { answer: set.runCommand(number, () => decision.decide(input, set, moment)) };
  } catch (error) {
    return error instanceof RowsMissing ? null : toFailureReply(error);
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

/**
 * The moment of one command, which may run several times. Each run gets the same ids and random numbers, so
 * that the result does not depend on what was loaded. Everything that a run draws after it has missed a row
 * is discarded with the run.
 */
class ReplayedMoment implements Moment {
  readonly now: Millis;
  readonly node: string;
  readonly #source: MomentSource;
  readonly #isMissing: () => boolean;
  readonly #ids: string[] = [];
  readonly #numbers: number[] = [];
  #idsUsed = 0;
  #numbersUsed = 0;

  constructor(source: MomentSource, now: Millis, isMissing: () => boolean) {
    this.now = now;
    this.node = source.node;
    this.#source = source;
    this.#isMissing = isMissing;
  }

  /** Begins another run. */
  restart(): void {
    this.#idsUsed = 0;
    this.#numbersUsed = 0;
  }

  newId(kind: IdKind): string {
    const known = this.#ids[this.#idsUsed++];
    if (known !== undefined) return known;
    if (this.#isMissing()) return makeDiscardedId(kind, this.now);
    const id = this.#source.newId(kind, this.now);
    this.#ids.push(id);
    return id;
  }

  random(): number {
    const known = this.#numbers[this.#numbersUsed++];
    if (known !== undefined) return known;
    if (this.#isMissing()) return 0.5;
    const number = this.#source.random();
    this.#numbers.push(number);
    return number;
  }
}

/** Returns the moment of a command whose changes are discarded. */
const makeTrialMoment = ({ node }: MomentSource, now: Millis): Moment => ({
  now,
  node,
  newId: (kind) => makeDiscardedId(kind, now),
  random: () => 0.5,
});

/** Returns an id of a row that is never stored. */
const makeDiscardedId = createIdGenerator(() => 0);

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
