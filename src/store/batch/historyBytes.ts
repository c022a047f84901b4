import type { StepsNeed } from "../../core/decision/command.ts";
import { memory } from "../../core/values/limits.ts";

/** What a row of a history takes up besides its body, roughly. */
export const stepRowBytes = 512;

/** Which histories a batch loads with their bodies: as many as its bytes go. */
export class HistoryBytes {
  readonly #maxBytes: number;
  #bytes = 0;
  readonly #skipped = new Set<string>();

  /** `isAlone`: there is only one call, which cannot be left for later. */
  constructor({ isAlone }: { isAlone: boolean }) {
    this.#maxBytes = isAlone ? Infinity : memory.batch;
  }

  /** Those that are loaded: the first one always. The others are left. */
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
