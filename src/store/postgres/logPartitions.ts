import type { Client } from "pg";
import { firstIdAt } from "../../core/values/ids.ts";
import type { Millis } from "../../core/model/message.ts";
import { day, isLocked, makeParts, partsOf, patience, roomAround } from "./logParts.ts";
import { alone } from "./schema.ts";
import type { PostgresOptions } from "./session.ts";
import { plainly } from "./session.ts";
import type { LogCut } from "../sql/database.ts";

/** A day is made this long before it begins; whoever writes waits for it only when there is next to no time left. */
const ahead = day / 2;
const lastMoment: Millis = 60_000;
/** Longer than any transaction takes: no line comes in between those that are so old. */
const complete: Millis = 10 * 60_000;

/**
 * The parts of the log. Each covers a day by the times in its ids. Whoever writes makes
 * sure that there is a part for it; a part that is past its time, and holds nothing that is still shown, is dropped whole.
 */
export class LogPartitions implements LogCut {
  readonly #options: PostgresOptions;
  /** All times from, and before, which there are parts for. */
  #room: { from: Millis; to: Millis } = { from: 0, to: 0 };
  #making: Promise<void> | null = null;
  #wholeBefore: Millis | null = null;

  constructor(options: PostgresOptions) {
    this.#options = options;
  }

  wholeBefore(now: Millis): string | null {
    return this.#wholeBefore === null ? null : firstIdAt("log", Math.min(this.#wholeBefore, now - complete));
  }

  /** Sees to it that rows of this time find their part. Null: there is nothing to wait for. */
  roomAt(now: Millis): Promise<void> | null {
    const { from, to } = this.#room;
    const isIn = now >= from && now + lastMoment < to;
    if (isIn && now + ahead < to) return null;
    this.#making ??= this.#make(now).finally(() => (this.#making = null));
    if (!isIn) return this.#making;
    // Whoever writes in the last moment is told what came of it.
    this.#making.catch(() => undefined);
    return null;
  }

  /** There was no part for a row, though there should have been: another node, or a hand, has taken it away. */
  lookAgain(): void {
    this.#room = { from: 0, to: 0 };
  }

  /**
   * Drops the parts that end before `time`, as far as no account has anything of them left. From now on rows of the day of that time, and
   * of those before, are not deleted one by one.
   */
  async dropBefore(time: Millis): Promise<void> {
    this.#wholeBefore = (Math.floor(time / day) + 1) * day;
    try {
      const parts = await this.#alone(partsOf);
      for (const { name } of parts.filter(({ to }) => to <= time)) await this.#drop(name);
      await this.#alone(forgetAccounts);
    } catch (error) {
      // Somebody reads it, or another node is at it: it is for another time.
      if (!isLocked(error)) throw error;
    }
  }

  async #drop(name: string): Promise<void> {
    await this.#alone(async (client) => {
      // Another node may have been faster.
      if (!(await partsOf(client)).some((part) => part.name === name)) return;
      const left = await plainly(client, stillShown(name));
      if (left.length > 0) return;
      await plainly(client, `set local lock_timeout = ${patience}; alter table log detach partition ${name}; drop table ${name}`);
    });
  }

  async #make(now: Millis): Promise<void> {
    this.#room = roomAround(now, await this.#alone((client) => makeParts(client, [now, now + day])));
  }

  #alone<T>(run: (client: Client) => Promise<T>): Promise<T> {
    return alone(this.#options, "partitions", run);
  }
}

/** Of accounts that are gone it is not noted any more what they forgot, once all parts that could hold lines of them are gone as well. */
async function forgetAccounts(client: Client): Promise<void> {
  const first = Math.min(...(await partsOf(client)).map(({ from }) => from));
  if (!Number.isFinite(first)) return;
  await plainly(
    client,
    `delete from log_cuts where up_to < '${firstIdAt("log", first)}' and not exists (select 1 from accounts where accounts.id = log_cuts.account)`,
  );
}

/** One row, if an account still shows something of this part. */
const stillShown = (name: string): string => `select 1 from accounts left join log_cuts on log_cuts.account = accounts.id
  where exists (select 1 from ${name} where ${name}.account = accounts.id and ${name}.id > coalesce(log_cuts.up_to, '')) limit 1`;
