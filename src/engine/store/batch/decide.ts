import type { Decision, Hint, Moment } from "../../core/decision/command.ts";
import { commands } from "../catalog/commands.ts";
import type { Commands } from "../catalog/commands.ts";
import { Refusal } from "../../core/values/errors.ts";
import type { DeliveryCapacity } from "../../core/admission/capacity.ts";
import { createIdGenerator } from "../../core/values/ids.ts";
import type { ClientChoice } from "../../core/model/runPost.ts";
import type { IdKind, Millis } from "../../core/values/basics.ts";
import type { Loader } from "./loader.ts";
import { RecentTimeIndex } from "./recentTimeIndex.ts";
import { RetryInNextBatch } from "./ownList.ts";
import type { Own } from "./wantedReads.ts";
import { WorkingSet } from "./workingSet.ts";
import type { BatchResult, CommandCall, CommandReply, MomentSource } from "../store.ts";

/**
 * The maximum number of rounds of loading for one command. No decision needs nearly as many: each round loads
 * what the rows of the round before lead to.
 */
const maxRounds = 1_000;

/** A command, its decision, and what it draws from the source of ids and random numbers. */
type PendingCall = CommandCall & { decision: Decision<unknown, unknown>; moment: ReplayedMoment };

/**
 * The context of a batch. `startTime`: resolves to the time of the transaction when it has begun, or to null
 * if the time is that of `momentSource`. The rows of hints are requested together with the beginning.
 * `usesHints`: false if nothing is loaded before a decision asks for it, which tests use. `willLoad` is
 * called before bodies of messages to send are loaded, with their bytes.
 */
type BatchContext = {
  loader: Loader;
  capacity: DeliveryCapacity;
  momentSource: MomentSource;
  startTime: Promise<Millis | null>;
  decisions?: Commands;
  recentTimeIndex?: RecentTimeIndex;
  usesHints?: boolean;
  willLoad?(bytes: number): void;
};

/**
 * Runs commands one after another. A command that is refused or fails makes no changes. The caller writes the
 * changes of the returned set.
 *
 * If a command reads what is not loaded, it and the commands after it run to their ends, only to find out
 * what else they read. Everything that they did is then undone, everything that is missing is loaded
 * together, and they run again. Throws if a read fails, which is a failure of the batch and not of one
 * command.
 */
export async function decideBatch(
  calls: readonly CommandCall[],
  context: BatchContext,
): Promise<{ set: WorkingSet; replies: CommandReply[]; now: Millis }> {
  const { loader, capacity, momentSource, startTime, decisions = commands, usesHints = true } = context;
  const { recentTimeIndex = new RecentTimeIndex() } = context;
  const isAlone = calls.length === 1;
  const set = new WorkingSet(loader, capacity, { isAlone, usesHints, recentTimeIndex });
  const loading = set.loadHints(usesHints ? listHints(calls, decisions) : []);
  // All statements must have completed when this function returns, even if the transaction could not begin. A
  // statement that is sent after the end of the transaction would run outside of it.
  await Promise.allSettled([startTime, loading]);
  const now = (await startTime) ?? momentSource.now();
  await loading;
  if (set.isMissing()) await set.loadMissing(now);
  const isDiskLow = momentSource.isDiskLow?.() ?? false;
  const pending = calls.map((call): PendingCall => ({
    ...call,
    // The table of commands is typed by name, but calls are plain data.
    decision: decisions[call.name],
    moment: new ReplayedMoment(momentSource, { now, isDiskLow }, set.isMissing),
  }));
  const replies: CommandReply[] = [];
  for (let rounds = 0; ; rounds++) {
    const before = replies.length;
    runPending(set, pending, replies);
    const next = pending[replies.length];
    if (!next) break;
    if (replies.length > before) rounds = 0;
    if (rounds === maxRounds) throw new Error(`${next.name} still read missing rows after ${rounds} rounds`);
    context.willLoad?.(set.bodyBytesToLoad());
    await set.loadMissing(now);
  }
  return { set, replies, now };
}

