import type { CommandInput } from "../../../../src/engine/store/catalog/commands.ts";
import type { DeadLetter } from "../../../../src/engine/core/model/deadLetter.ts";
import type { BulkSelection } from "../../../../src/engine/core/bulk/entries.ts";
import type { Job } from "../../../../src/operations/jobs/job.ts";
import type { AccountId } from "../../../../src/engine/core/values/basics.ts";
import type { Run } from "../../../../src/engine/core/model/run.ts";
import type { CommandCall } from "../../../../src/engine/store/store.ts";
import type { Change, Tables } from "../../../simulation/storage/changes.ts";
import type { AssertHolds, ObservedBatch } from "../../../simulation/checkers/observedBatch.ts";
import type { HandledPortion, Portion } from "./jobEffects.ts";
import { listPortions } from "./jobEffects.ts";
import type { Histories } from "./jobEntries.ts";
import { findEntry, listEntries, matchesJob } from "./jobEntries.ts";
import type { Facts } from "./jobRecord.ts";
import { JobRecord } from "./jobRecord.ts";
import { checkRefused } from "./jobRefusals.ts";
import { checkJobState } from "./jobStates.ts";

type JobCheckContext = {
  assertHolds: AssertHolds;
  tables: Tables;
  now: number;
  /** Reports whether an account has spent its budget or its quota. Null: this has just changed. */
  isForbidden(account: string): boolean | null;
  cover: (what: string) => unknown;
};

type CheckedBatch = {
  node: string;
  portions: ReadonlyMap<CommandCall, HandledPortion>;
  context: JobCheckContext;
};

/**
 * Checks jobs: each handles every entry that existed when it began, once, and no other; its numbers and its
 * state say what happened; and it ends. It knows the entries from the rows, and not from the counters of the
 * job.
 */
export class JobChecker {
  readonly #records = new Map<string, JobRecord>();
  /** The entries of requested jobs, by the filter that their command will have. */
  readonly #asked = new WeakMap<object, ReadonlySet<string>>();
  readonly #deadLetters = new Map<string, DeadLetter>();
  readonly #runs = new Map<string, Run>();
  readonly #histories: Histories;
  #clockChanges = 0;

  constructor(histories: Histories) {
    this.#histories = histories;
  }

  /** Called when a node no longer knows the time of the store: its clock was set, or a response was late. */
  noteClockChange(): void {
    this.#clockChanges++;
  }

  /** Called when a client requests a job. */
  asked(account: AccountId, selection: BulkSelection, tables: Tables): void {
    this.#asked.set(selection.filter, listEntries(selection, account, this.#withSeen(tables)));
  }

  /** Reports whether a job has not ended. */
  areUnfinished({ jobs }: Tables): boolean {
    return [...jobs.values()].some(({ endedAt }) => endedAt === null);
  }

