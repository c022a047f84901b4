import type { Clock } from "../../engine/clock/clock.ts";
import type { MessageInput } from "../../engine/core/model/message.ts";
import { transaction, weighCommand } from "../../engine/core/node/weight.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import type { Mark } from "./outbox.ts";
import type { OutboxRow } from "./rows.ts";

/** The result of a round. `waits`: why rows stay, or null. `isFull`: more rows are there. */
export type Round = { moved: number; waits: string | null; isFull: boolean };
/** A round without rows. */
export const emptyRound: Round = { moved: 0, waits: null, isFull: false };

/** A row, with the message that it describes, or why it describes none. */
export type ReadRow = { row: OutboxRow; input: MessageInput | Refusal };

/** Returns the mark of a row. */
export const toMark = ({ id, key }: OutboxRow): Mark => [id, key];

/** Divides rows into parts that one transaction of the store can carry. */
export function splitByWeight(rows: readonly ReadRow[]): ReadRow[][] {
  const parts: ReadRow[][] = [];
  let weight = Infinity;
  for (const one of rows) {
    const own = one.input instanceof Refusal ? 0 : weighCommand({ inputs: [one.input] });
    if (weight + own > transaction.rows) {
      parts.push([]);
      weight = 0;
    }
    parts.at(-1)?.push(one);
    weight += own;
  }
  return parts;
}

/** Rows whose transaction took longer than this are found only by a look at all rows. */
const usualTransaction: Millis = 5_000;
const shortestScanPause: Millis = 1_000;
/** Looks at all rows take at most this share of the time: one in twenty. */
const scanShare = 20;

/**
 * Where a round begins to look for rows. Deleted rows stay in the index of a database for as long as any
 * transaction there is open, so a look at all rows can take long. Most rounds therefore begin where rows were
 * taken a while ago, and only some look at all rows. These find what long transactions have inserted.
 */
export class ScanRange {
  readonly #clock: Clock;
  #passed: { at: Millis; id: string }[] = [];
  #floor = "0";
  #nextWhole: Millis = 0;
  #begunAt: Millis | null = null;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Begins a round. Returns the id after which it looks for rows. */
  begin(): string {
    const now = this.#clock.now();
    while (this.#passed[0] && this.#passed[0].at <= now - usualTransaction)
      this.#floor = this.#passed.shift()?.id ?? this.#floor;
    this.#begunAt = now >= this.#nextWhole ? now : null;
    return this.#begunAt === null ? this.#floor : "0";
  }

  /** Notes that a round has read the rows up to this id. */
  passed(id: string): void {
    const last = this.#passed.at(-1);
    const highest = last?.id ?? this.#floor;
    if (BigInt(id) <= BigInt(highest)) return;
    const at = this.#clock.now();
    // One entry for each moment is enough, however many rounds there are.
    if (last && at - last.at < shortestScanPause / 4) Object.assign(last, { id, at });
    else this.#passed.push({ at, id });
  }

  end(): void {
    if (this.#begunAt === null) return;
    const now = this.#clock.now();
    this.#nextWhole = now + Math.max(shortestScanPause, scanShare * (now - this.#begunAt));
  }
}
