import type { Draft, ExpiredNeed, Rows } from "../../core/decision/command.ts";
import { RetryInNextBatch } from "../../core/values/errors.ts";
import type { AccountId } from "../../core/model/message.ts";
import type { ExpiredRows } from "./loader.ts";
import { nothingExpired } from "./loader.ts";

/** Reports whether the batch has not changed a row since it was loaded. */
type IsUntouched = <T extends "deduplications" | "runs">(table: T, row: Rows[T]) => boolean;

/** The expired rows that a batch has loaded, by account. */
export class Expirations {
  readonly #found = new Map<AccountId, ExpiredRows | "several">();

  /**
   * Returns the needs of accounts that were not requested before. If several calls name one account, each
   * would also see the rows that were loaded for the others, and could not tell whether more rows are left.
   * Such calls are run again one by one.
   */
  pickUnasked(needs: readonly ExpiredNeed[]): ExpiredNeed[] {
    const isDuplicate = (account: AccountId, at: number): boolean =>
      needs.findIndex((need) => need.account === account) !== at;
    for (const [at, { account }] of needs.entries())
      if (isDuplicate(account, at)) this.#found.set(account, "several");
    return needs.filter(({ account }) => !this.#found.has(account));
  }

  record(account: AccountId, expired: ExpiredRows): void {
    this.#found.set(account, expired);
  }

  /**
   * Returns the loaded rows that still exist. Throws `RetryInNextBatch` if several calls have requested them.
   */
  readExpired(
    account: AccountId,
    draft: Pick<Draft, "get" | "getWithoutBody">,
    isUntouched: IsUntouched,
  ): ExpiredRows {
    const loaded = this.#found.get(account) ?? nothingExpired;
    if (loaded === "several") throw new RetryInNextBatch();
    const { log, keptLog, deadLetters, deduplications, audit, runs, steps, usage, timeIndex } = loaded;
    const keepPresent = <T extends "log" | "keptLog" | "steps" | "usage" | "timeIndex">(
      table: T,
      rows: readonly Rows[T][],
    ): Rows[T][] => rows.filter((row) => draft.get(table, account, row.id));
    return {
      audit,
      log: keepPresent("log", log),
      keptLog: keepPresent("keptLog", keptLog),
      steps: keepPresent("steps", steps),
      usage: keepPresent("usage", usage),
      timeIndex: keepPresent("timeIndex", timeIndex),
      deadLetters: deadLetters.flatMap((row) => draft.getWithoutBody("deadLetters", account, row.id) ?? []),
      // A deduplication id that was used again has a new expiry.
      deduplications: deduplications.filter((row) => isUntouched("deduplications", row)),
      runs: runs.filter((row) => isUntouched("runs", row)),
    };
  }
}
