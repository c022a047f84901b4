import type { StepsNeed } from "../../core/decision/command.ts";
import { memory } from "../../core/values/limits.ts";

/** The approximate size of a history row in bytes, without its body. */
export const stepRowBytes = 512;

/** Selects the histories that a batch loads with their bodies, as many as its bytes allow. */
export class HistoryBytes {
  readonly #maxBytes: number;
  #bytes = 0;
  readonly #skipped = new Set<string>();

  /** `isAlone`: the batch has only one call, which cannot be postponed. */
  constructor({ isAlone }: { isAlone: boolean }) {
    this.#maxBytes = isAlone ? Infinity : memory.batch;
  }

  /** Returns the histories to load. The first one is always loaded; others that do not fit are skipped. */
  pickFitting(needs: readonly StepsNeed[], sizes: readonly number[]): StepsNeed[] {
    return needs.filter((need, at) => {
      const size = sizes[at] ?? 0;
      const fits = this.#bytes === 0 || this.#bytes + size <= this.#maxBytes;
      if (fits) this.#bytes += Math.max(1, size);
      else this.#skipped.add(formatNeed(need));
      return fits;
    });
  }

  isSkipped(need: StepsNeed): boolean {
    return this.#skipped.has(formatNeed(need));
  }
}

const formatNeed = ({ account, run, stepKey = "" }: StepsNeed): string => `${account} ${run}/${stepKey}`;
