import type { Progress } from "../core/acknowledged.ts";
import { lossOf, nodesKept } from "../core/acknowledged.ts";
import type { Millis } from "../core/message.ts";
import type { Connection } from "./database.ts";
import type { PostgresOptions } from "./postgresSession.ts";
import type { Columns } from "./tables.ts";

const raise = `insert into nodes (id, started_at, counter, used_at) values (?, ?, 1, ?)
  on conflict (id) do update set counter = nodes.counter + 1, used_at = excluded.used_at returning counter`;

const removeOld = "delete from nodes where greatest(used_at, started_at) < ?";

/** The row of this node in the table `nodes`. No other node writes to it, so no batch waits for it. */
export class NodeRow {
  /** Columns of the select with which a transaction begins. */
  readonly columns: string;
  readonly #options: PostgresOptions;
  readonly #startedAt: Millis;
  #acknowledged: Progress | null = null;
  /** What the transaction under way has written. */
  #written: Progress | null = null;
  #now: Millis = 0;

  constructor(options: PostgresOptions) {
    this.#options = options;
    this.#startedAt = options.clock.now();
    const ofNode = `from nodes where id = '${options.node.replaceAll("'", "''")}'`;
    this.columns = `(select counter ${ofNode}) as counter, (select used_at ${ofNode}) as used_at`;
  }

  /** Takes what a transaction found when it began, and its time. Reports what the database has lost since the last one. */
  begin({ counter, used_at: usedAt }: Columns, now: Millis): void {
    this.#now = now;
    this.#written = null;
    const found = typeof counter === "number" ? { counter, usedAt: Number(usedAt) } : null;
    const loss = lossOf(this.#acknowledged, found, now);
    if (loss === null) return;
    this.#acknowledged = found;
    this.#options.onLoss?.(loss);
  }

  /** Goes out with the other writes of a batch. */
  async write({ query }: Pick<Connection, "query">): Promise<void> {
    const { node } = this.#options;
    const usedAt = this.#now;
    const [row] = await query(raise, [node, this.#startedAt, usedAt]);
    this.#written = { counter: Number(row?.counter), usedAt };
  }

  /** The transaction is stored, and this node was told so. */
  committed(): void {
    this.#acknowledged = this.#written ?? this.#acknowledged;
  }

  /** Removes the rows of nodes that are long gone. */
  static async removeOld({ query }: Pick<Connection, "query">, now: Millis): Promise<void> {
    await query(removeOld, [now - nodesKept]);
  }
}
