import type { RunNeed } from "../../core/decision/command.ts";
import { lazyHistoryBytes, memory } from "../../core/values/limits.ts";
import type { SentHistory } from "./sentHistory.ts";

/**
 * The histories of the runs that this node called last, as they are sent. A step therefore costs the same
 * whether it is the first or the thousandth. A history may lack the newest steps, which another node has
 * stored. It never has a step that is not stored, so it must be cleared if the storage may have been replaced
 * or changed by others.
 *
 * Histories are in two generations with one `Map` each: see docs/decisions/0034.
 */
export class RecentHistories {
  readonly #maxBytes: number;
  #young = new Map<string, SentHistory>();
  #older = new Map<string, SentHistory>();
  /** The memory of all histories that the young generation has had, in bytes. */
  #youngBytes = 0;

  /** `maxBytes` is the memory of all histories. */
  constructor(maxBytes: number = memory.histories) {
    this.#maxBytes = maxBytes;
  }

  /** The memory of all histories in bytes. */
  get memory(): number {
    return [...this.#young.values(), ...this.#older.values()].reduce((sum, one) => sum + one.memory, 0);
  }

  get(run: RunNeed): SentHistory | undefined {
    const name = formatRun(run);
    return this.#young.get(name) ?? this.#older.get(name);
  }

  /**
   * Keeps a history that was added to. `grownBytes`: by how much its memory has grown. A history that is too
   * long to be sent to most endpoints is not kept.
   */
  keep(run: RunNeed, history: SentHistory, grownBytes: number): void {
    const name = formatRun(run);
    if (history.byteLength > lazyHistoryBytes) return this.delete(run);
    const isYoung = this.#young.get(name) === history;
    this.#youngBytes += isYoung ? grownBytes : history.memory;
    if (this.#youngBytes > this.#maxBytes / 2) {
      this.#older = this.#young;
      this.#young = new Map();
      this.#youngBytes = history.memory;
    } else if (isYoung) return;
    this.#young.set(name, history);
    this.#older.delete(name);
  }

  /** Forgets a run, for example because it has ended. */
  delete(run: RunNeed): void {
    const name = formatRun(run);
    this.#young.delete(name);
    this.#older.delete(name);
  }

  forget(): void {
    this.#young = new Map();
    this.#older = new Map();
    this.#youngBytes = 0;
  }
}

const formatRun = ({ account, run }: RunNeed): string => `${account} ${run}`;
