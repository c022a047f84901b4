import type { StepsNeed } from "../../core/decision/command.ts";
import { memory } from "../../core/values/limits.ts";

/** What a row of a history takes up besides its body, roughly. */
export const bytesOfRow = 512;

/** Which histories a batch loads with their bodies: as many as its bytes go. */
export class HistoryBytes {
  readonly #most: number;
  #bytes = 0;
  readonly #left = new Set<string>();

  /** `isAlone`: there is only one call, which cannot be left for later. */
  constructor({ isAlone }: { isAlone: boolean }) {
    this.#most = isAlone ? Infinity : memory.batch;
  }

  /** Those that are loaded: the first one always. The others are left. */
  within(needs: readonly StepsNeed[], sizes: readonly number[]): StepsNeed[] {
    return needs.filter((need, at) => {
      const size = sizes[at] ?? 0;
      const fits = this.#bytes === 0 || this.#bytes + size <= this.#most;
      if (fits) this.#bytes += Math.max(1, size);
      else this.#left.add(nameOf(need));
      return fits;
    });
  }

  isLeft(need: StepsNeed): boolean {
    return this.#left.has(nameOf(need));
  }
}

const nameOf = ({ account, run, slot = "" }: StepsNeed): string => `${account} ${run}/${slot}`;
