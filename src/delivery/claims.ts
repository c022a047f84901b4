import type { DueRow } from "../core/commands/quarantine.ts";
import { nameOfRow } from "../core/commands/quarantine.ts";
import type { Claimed } from "../core/commands/claim.ts";
import { Refusal } from "../core/values/errors.ts";
import type { AccountId, Millis } from "../core/model/message.ts";
import type { Turns } from "../core/fairness/turns.ts";
import type { Store } from "../store/store.ts";
import { minute, second } from "../core/values/time.ts";

/** How much one claim looks at: see `core/commands/claim.ts`. */
type Most = { limit: number; lines: number; turns?: Turns; behind?: readonly AccountId[] };
type Part = Most & { heads: number; only: readonly DueRow[] };
/** A row that could not be claimed so many times, and until when it is left alone. */
type Failing = { row: DueRow; times: number; until: Millis };

/** A row is put aside when it could not be claimed so many times, with pauses of 1, 2, 4 and 8 seconds: it may have been bad luck. */
const mostTimes = 5;
const firstPause: Millis = second;
/** For so long it is left alone when that fails, too; and then the times before are forgotten. */
const longPause: Millis = minute;
/** So many rows may be failing at once, and so many of them in one turn: when it is all of them, it is not the rows. */
const [mostFailing, mostInTurn] = [512, 32];

/**
 * Claims what is due. A row that the storage refuses, or that breaks a decision, fails the claim it is in, and would
 * fail each that follows. So it is looked for, in smaller and smaller claims, left alone for a while, and put aside when
 * that does not help, while all others go on.
 */
export class Claims {
  readonly #store: Store;
  readonly #now: () => Millis;
  readonly #trouble: (what: string, error: unknown) => void;
  readonly #failing = new Map<string, Failing>();

  constructor(parts: { store: Store; now: () => Millis; trouble: (what: string, error: unknown) => void }) {
    this.#store = parts.store;
    this.#now = parts.now;
    this.#trouble = parts.trouble;
  }

  /** Whether something that is due is left alone for a while. */
  get leavesSome(): boolean {
    return this.#leftAlone().length > 0;
  }

  /** Rejects when the storage cannot be reached, or so much fails that a pause is better. */
  async next(most: Most): Promise<Claimed> {
    for (const [name, { until }] of this.#failing) if (until + longPause <= this.#now()) this.#failing.delete(name);
    const except = this.#leftAlone().map(({ row }) => row);
    try {
      return await this.#store.execute("claim", except.length === 0 ? most : { ...most, except });
    } catch (error) {
      if (error instanceof Refusal) throw error;
      const { rows, now } = await this.#store.execute("listDue", { ...most, except });
      if (rows.length === 0) throw error;
      await this.#apart({ ...most, heads: most.lines, only: rows }, { count: 0 });
      return { more: true, now, turns: most.turns ?? {}, behind: rows.map(({ account }) => account) };
    }
  }

  #leftAlone(): Failing[] {
    return [...this.#failing.values()].filter(({ until }) => until > this.#now());
  }

  /** Halves what is looked at until it can be stored, or is one row, and of a line one message. */
  async #apart(part: Part, failed: { count: number }): Promise<void> {
    const error = await this.#failureOf(part);
    if (error === null) return;
    const { only, heads } = part;
    const [row] = only;
    if (only.length === 1 && row && heads === 1) {
      await this.#note(row, error);
      if (++failed.count === mostInTurn) throw error;
      return;
    }
    const middle = Math.ceil(only.length / 2);
    for (const half of [only.slice(0, middle), only.slice(middle)]) {
      if (half.length > 0) await this.#apart({ ...part, only: half, heads: Math.ceil(heads / 2) }, failed);
    }
  }

  async #failureOf(part: Part): Promise<Error | null> {
    try {
      await this.#store.execute("claim", part);
      return null;
    } catch (error) {
      if (error instanceof Refusal || !(error instanceof Error)) throw error;
      return error;
    }
  }

  async #note(row: DueRow, error: Error): Promise<void> {
    const name = nameOfRow(row);
    const times = (this.#failing.get(name)?.times ?? 0) + 1;
    const what = times < mostTimes ? null : await this.#putAside(row, error);
    if (what !== null) {
      this.#failing.delete(name);
      return this.#trouble(`${what} could not be stored, and was put aside`, error);
    }
    const pause = times < mostTimes ? firstPause * 2 ** (times - 1) : longPause;
    if (this.#failing.has(name) || this.#failing.size < mostFailing) this.#failing.set(name, { row, times, until: this.#now() + pause });
    this.#trouble(`claiming of ${row.table} ${row.id} of account ${row.account} failed; it is left alone for ${pause / 1000} s`, error);
  }

  async #putAside(row: DueRow, { message: reason }: Error): Promise<string | null> {
    try {
      return (await this.#store.execute("putAside", { row, reason })).what;
    } catch (error) {
      if (error instanceof Refusal) throw error;
      return null;
    }
  }
}
