import type { DueRow } from "../core/commands/quarantine.ts";
import { toRowKey } from "../core/commands/quarantine.ts";
import type { Claimed } from "../core/commands/claim.ts";
import { Refusal } from "../core/values/errors.ts";
import type { AccountId, Millis } from "../core/model/message.ts";
import type { Turns } from "../core/fairness/turns.ts";
import type { Store } from "../store/store.ts";
import { minute, second } from "../core/values/time.ts";

/** How much one claim looks at: see `core/commands/claim.ts`. */
type ClaimSizes = { limit: number; hostWaitlists: number; turns?: Turns; backlogged?: readonly AccountId[] };
type ClaimPart = ClaimSizes & { heads: number; only: readonly DueRow[] };
/** A row that could not be claimed so many times, and until when it is left alone. */
type FailingRow = { row: DueRow; attempts: number; pausedUntil: Millis };

/** A row is put aside when it could not be claimed so many times, with pauses of 1, 2, 4 and 8 seconds: it may have been bad luck. */
const maxAttempts = 5;
const firstPause: Millis = second;
/** For so long it is left alone when that fails, too; and then the times before are forgotten. */
const longPause: Millis = minute;
/** So many rows may be failing at once, and so many of them in one turn: when it is all of them, it is not the rows. */
const maxFailing = 512;
const maxFailingPerTurn = 32;

/**
 * Claims what is due. A row that the storage refuses, or that breaks a decision, fails the claim it is in, and would
 * fail each that follows. So it is looked for, in smaller and smaller claims, left alone for a while, and put aside when
 * that does not help, while all others go on.
 */
export class Claimer {
  readonly #store: Store;
  readonly #now: () => Millis;
  readonly #logFailure: (message: string, error: unknown) => void;
  readonly #failing = new Map<string, FailingRow>();

  constructor(options: { store: Store; now: () => Millis; logFailure: (message: string, error: unknown) => void }) {
    this.#store = options.store;
    this.#now = options.now;
    this.#logFailure = options.logFailure;
  }

  /** Whether something that is due is left alone for a while. */
  get hasPausedRows(): boolean {
    return this.#listPaused().length > 0;
  }

  /** Rejects when the storage cannot be reached, or so much fails that a pause is better. */
  async next(sizes: ClaimSizes): Promise<Claimed> {
    for (const [name, { pausedUntil }] of this.#failing) if (pausedUntil + longPause <= this.#now()) this.#failing.delete(name);
    const except = this.#listPaused().map(({ row }) => row);
    try {
      return await this.#store.execute("claim", except.length === 0 ? sizes : { ...sizes, except });
    } catch (error) {
      if (error instanceof Refusal) throw error;
      const { rows, now } = await this.#store.execute("listDue", { ...sizes, except });
      if (rows.length === 0) throw error;
      await this.#claimInHalves({ ...sizes, heads: sizes.hostWaitlists, only: rows }, { count: 0 });
      return { more: true, now, turns: sizes.turns ?? {}, backlogged: rows.map(({ account }) => account) };
    }
  }

  #listPaused(): FailingRow[] {
    return [...this.#failing.values()].filter(({ pausedUntil }) => pausedUntil > this.#now());
  }

  /** Halves what is looked at until it can be stored, or is one row, and of a line one message. */
  async #claimInHalves(part: ClaimPart, failed: { count: number }): Promise<void> {
    const error = await this.#tryClaim(part);
    if (error === null) return;
    const { only, heads } = part;
    const [row] = only;
    if (only.length === 1 && row && heads === 1) {
      await this.#recordFailure(row, error);
      if (++failed.count === maxFailingPerTurn) throw error;
      return;
    }
    const middle = Math.ceil(only.length / 2);
    for (const half of [only.slice(0, middle), only.slice(middle)]) {
      if (half.length > 0) await this.#claimInHalves({ ...part, only: half, heads: Math.ceil(heads / 2) }, failed);
    }
  }

  async #tryClaim(part: ClaimPart): Promise<Error | null> {
    try {
      await this.#store.execute("claim", part);
      return null;
    } catch (error) {
      if (error instanceof Refusal || !(error instanceof Error)) throw error;
      return error;
    }
  }

  async #recordFailure(row: DueRow, error: Error): Promise<void> {
    const name = toRowKey(row);
    const attempts = (this.#failing.get(name)?.attempts ?? 0) + 1;
    const description = attempts < maxAttempts ? null : await this.#quarantine(row, error);
    if (description !== null) {
      this.#failing.delete(name);
      return this.#logFailure(`${description} could not be stored, and was put aside`, error);
    }
    const pause = attempts < maxAttempts ? firstPause * 2 ** (attempts - 1) : longPause;
    if (this.#failing.has(name) || this.#failing.size < maxFailing)
      this.#failing.set(name, { row, attempts, pausedUntil: this.#now() + pause });
    this.#logFailure(`claiming of ${row.table} ${row.id} of account ${row.account} failed; it is left alone for ${pause / 1000} s`, error);
  }

  async #quarantine(row: DueRow, { message: reason }: Error): Promise<string | null> {
    try {
      return (await this.#store.execute("quarantine", { row, reason })).description;
    } catch (error) {
      if (error instanceof Refusal) throw error;
      return null;
    }
  }
}
