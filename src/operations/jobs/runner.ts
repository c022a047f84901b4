import type { Clock } from "../../engine/clock/clock.ts";
import type { JobNote } from "./commands.ts";
import type { Job } from "./job.ts";
import { isInCanary, mayContinueJob, readKeptFilter, readWait } from "./job.ts";
import { bulkActions, selectsDeadLetters } from "../../engine/core/bulk/actions.ts";
import type { BulkEntry } from "../../engine/core/bulk/entries.ts";
import { entryRefusals, readEntryName } from "../../engine/core/bulk/entries.ts";
import type { Millis, NodeId } from "../../engine/core/values/basics.ts";
import { readIdTime } from "../../engine/core/values/ids.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import type { ErrorCode } from "../../engine/core/values/errors.ts";
import type { EntryPage } from "../../engine/store/queries/selection.ts";
import { readSelection } from "../../engine/store/queries/selection.ts";
import type { Store } from "../../engine/store/store.ts";
import { formatRefusal } from "../../api/http/remedies.ts";

/** A node looks for jobs of other nodes after this time. */
const pollInterval: Millis = 5_000;
/** After a failure of the storage, jobs continue after this time. */
const failurePause: Millis = 1_000;
/** A job that fails again and again waits twice as long each time, up to this time. */
const longestPause: Millis = 30_000;
/** A time that comes after those of all jobs. */
const anyTime: Millis = Number.MAX_SAFE_INTEGER;
/** The maximum number of jobs that one round continues. */
const maxJobsPerRound = 500;
/** The number of entries that are read ahead of the portions. No portion has more. */
const pageSize = 100;

/** Refusals that end by themselves, after which the same portion is tried again. */
const passingRefusals: ReadonlySet<ErrorCode> = new Set([
  "unavailable",
  "outcome-unknown",
  "busy",
  "stopping",
]);

const isLasting = (error: unknown): error is Refusal =>
  error instanceof Refusal && !passingRefusals.has(error.code);

/** Returns what a refusal means for a whole job. It ends the job, unless it ends when the disk has room. */
const toNote = (refusal: Refusal): JobNote =>
  refusal.code === "disk-low" ? { waitsForDisk: true } : { error: formatRefusal(refusal) };

type RunnerOptions = {
  store: Store;
  clock: Clock;
  node: NodeId;
  /** Other nodes may create jobs and may die, so jobs are looked for even if this node knows of none. */
  hasOtherNodes: boolean;
  logFailure: (message: string, error: unknown) => void;
};

/**
 * Continues jobs: one portion of each due job in turn. Several nodes may try the same portion. The position
 * of the job then moves once, and the other attempts change nothing.
 */
export class JobRunner {
  readonly #options: RunnerOptions;
  readonly #end = new AbortController();
  readonly #pages = new Map<string, EntryPage>();
  /** The jobs whose entries are being counted: the entries so far, and where the count continues. */
  readonly #counts = new Map<string, { total: number; cursor: string | null }>();
  /** The jobs whose last portion failed, how long they wait, and when they are tried again. */
  readonly #pauses = new Map<string, { time: Millis; until: Millis }>();
  /** Whether the last job that this round tried was refused. */
  #wasRefused = false;
  /** How far the clock of this node is ahead of the time of the store, as far as the rows have shown it. */
  #clockOffset: Millis = 0;
  #wakeSignal = new AbortController();
  #loop: Promise<void> = Promise.resolve();

  constructor(options: RunnerOptions) {
    this.#options = options;
    this.#end.signal.addEventListener("abort", () => this.wake());
  }

  start(): void {
    this.#loop = this.#run();
  }

  /** Looks for due jobs now. */
  wake(): void {
    this.#wakeSignal.abort();
  }

  /** Stops after the portion that is being done. */
  async stop(): Promise<void> {
    this.#end.abort();
    await this.#loop;
  }

  async #run(): Promise<void> {
    const { clock, logFailure } = this.#options;
    while (!this.#end.signal.aborted) {
      let next: Millis;
      this.#wakeSignal = new AbortController();
      try {
        next = await this.round();
      } catch (error) {
        logFailure("jobs could not continue; retrying in 1 s", error);
        next = clock.now() + failurePause;
      }
      if (!this.#end.signal.aborted) await clock.sleep(next, this.#wakeSignal.signal);
    }
  }