/**
 * Runs the commands that have no reply yet, and adds the replies of those before which nothing was missing.
 */
function runPending(set: WorkingSet, pending: readonly PendingCall[], replies: CommandReply[]): void {
  for (let number = replies.length; number < pending.length; number++) {
    const { decision, input, moment } = pending[number] as PendingCall;
    moment.restart();
    const result = set.runCommand(number, () => decision.decide(input, set, moment));
    if (!set.isMissing()) replies.push("answer" in result ? result : toFailureReply(result.error));
  }
}

/** Returns the hints of all commands, except of those whose hint throws. */
function listHints(calls: readonly CommandCall[], decisions: Commands): Own<Hint>[] {
  const hints: Own<Hint>[] = [];
  for (const [command, { name, input }] of calls.entries()) {
    const { hint }: Decision<unknown, unknown> = decisions[name];
    try {
      if (hint) hints.push({ command, need: hint(input) });
    } catch {
      // The decision throws as well.
    }
  }
  return hints;
}

function toFailureReply(error: unknown): CommandReply {
  if (error instanceof RetryInNextBatch) return { later: true };
  if (error instanceof Refusal) {
    const { code, message, remedy, remainingQuota } = error;
    return {
      refused: { code, message, ...(remedy && { remedy }), ...(remainingQuota && { remainingQuota }) },
    };
  }
  return { failed: error instanceof Error ? (error.stack ?? error.message) : String(error) };
}

/**
 * The moment of one command, which may run several times. Each run gets the same ids and random numbers, so
 * that the result does not depend on what was loaded. Values that are drawn after something was missing are
 * not kept.
 */
class ReplayedMoment implements Moment {
  readonly now: Millis;
  readonly node: string;
  readonly isDiskLow: boolean;
  readonly maxBody: number | undefined;
  readonly skipsCallsOf: ClientChoice | undefined;
  readonly runsOn: boolean;
  readonly #source: MomentSource;
  readonly #isMissing: () => boolean;
  readonly #drawn: (number | { kind: IdKind; id: string })[] = [];
  #used = 0;

  constructor(
    source: MomentSource,
    { now, isDiskLow }: { now: Millis; isDiskLow: boolean },
    isMissing: () => boolean,
  ) {
    this.now = now;
    this.isDiskLow = isDiskLow;
    this.node = source.node;
    this.maxBody = source.maxBody;
    this.skipsCallsOf = source.skipsCallsOf;
    this.runsOn = source.runsOn?.() ?? true;
    this.#source = source;
    this.#isMissing = isMissing;
  }

  /** Begins another run. */
  restart(): void {
    this.#used = 0;
  }

  newId(kind: IdKind): string {
    const drawn = this.#drawn[this.#used];
    if (typeof drawn === "object" && drawn.kind === kind) {
      this.#used++;
      return drawn.id;
    }
    if (this.#isMissing()) return makeDiscardedId(kind, this.now);
    const id = this.#source.newId(kind, this.now);
    this.#record({ kind, id });
    return id;
  }

  random(): number {
    const drawn = this.#drawn[this.#used];
    if (typeof drawn === "number") {
      this.#used++;
      return drawn;
    }
    if (this.#isMissing()) return 0.5;
    const number = this.#source.random();
    this.#record(number);
    return number;
  }

  /**
   * Records what a run has drawn. If it has drawn something else than the run before, the rest is forgotten.
   */
  #record(drawn: number | { kind: IdKind; id: string }): void {
    this.#drawn.length = this.#used++;
    this.#drawn.push(drawn);
  }
}

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
  const { deliveries, abortedLeases, abortedElsewhere, settledLeases, faults, activities } = set.effects;
  const changedRows = set.listTouchedTables().reduce((sum, name) => sum + set.countChanges(name), 0);
  return {
    ...{ replies, deliveries, abortedLeases, settledLeases, dueAt, faults, activities, changedRows },
    ...(abortedElsewhere.length > 0 && { abortsElsewhere: true }),
  };
}
