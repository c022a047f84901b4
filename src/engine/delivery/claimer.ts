import type { DueRow } from "../core/model/dueRow.ts";
import { toRowKey } from "../core/model/dueRow.ts";
import type { Claimed } from "../core/commands/claim.ts";
import { Refusal } from "../core/values/errors.ts";
import type { AccountId, Millis } from "../core/values/basics.ts";
import type { Turns } from "../core/node/turns.ts";
import type { Store } from "../store/store.ts";
import { minute, second } from "../core/values/time.ts";

/** The maximum number of rows that one claim looks at. See `engine/core/commands/claim.ts`. */
type ClaimSizes = {
  limit: number;
  hostWaitlists: number;
  heads: number;
  turns?: Turns;
  backlogged?: readonly AccountId[];
};
type ClaimPart = ClaimSizes & { only: readonly DueRow[] };
/** A row that could not be claimed. It is skipped until `pausedUntil`. */
type FailingRow = { row: DueRow; attempts: number; pausedUntil: Millis };

/**
 * A row is quarantined at its fifth failure, after pauses of 1, 2, 4 and 8 seconds, because earlier failures
 * may be temporary.
 */
const maxAttempts = 5;
const firstPause: Millis = second;
/**
 * The pause of a row that cannot be quarantined either. If a row does not fail for this long after its pause,
 * its failures are forgotten.
 */
const longPause: Millis = minute;
/**
 * The maximum number of rows that are tracked as failing, and that may fail in one turn. If more rows fail,
 * the fault is in the storage and not in the rows.
 */
const maxFailing = 512;
const maxFailingPerTurn = 32;

/**
 * Claims due messages. If the storage refuses one row, or a row breaks a decision, the whole claim fails, and
 * so would every later claim. The claimer therefore finds the row by halving the claim, skips it for a while,
 * and quarantines it after repeated failures. Meanwhile all other rows are claimed.
 */
export class Claimer {
  readonly #store: Store;
  readonly #now: () => Millis;
  readonly #logFailure: (message: string, error: unknown) => void;
  readonly #failing = new Map<string, FailingRow>();

  constructor(options: {
    store: Store;
    now: () => Millis;
    logFailure: (message: string, error: unknown) => void;
  }) {
    this.#store = options.store;
    this.#now = options.now;
    this.#logFailure = options.logFailure;
  }

  /** Reports whether due rows are being skipped. */
  get hasPausedRows(): boolean {
    return this.#listPaused().length > 0;
  }

  /**
   * Claims due rows. Rejects if the storage is unavailable, or after 32 failures in one turn.
   */
  async next(sizes: ClaimSizes): Promise<Claimed> {
    for (const [name, { pausedUntil }] of this.#failing)
      if (pausedUntil + longPause <= this.#now()) this.#failing.delete(name);
    const except = this.#listPaused().map(({ row }) => row);
    try {
      return await this.#store.execute("claim", except.length === 0 ? sizes : { ...sizes, except });
    } catch (error) {
      if (error instanceof Refusal) throw error;
      const { rows, now } = await this.#store.execute("listDue", { ...sizes, except });
      if (rows.length === 0) throw error;
      await this.#claimInHalves({ ...sizes, only: rows }, { count: 0 });
      return { more: true, now, turns: sizes.turns ?? {}, backlogged: rows.map(({ account }) => account) };
    }
  }

  /**
   * Returns when to claim next, or null if nothing is due. Waitlists of hosts are left out if they are not
   * claimed now. `now` is the time of the last claim.
   */
  async nextDueAt({ now, takesWaitlists }: { now: Millis; takesWaitlists: boolean }): Promise<Millis | null> {
    const next = takesWaitlists ? await this.#store.nextDueAt() : await this.#nextOtherDueAt();
    // Rows that are skipped stay due, so without a pause they would be claimed in a busy loop.
    return next !== null && this.hasPausedRows ? Math.max(next, now + firstPause) : next;
  }

  async #nextOtherDueAt(): Promise<Millis | null> {
    const { hostWaitlists: _left, ...others } = await this.#store.read.oldestDue();
    const times = Object.values(others).filter((at) => at !== null);
    return times.length === 0 ? null : Math.min(...times);
  }

  #listPaused(): FailingRow[] {
    return [...this.#failing.values()].filter(({ pausedUntil }) => pausedUntil > this.#now());
  }

  /**
   * Claims the rows. If the store does not accept them, claims each half of them, with half as many messages
   * of their waitlists. Stops halving at one row and one message.
   */
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
      if (half.length > 0)
        await this.#claimInHalves({ ...part, only: half, heads: Math.ceil(heads / 2) }, failed);
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
      return this.#logFailure(`quarantined ${description}: its changes could not be stored`, error);
    }
    const pause = attempts < maxAttempts ? firstPause * 2 ** (attempts - 1) : longPause;
    if (this.#failing.has(name) || this.#failing.size < maxFailing)
      this.#failing.set(name, { row, attempts, pausedUntil: this.#now() + pause });
    this.#logFailure(
      `could not claim ${row.table}/${row.id} of account ${row.account}; skipping it for ${pause / 1000} s`,
      error,
    );
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
