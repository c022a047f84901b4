import type { CommitLoss, Progress } from "../../core/cluster/commitLoss.ts";
import { detectLoss, nodeRetention } from "../../core/cluster/commitLoss.ts";
import type { Millis } from "../../core/values/basics.ts";
import type { BatchStart, ClockReading, UsedTime } from "../../core/cluster/sharedTime.ts";
import { measureClockJump, maxClockJump, nextBatchTime } from "../../core/cluster/sharedTime.ts";
import type { DatabaseConnection } from "../sql/database.ts";
import type { PostgresOptions } from "./connect.ts";
import type { Columns } from "../catalog/tables.ts";

const raiseCounterSql = `insert into nodes
    (id, started_at, version, counter, used_at, clock_offset, clock_offset_at)
  values (?, ?, ?, 1, ?, ?, ?)
  on conflict (id) do update set counter = nodes.counter + 1, used_at = excluded.used_at,
    clock_offset = excluded.clock_offset, clock_offset_at = excluded.clock_offset_at
  returning counter`;

const removeOldSql = "delete from nodes where greatest(used_at, started_at) < ?";

/**
 * The row of this node in the table `nodes`. No other node writes to this row during a batch, so no batch
 * waits for it.
 */
export class NodeRow {
  /** The columns of the select at the beginning of a transaction. */
  readonly columns: string;
  readonly #options: PostgresOptions;
  readonly #onLoss: (loss: CommitLoss) => void;
  readonly #startedAt: Millis;
  #acknowledged: Progress | null = null;
  /** The progress written by the current transaction. */
  #written: Progress | null = null;
  /** The latest shared time that this node used, whether or not it was stored. */
  #usedTime: UsedTime | null = null;
  #lastReading: ClockReading | null = null;

  /** `onLoss` is called with the batches that the database has lost. */
  constructor(options: PostgresOptions, onLoss: (loss: CommitLoss) => void) {
    this.#options = options;
    this.#onLoss = onLoss;
    this.#startedAt = options.clock.now();
    const id = `'${options.node.replaceAll("'", "''")}'`;
    this.columns = `(select counter from nodes where id = ${id}) as counter,
      (select used_at from nodes where id = ${id}) as used_at,
      (select concat_ws(' ', used_at, clock_offset, clock_offset_at, (id = ${id})::int)
        from nodes order by used_at desc, id = ${id} limit 1) as latest`;
  }

  /** Returns milliseconds since an arbitrary moment, to time the readings of the database's clock. */
  elapsed(): Millis {
    return this.#options.elapsed?.() ?? this.#options.clock.now();
  }

  /**
   * Returns the time of the batch, from the columns that its transaction read when it began. Reports the
   * batches that the database has lost since the last transaction.
   */
  begin({ counter, used_at: usedAt, latest }: Columns, reading: ClockReading): Millis {
    const { clock } = reading;
    this.#written = null;
    // A row that `membership.ts` has created records no batch yet; its counter is 0.
    const found = typeof counter === "number" && counter > 0 ? { counter, usedAt: Number(usedAt) } : null;
    const loss = detectLoss(this.#acknowledged, found, clock);
    if (loss !== null) {
      this.#acknowledged = found;
      this.#onLoss(loss);
    }
    return this.#useTime(reading, parseLatest(latest));
  }

  #useTime(reading: ClockReading, stored: BatchStart["stored"]): Millis {
    const { clock } = reading;
    const ownTime = this.#usedTime;
    const sinceOwn =
      this.#lastReading === null ? 0 : Math.max(0, Math.floor(reading.from - this.#lastReading.to));
    const used = nextBatchTime({ clock, own: ownTime, stored, sinceOwn });
    // A node that has just started has no reading, so it measures the jump from the stored time.
    const jump =
      this.#lastReading === null
        ? Math.min(0, clock - Math.max(0, (stored?.usedAt ?? 0) - (stored?.clockOffset ?? 0)))
        : measureClockJump(this.#lastReading, reading);
    this.#usedTime = used;
    this.#lastReading = reading;
    if (Math.abs(jump) > maxClockJump) this.#options.onClockJump?.(Math.round(jump));
    return used.usedAt;
  }

  /** Writes this node's progress, together with the other writes of a batch. */
  async write({ query }: Pick<DatabaseConnection, "query">): Promise<void> {
    const { node, version = "" } = this.#options;
    const { usedAt, clockOffset, clockOffsetAt } = this.#usedTime ?? {
      usedAt: 0,
      clockOffset: 0,
      clockOffsetAt: 0,
    };
    const values = [node, this.#startedAt, version, usedAt, clockOffset, clockOffsetAt];
    const [row] = await query(raiseCounterSql, values);
    this.#written = { counter: Number(row?.counter), usedAt };
  }

  /** Called if the commit of the transaction was acknowledged. */
  committed(): void {
    this.#acknowledged = this.#written ?? this.#acknowledged;
  }

  /** Removes the rows of nodes that have changed nothing for 30 days. */
  static async removeOld({ query }: Pick<DatabaseConnection, "query">, now: Millis): Promise<void> {
    await query(removeOldSql, [now - nodeRetention]);
  }
}

/** Parses the latest time of all nodes from the column `latest`. */
function parseLatest(latest: Columns[string] | undefined): BatchStart["stored"] {
  if (typeof latest !== "string") return null;
  const [usedAt = 0, clockOffset = 0, clockOffsetAt = 0, isOwn = 0] = latest.split(" ").map(Number);
  return { usedAt, clockOffset, clockOffsetAt, isOwn: isOwn === 1 };
}
