import type { Client } from "pg";
import { firstIdAt } from "../../core/values/ids.ts";
import type { Millis } from "../../core/values/basics.ts";
import {
  isLockTimeout,
  createPartitions,
  listPartitions,
  lockTimeout,
  readCoveredRange,
} from "./partitions.ts";
import { alone } from "./schema.ts";
import type { PostgresOptions } from "./connect.ts";
import { runPlain } from "./connection.ts";
import type { LogTruncation } from "../sql/database.ts";
import { day, minute } from "../../core/values/time.ts";

/**
 * A partition is created this long before its day begins. Writers wait for its creation only if less than
 * `minLead` is left.
 */
const createAhead = day / 2;
const minLead: Millis = minute;
/** No transaction takes this long, so no row with an id that is older than this is still being added. */
const completeAfter: Millis = 10 * minute;

/**
 * The partitions of the log. Each covers one day, by the times in the ids. Writers ensure that there is a
 * partition for their time. A partition past its retention is dropped as a whole if no account still shows
 * any of its entries.
 */
export class LogPartitions implements LogTruncation {
  readonly #options: PostgresOptions;
  /** The range of times that partitions cover without a gap, from `from` (inclusive) to `to` (exclusive). */
  #covered: { from: Millis; to: Millis } = { from: 0, to: 0 };
  #creating: Promise<void> | null = null;
  #droppedWholeBefore: Millis | null = null;

  constructor(options: PostgresOptions) {
    this.#options = options;
  }

  idDroppedWholeBefore(now: Millis): string | null {
    return this.#droppedWholeBefore === null
      ? null
      : firstIdAt("log", Math.min(this.#droppedWholeBefore, now - completeAfter));
  }

  /** Ensures a partition for rows of this time. Returns null if the caller need not wait. */
  ensurePartition(now: Millis): Promise<void> | null {
    const { from, to } = this.#covered;
    const isCovered = now >= from && now + minLead < to;
    if (isCovered && now + createAhead < to) return null;
    this.#creating ??= this.#create(now).finally(() => (this.#creating = null));
    if (!isCovered) return this.#creating;
    // An error is ignored here. If the next attempts fail too, the error reaches the writers that wait for
    // the partition in the last minute before its day.
    this.#creating.catch(() => undefined);
    return null;
  }

  /**
   * Called if a row had no partition although this node knew one. Another node or a person has removed the
   * partition.
   */
  forgetCovered(): void {
    this.#covered = { from: 0, to: 0 };
  }

  /**
   * Drops the partitions that end before `time` if no account has anything left in them. From now on, log
   * entries of the day of `time` and of earlier days are not deleted one by one.
   */
  async dropBefore(time: Millis): Promise<void> {
    this.#droppedWholeBefore = (Math.floor(time / day) + 1) * day;
    try {
      const partitions = await this.#exclusively(listPartitions);
      for (const { name } of partitions.filter(({ to }) => to <= time)) await this.#drop(name);
      await this.#exclusively(deleteForgottenAccounts);
    } catch (error) {
      // A long read uses the log, or another node changes its partitions. The next call drops the partitions.
      if (!isLockTimeout(error)) throw error;
    }
  }

  async #drop(name: string): Promise<void> {
    await this.#exclusively(async (client) => {
      // Another node may have dropped this partition already.
      if (!(await listPartitions(client)).some((part) => part.name === name)) return;
      const left = await runPlain(client, stillShownSql(name));
      if (left.length > 0) return;
      await runPlain(
        client,
        `set local lock_timeout = ${lockTimeout}; ` +
          `alter table log detach partition ${name}; drop table ${name}`,
      );
    });
  }

  async #create(now: Millis): Promise<void> {
    this.#covered = readCoveredRange(
      now,
      await this.#exclusively((client) => createPartitions(client, [now, now + day])),
    );
  }

  #exclusively<T>(run: (client: Client) => Promise<T>): Promise<T> {
    return alone(this.#options, "partitions", run);
  }
}

/**
 * Deletes the rows of `log_cuts` of accounts that no longer exist, once every partition that could hold log
 * entries of these accounts has been dropped.
 */
async function deleteForgottenAccounts(client: Client): Promise<void> {
  const first = Math.min(...(await listPartitions(client)).map(({ from }) => from));
  if (!Number.isFinite(first)) return;
  await runPlain(
    client,
    `delete from log_cuts where up_to < '${firstIdAt("log", first)}'
      and not exists (select 1 from accounts where accounts.id = log_cuts.account)`,
  );
}

/** Returns the SQL that finds one row if an account still shows anything of this partition. */
const stillShownSql = (name: string): string =>
  `select 1 from accounts left join log_cuts on log_cuts.account = accounts.id
  where exists (
    select 1 from ${name}
    where ${name}.account = accounts.id and ${name}.id > coalesce(log_cuts.up_to, '')
  ) limit 1`;