  /** Does the next portion of each due job. Returns the time of the next round by the clock of this node. */
  async round(): Promise<Millis> {
    const { store, clock, node, hasOtherNodes } = this.#options;
    const horizon = clock.now() + pollInterval;
    const jobs = await store.read.dueJobs(anyTime, maxJobsPerRound);
    // The time of the store has reached the last change of every row.
    for (const { movedAt, createdAt } of jobs)
      this.#clockOffset = Math.min(this.#clockOffset, clock.now() - (movedAt ?? createdAt));
    const known = new Set(jobs.map(({ id }) => id));
    for (const kept of [this.#pages, this.#counts, this.#pauses])
      for (const id of kept.keys()) if (!known.has(id)) kept.delete(id);
    let next = jobs.length > 0 || hasOtherNodes ? horizon : Infinity;
    this.#wasRefused = false;
    for (const job of jobs) {
      if (this.#end.signal.aborted) break;
      const isDue =
        this.#readPauseEnd(job) <= clock.now() && mayContinueJob(job, node, clock.now() - this.#clockOffset);
      const moved = isDue ? await this.#continueOrPause(job) : job;
      if (moved?.dueAt !== null && moved !== null && (isDue || job.node === node))
        next = Math.min(next, Math.max(moved.dueAt + this.#clockOffset, this.#readPauseEnd(job)));
    }
    return next;
  }

  /**
   * Like `continue`. After an error, this job waits and the next is tried. If the next is refused as well,
   * this concerns the storage as a whole, and the refusal is thrown.
   */
  async #continueOrPause(job: Job): Promise<Job | null> {
    try {
      const moved = await this.#continue(job);
      this.#pauses.delete(job.id);
      this.#wasRefused = false;
      return moved;
    } catch (error) {
      const time = this.#pause(job);
      const isRefusal = error instanceof Refusal;
      if (isRefusal && this.#wasRefused) throw error;
      this.#wasRefused = isRefusal;
      const { logFailure } = this.#options;
      logFailure(`continuing the job ${job.id} failed; it continues in ${time / 1_000} s`, error);
      return job;
    }
  }

  #readPauseEnd({ id }: Job): Millis {
    return this.#pauses.get(id)?.until ?? 0;
  }

  /** Lets a job wait after a failure, and longer after each. Returns for how long. */
  #pause({ id }: Job): Millis {
    const last = this.#pauses.get(id);
    const time = last ? Math.min(2 * last.time, longestPause) : failurePause;
    this.#pauses.set(id, { time, until: this.#options.clock.now() + time });
    return time;
  }

  /** Does the next portion of a job. Returns the job, or null if it has ended or another node moved it. */
  #continue(job: Job): Promise<Job | null> {
    if (readWait(job) === "canary") return this.#checkCanary(job);
    return job.total === null ? this.#count(job) : this.#doPortion(job);
  }

  #note({ account, id: jobId }: Job, note: JobNote): Promise<Job | null> {
    return this.#learnTime(() => this.#options.store.execute("noteJob", { account, jobId, note }));
  }

  /** Learns the time of the store from a change: the store read its clock between request and response. */
  async #learnTime(change: () => Promise<Job | null>): Promise<Job | null> {
    const { clock } = this.#options;
    const askedAt = clock.now();
    const moved = await change();
    const storeTime = moved?.movedAt ?? askedAt;
    const isEqual = askedAt <= storeTime && storeTime <= clock.now();
    // The store may have responded late: rather too late than too early for a rate.
    if (moved) this.#clockOffset = isEqual ? 0 : clock.now() - storeTime;
    return moved;
  }

