import type { Draft, ExpiredNeed, Rows } from "../../core/decision/command.ts";
import { Later } from "../../core/values/errors.ts";
import type { AccountId } from "../../core/model/message.ts";
import type { Expired } from "./loader.ts";
import { nothingExpired } from "./loader.ts";

/** Whether the batch has left a row as it was loaded. */
type IsUntouched = <T extends "deduplications" | "runs">(table: T, row: Rows[T]) => boolean;

/** What is past its time, as it was found for a batch. */
export class Expirations {
  readonly #found = new Map<AccountId, Expired | "several">();

  /** Each of several would see what was loaded for another one, and judge by that whether there is more: they are asked again one by one. */
  unasked(needs: readonly ExpiredNeed[]): ExpiredNeed[] {
    const isOther = (account: AccountId, at: number): boolean => needs.findIndex((need) => need.account === account) !== at;
    for (const [at, { account }] of needs.entries()) if (isOther(account, at)) this.#found.set(account, "several");
    return needs.filter(({ account }) => !this.#found.has(account));
  }

  learn(account: AccountId, expired: Expired): void {
    this.#found.set(account, expired);
  }

  /** What is still there of it, as the batch has left it. Throws `Later` where several have asked. */
  of(account: AccountId, draft: Pick<Draft, "get" | "outline">, isUntouched: IsUntouched): Expired {
    const found = this.#found.get(account) ?? nothingExpired;
    if (found === "several") throw new Later();
    const { log, keptLog, deadLetters, deduplications, audit, runs, steps, usage, sightings } = found;
    const still = <T extends "log" | "keptLog" | "steps" | "usage" | "sightings">(table: T, rows: readonly Rows[T][]): Rows[T][] =>
      rows.filter((row) => draft.get(table, account, row.id));
    return {
      ...{ audit, log: still("log", log), keptLog: still("keptLog", keptLog), steps: still("steps", steps) },
      ...{ usage: still("usage", usage), sightings: still("sightings", sightings) },
      deadLetters: deadLetters.flatMap((row) => draft.outline("deadLetters", account, row.id) ?? []),
      // One that was used again meanwhile is not past its time any more.
      deduplications: deduplications.filter((row) => isUntouched("deduplications", row)),
      runs: runs.filter((row) => isUntouched("runs", row)),
    };
  }
}
