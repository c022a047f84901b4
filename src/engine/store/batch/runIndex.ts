import type { RunRowsNeed, RunNeed, StepsNeed } from "../../core/decision/command.ts";
import type { RunKey } from "../../core/model/runPost.ts";

/** The rows of each run in a batch: those that were loaded with it, and those that were created since. */
export class RunIndex {
  readonly #ids = new Map<string, Set<string>>();
  readonly #requested = new Set<string>();

  /** Returns the needs for rows of runs that were not requested before. */
  pickUnaskedRows(needs: readonly RunRowsNeed[] = []): RunRowsNeed[] {
    return needs.filter(
      (need) =>
        !this.#requested.has(formatAskKey(need.table, need)) &&
        this.#markAsked(`${need.table}${formatEvent(need)}`, need),
    );
  }

  /** Reports whether rows were requested, by themselves or with all rows of the run in this table. */
  wereRowsAsked(need: RunRowsNeed): boolean {
    return (
      this.#requested.has(formatAskKey(need.table, need)) ||
      this.#requested.has(formatAskKey(`${need.table}${formatEvent(need)}`, need))
    );
  }

  /** Returns the needs for histories that were not requested before. */
  pickUnaskedHistories(needs: readonly StepsNeed[] = []): StepsNeed[] {
    return needs.filter((need) => this.#markAsked(formatHistoryKind(need), need));
  }

  wasHistoryAsked(need: StepsNeed): boolean {
    return this.#requested.has(formatAskKey(formatHistoryKind(need), need));
  }

  /** Returns false if the need was requested before. */
  #markAsked(kind: string, need: RunNeed): boolean {
    const name = formatAskKey(kind, need);
    const isNew = !this.#requested.has(name);
    this.#requested.add(name);
    return isNew;
  }

  /** Adds a row to the run that it names, if any. */
  add(table: string, row: object): void {
    if (!hasRun(row)) return;
    const name = formatAskKey(table, row);
    const ids = this.#ids.get(name);
    if (ids) ids.add(row.id);
    else this.#ids.set(name, new Set([row.id]));
  }

  /**
   * Returns the ids of a run's rows in order. Some rows may have been removed or may no longer belong to the
   * run.
   */
  listIds(table: string, run: RunNeed): string[] {
    return [...(this.#ids.get(formatAskKey(table, run)) ?? [])].sort();
  }
}

type RowWithRun = { account: string; id: string; run: RunKey };

const hasRun = (row: object): row is RowWithRun =>
  "run" in row &&
  typeof row.run === "string" &&
  "account" in row &&
  typeof row.account === "string" &&
  "id" in row;

const formatHistoryKind = ({ stepKey }: StepsNeed): string =>
  stepKey === undefined ? "history" : `entry ${stepKey}`;
const formatEvent = ({ event }: RunRowsNeed): string =>
  event === undefined ? "" : ` of ${JSON.stringify(event)}`;
const formatAskKey = (kind: string, { account, run }: RunNeed): string => `${kind} ${account} ${run}`;
