import type { Client } from "pg";
import { firstIdAt } from "../../core/values/ids.ts";
import type { Millis } from "../../core/model/message.ts";
import { isLockTimeout, createPartitions, listPartitions, lockTimeout, readCoveredRange } from "./partitions.ts";
import { alone } from "./schema.ts";
import type { PostgresOptions } from "./session.ts";
import { runPlain } from "./session.ts";
import type { LogTruncation } from "../sql/database.ts";
import { day, minute } from "../../core/values/time.ts";

/** A day is made this long before it begins; whoever writes waits for it only when there is next to no time left. */
const createAhead = day / 2;
const minLead: Millis = minute;
/** Longer than any transaction takes: no line comes in between those that are so old. */
const completeAfter: Millis = 10 * minute;

/**
 * The parts of the log. Each covers a day by the times in its ids. Whoever writes makes
 * sure that there is a part for it; a part that is past its time, and holds nothing that is still shown, is dropped whole.
 */
export class LogPartitions implements LogTruncation {
  readonly #options: PostgresOptions;
  /** All times from, and before, which there are parts for. */
  #covered: { from: Millis; to: Millis } = { from: 0, to: 0 };
  #creating: Promise<void> | null = null;
  #droppedWholeBefore: Millis | null = null;

  constructor(options: PostgresOptions) {
    this.#options = options;
  }

  idDroppedWholeBefore(now: Millis): string | null {
    return this.#droppedWholeBefore === null ? null : firstIdAt("log", Math.min(this.#droppedWholeBefore, now - completeAfter));
  }

  /** Sees to it that rows of this time find their part. Null: there is nothing to wait for. */
  ensurePartition(now: Millis): Promise<void> | null {
    const { from, to } = this.#covered;
    const isCovered = now >= from && now + minLead < to;
    if (isCovered && now + createAhead < to) return null;
    this.#creating ??= this.#create(now).finally(() => (this.#creating = null));
    if (!isCovered) return this.#creating;
    // Whoever writes in the last moment is told what came of it.
    this.#creating.catch(() => undefined);
    return null;
  }

  /** There was no part for a row, though there should have been: another node, or a hand, has taken it away. */
  forgetCovered(): void {
    this.#covered = { from: 0, to: 0 };
  }

  /**
   * Drops the parts that end before `time`, as far as no account has anything of them left. From now on rows of the day of that time, and
   * of those before, are not deleted one by one.
   */
  async dropBefore(time: Millis): Promise<void> {
    this.#droppedWholeBefore = (Math.floor(time / day) + 1) * day;
    try {
      const partitions = await this.#exclusively(listPartitions);
      for (const { name } of partitions.filter(({ to }) => to <= time)) await this.#drop(name);
      await this.#exclusively(deleteForgottenAccounts);
    } catch (error) {
      // Somebody reads it, or another node is at it: it is for another time.
      if (!isLockTimeout(error)) throw error;
    }
  }

  async #drop(name: string): Promise<void> {
    await this.#exclusively(async (client) => {
      // Another node may have been faster.
      if (!(await listPartitions(client)).some((part) => part.name === name)) return;
      const left = await runPlain(client, stillShownSql(name));
      if (left.length > 0) return;
      await runPlain(client, `set local lock_timeout = ${lockTimeout}; alter table log detach partition ${name}; drop table ${name}`);
    });
  }

  async #create(now: Millis): Promise<void> {
    this.#covered = readCoveredRange(now, await this.#exclusively((client) => createPartitions(client, [now, now + day])));
  }

  #exclusively<T>(run: (client: Client) => Promise<T>): Promise<T> {
    return alone(this.#options, "partitions", run);
  }
}

/** Of accounts that are gone it is not noted any more what they forgot, once all parts that could hold lines of them are gone as well. */
async function deleteForgottenAccounts(client: Client): Promise<void> {
  const first = Math.min(...(await listPartitions(client)).map(({ from }) => from));
  if (!Number.isFinite(first)) return;
  await runPlain(
    client,
    `delete from log_cuts where up_to < '${firstIdAt("log", first)}' and not exists (select 1 from accounts where accounts.id = log_cuts.account)`,
  );
}

/** One row, if an account still shows something of this part. */
const stillShownSql = (name: string): string => `select 1 from accounts left join log_cuts on log_cuts.account = accounts.id
  where exists (select 1 from ${name} where ${name}.account = accounts.id and ${name}.id > coalesce(log_cuts.up_to, '')) limit 1`;