  check(observed: ObservedBatch, context: JobCheckContext): void {
    const { node, calls, result, changes } = observed;
    for (const { after } of changes.runs) if (after) this.#runs.set(after.id, after);
    for (const { after } of changes.deadLetters) if (after) this.#deadLetters.set(after.id, after);
    if (!calls.some(({ name }) => name.includes("Job")) && changes.jobs.length === 0) return;
    const portions = new Map(listPortions(observed, this.#histories).map((one) => [one.call, one] as const));
    calls.forEach((call, at) => {
      const reply = result.replies[at];
      const record = this.#records.get((call.input as { jobId?: string }).jobId ?? "");
      if (record && reply && "refused" in reply && call.name === "continueJob")
        checkRefused(record, { portion: call.input as Portion, refusal: reply.refused }, context);
      if (reply && "answer" in reply) this.#checkAnswer(call, reply.answer, { node, portions, context });
    });
    const [only, ...others] = calls;
    const [reply] = result.replies;
    if (only?.name === "continueJob" && others.length === 0 && reply && "answer" in reply && !reply.answer)
      context.assertHolds(
        Object.values(changes).every((list) => list.length === 0),
        `a portion that does not move its job changes nothing: ${(only.input as Portion).jobId}`,
      );
    for (const change of changes.jobs) this.#checkRow(change, observed, context);
  }

  /** Checks that each job has ended, when nothing else is left to do. */
  checkQuiet(assertHolds: AssertHolds): void {
    for (const { job, name } of this.#records.values())
      assertHolds(job.endedAt !== null, `every job ends: ${name} is ${job.state}`);
  }

  #checkAnswer(call: CommandCall, answer: unknown, { node, portions, context }: CheckedBatch): void {
    const { name, input } = call;
    const { assertHolds } = context;
    if (name === "createJob") this.#begin(input as CommandInput<"createJob">, answer as Job, context);
    const handled = portions.get(call);
    if (handled) this.#handle(handled, { ...context, node });
    if (name !== "stopJob") return;
    const stopped = answer as { job: Job; stopped: boolean } | null;
    const record = this.#records.get((input as CommandInput<"stopJob">).id);
    if (!record || !stopped?.stopped) return;
    assertHolds(!record.isStopped && record.job.endedAt === null, `a job is stopped once: ${record.name}`);
    record.isStopped = true;
    context.cover(record.handled.size > 0 ? "job stopped midway" : "job stopped");
  }

  #begin({ filter }: CommandInput<"createJob">, job: Job, { assertHolds }: JobCheckContext): void {
    const members = this.#asked.get(filter);
    assertHolds(members !== undefined, `a job has the filter of its request: ${job.id}`);
    assertHolds(!this.#records.has(job.id), `a job begins once: ${job.id}`);
    this.#records.set(job.id, new JobRecord(job, members ?? new Set()));
  }

  #handle({ portion, effects }: HandledPortion, context: JobCheckContext & { node: string }): void {
    const { assertHolds, tables, cover, node, now } = context;
    const record = this.#records.get(portion.jobId);
    assertHolds(record !== undefined, `a portion belongs to a job: ${portion.jobId}`);
    if (!record) return;
    const { job, name } = record;
    assertHolds(!record.isStopped, `a stopped job handles nothing: ${name}`);
    assertHolds(job.endedAt === null, `a job that has ended handles nothing: ${name}`);
    this.#checkCanary(record, effects.length, context);
    const keepsRate = record.keepsRate(effects.length, { node, now, changes: this.#clockChanges });
    assertHolds(keepsRate, `a job keeps its rate: ${name} has handled ${record.handled.size}`);
    for (const effect of effects) {
      const { id, outcome } = effect;
      assertHolds(!record.handled.has(id), `a job handles an entry once: ${id} of ${name}`);
      const entry = findEntry(job, id, this.#withSeen(tables).seen);
      const isOwn = entry?.account === job.account && matchesJob(job, entry);
      assertHolds(isOwn, `a job handles only entries that match: ${id} of ${name}`);
      assertHolds(
        (entry?.since ?? 0) <= job.createdAt,
        `a job handles no entry that came after it began: ${id} of ${name}`,
      );
      assertHolds(
        !portion.failures || record.refused.has(id),
        `an entry fails only after it was refused: ${id} of ${name}`,
      );
      const hasSuccessor = effect.became !== null || outcome !== "done" || !sends(job);
      assertHolds(hasSuccessor, `a dead letter becomes a message or a run: ${id} of ${name}`);
      record.handled.set(id, effect);
      cover(`${job.action} of a job ${outcome}`);
    }
  }

  /** Checks that the entries after a canary are handled only when it has succeeded. */
  #checkCanary(record: JobRecord, added: number, context: JobCheckContext): void {
    const { canary } = record.job;
    if (canary === null || added === 0) return;
    const { size } = record.handled;
    if (size < canary)
      return context.assertHolds(
        size + added <= canary,
        `a canary has its own number of entries: ${size + added} of ${canary} in ${record.name}`,
      );
    context.assertHolds(
      record.hasCanarySucceeded(this.#withSeen(context.tables)),
      `no entry is handled before the canary has succeeded: ${record.name}`,
    );
    context.cover("entries after a canary");
  }

  #checkRow({ before, after }: Change<"jobs">, { calls }: ObservedBatch, context: JobCheckContext): void {
    const { assertHolds, cover } = context;
    const id = (after ?? before)?.id ?? "";
    const record = this.#records.get(id);
    assertHolds(record !== undefined, `a job has a request: ${id}`);
    if (!record) return;
    if (!after) {
      const isRemoved = calls.some(({ name }) => name === "removeJobs");
      return assertHolds(
        isRemoved || (before?.endedAt !== null && calls.some(({ name }) => name === "createJob")),
        `only a job that has ended is replaced: ${record.name}`,
      );
    }
    assertHolds(before === undefined || before.endedAt === null, `a job ends once: ${record.name}`);
    if (before && before.node !== after.node && before.position !== "") cover("job taken over");
    record.job = after;
    checkJobState(record, before, { ...context, facts: this.#withSeen(context.tables) });
  }

  #withSeen(tables: Tables): Facts {
    const seen = { histories: this.#histories, deadLetters: this.#deadLetters, runs: this.#runs };
    return { tables, seen };
  }
}

const sends = ({ action }: Job): boolean =>
  action === "dlq.retry" || action === "runs.resume" || action === "runs.restart";