  /** Counts the entries of a job before its first portion: one page in each round, so that others run. */
  async #count(job: Job): Promise<Job | null> {
    const { total, cursor } = this.#counts.get(job.id) ?? { total: 0, cursor: null };
    const page = await this.#readPage(job, cursor, 5 * pageSize);
    const count = { total: total + page.entries.length, cursor: page.cursor };
    this.#counts.set(job.id, count);
    return page.cursor === null ? this.#note(job, { total: count.total }) : job;
  }

  async #doPortion(job: Job): Promise<Job | null> {
    const page = await this.#nextPage(job);
    const entries = page.entries.slice(0, readPortionSize(job));
    const isEnd = page.cursor === null && entries.length === page.entries.length;
    if (entries.length === 0 && !isEnd) {
      this.#pages.set(job.id, page);
      return job;
    }
    // If another node moves the job, its page may differ, and these entries may be left.
    this.#pages.delete(job.id);
    try {
      const moved = await this.#execute(job, { entries, isEnd });
      if (moved) this.#pages.set(job.id, page);
      return moved;
    } catch (error) {
      if (!isLasting(error)) throw error;
      if (!entryRefusals.has(error.code)) return this.#note(job, toNote(error));
      return this.#doOneByOne(job, { entries, isEnd });
    }
  }

  /** Does the entries of a portion one by one, after the portion was refused. */
  async #doOneByOne(job: Job, { entries, isEnd }: Portion): Promise<Job | null> {
    let current = job;
    for (const [at, entry] of entries.entries()) {
      const one = { entries: [entry], isEnd: isEnd && at === entries.length - 1 };
      const moved = await this.#doOne(current, one, readEntryName(entry));
      if (moved?.state !== "running") return moved;
      current = moved;
    }
    return current;
  }

  /** Does one entry. If it is refused, records that it failed. */
  async #doOne(job: Job, portion: Portion, name: string): Promise<Job | null> {
    try {
      return await this.#execute(job, portion);
    } catch (error) {
      if (!isLasting(error)) throw error;
      if (!entryRefusals.has(error.code)) return this.#note(job, toNote(error));
      return this.#execute(job, { ...portion, failures: [{ id: name, reason: formatRefusal(error) }] });
    }
  }

  #execute(job: Job, portion: Portion): Promise<Job | null> {
    const { account, id: jobId, action, position, logRetention, change } = job;
    const own = { account, jobId, action, position, logRetention };
    const input = { ...own, ...(change && { change }), ...portion };
    return this.#learnTime(() => this.#options.store.execute("continueJob", input));
  }

  /**
   * Returns the entries that follow the position of a job. A page without entries has a cursor if others may
   * follow, and the next round continues there.
   */
  async #nextPage(job: Job): Promise<EntryPage> {
    const known = this.#pages.get(job.id);
    const left = known?.entries.filter(({ id }) => isLeft(job, id)) ?? [];
    if (known && (left.length > 0 || known.cursor === null)) return { ...known, entries: left };
    return this.#readPage(job, known?.cursor ?? (job.position === "" ? null : job.position), pageSize);
  }

  async #readPage(job: Job, cursor: string | null, count: number): Promise<EntryPage> {
    const { read } = this.#options.store;
    if (!selectsDeadLetters(job)) return keepLeft(job, await readSelection(read, job, { cursor, count }));
    const { account, action, filter } = readKeptFilter(job);
    const to = Math.min(filter.to ?? Infinity, readIdTime(job.last));
    const bounded = { account, action, filter: { ...filter, to } };
    return keepLeft(job, await readSelection(read, bounded, { cursor, count }));
  }

  async #checkCanary(job: Job): Promise<Job | null> {
    if (job.failed > 0) return this.#note(job, { error: formatCanaryError(job.failures[0]?.reason ?? "") });
    for (const result of job.results) {
      const state = await this.#readResult(job, result);
      if (state === "pending") return this.#note(job, { canary: "pending" });
      if (state !== "succeeded") return this.#note(job, { error: formatCanaryError(state) });
    }
    return this.#note(job, { canary: "succeeded" });
  }

  /** Returns the state of what an entry became. If it failed, returns the reason. */
  async #readResult(
    { account, action }: Job,
    { became, createdAt = 0 }: Job["results"][number],
  ): Promise<string> {
    const { read } = this.#options.store;
    if (action === "dlq.retry") {
      const view = await read.message(account, became);
      if (view?.state) return "pending";
      return view?.ended?.state === "delivered" ? "succeeded" : `message ${became} was not delivered`;
    }
    const filter = { runs: [{ runId: became, createdAt }] };
    const { runs } = await read.runs({ account, filter, cursor: null, count: 1 });
    const state = runs[0]?.state;
    if (state === "RUN_STARTED") return "pending";
    return state === "RUN_SUCCESS" ? "succeeded" : `run ${became} did not succeed`;
  }
}

type Portion = {
  entries: readonly BulkEntry[];
  isEnd: boolean;
  failures?: readonly { id: string; reason: string }[];
};

const formatCanaryError = (reason: string): string => `canary: ${reason}; the other entries were not handled`;

/** Returns the entries of a page that belong to a job. A list that is past the last entry ends there. */
function keepLeft(job: Job, { entries, cursor }: EntryPage): EntryPage {
  const left = entries.filter(({ id }) => isLeft(job, id));
  const isPast = !isNewestFirst(job) && entries.some(({ id }) => id > job.last);
  return { entries: left, cursor: isPast ? null : cursor };
}

/** Returns how many entries the next portion may have. */
function readPortionSize(job: Job): number {
  const { action, rate, canary, done, failed } = job;
  const size = Math.min(bulkActions[action].together, rate ?? Infinity);
  return isInCanary(job) ? Math.min(size, (canary ?? 0) - done - failed) : size;
}

/** Reports whether entries of a job are listed from the newest to the oldest. */
const isNewestFirst = ({ action }: Job): boolean => bulkActions[action].list === "runs";

/** Reports whether an entry belongs to a job and was not handled yet. */
function isLeft(job: Job, id: string): boolean {
  const { position, last } = job;
  if (id > last) return false;
  return position === "" || (isNewestFirst(job) ? id < position : id > position);
}
