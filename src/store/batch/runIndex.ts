import type { OfRunNeed, RunNeed, StepsNeed } from "../../core/decision/command.ts";
import type { RunKey } from "../../core/model/message.ts";

/** Which rows of a batch belong to which run: those that were loaded with it, and those that were made for it since. */
export class RunIndex {
  readonly #ids = new Map<string, Set<string>>();
  readonly #asked = new Set<string>();

  /** Those rows of runs that were not asked for before. */
  askRows(needs: readonly OfRunNeed[] = []): OfRunNeed[] {
    return needs.filter((need) => !this.#asked.has(nameOf(need.table, need)) && this.#ask(`${need.table}${eventOf(need)}`, need));
  }

  wereRowsAsked(need: OfRunNeed): boolean {
    return this.#asked.has(nameOf(`${need.table}${eventOf(need)}`, need));
  }

  /** Those histories that were not asked for before. */
  askHistories(needs: readonly StepsNeed[] = []): StepsNeed[] {
    return needs.filter((need) => this.#ask(historyOf(need), need));
  }

  wasHistoryAsked(need: StepsNeed): boolean {
    return this.#asked.has(nameOf(historyOf(need), need));
  }

  /** False when it was asked for before. */
  #ask(what: string, need: RunNeed): boolean {
    const name = nameOf(what, need);
    const isNew = !this.#asked.has(name);
    this.#asked.add(name);
    return isNew;
  }

  /** A row that names a run belongs to it. */
  note(table: string, row: object): void {
    if (!isOfRun(row)) return;
    const name = nameOf(table, row);
    const ids = this.#ids.get(name);
    if (ids) ids.add(row.id);
    else this.#ids.set(name, new Set([row.id]));
  }

  /** In order. Some may be gone, or belong to it no more. */
  idsIn(table: string, run: RunNeed): string[] {
    return [...(this.#ids.get(nameOf(table, run)) ?? [])].sort();
  }
}

type OfRun = { account: string; id: string; run: RunKey };

const isOfRun = (row: object): row is OfRun =>
  "run" in row && typeof row.run === "string" && "account" in row && typeof row.account === "string" && "id" in row;

const historyOf = ({ slot }: StepsNeed): string => (slot === undefined ? "history" : `entry ${slot}`);
const eventOf = ({ event }: OfRunNeed): string => (event === undefined ? "" : ` of ${JSON.stringify(event)}`);
const nameOf = (what: string, { account, run }: RunNeed): string => `${what} ${account} ${run}`;
