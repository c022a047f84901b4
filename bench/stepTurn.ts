/** The steps of workflow runs that execute in this process, and the times between them. */
import { microseconds } from "./clock.ts";
import { type Spread, spread } from "./figures.ts";

/** The result of each step: 10 bytes of JSON. */
export const stepResult = "resulted";

/** The time from the end of a step to the start of the next step of the same run. */
export class StepGaps {
  readonly #gaps: Float64Array;
  #count = 0;

  constructor(steps: number) {
    this.#gaps = new Float64Array(steps);
  }

  /** Adds the time since the previous step of a run ended, in microseconds. */
  add(endedAt: number): void {
    if (this.#count < this.#gaps.length) this.#gaps[this.#count++] = microseconds() - endedAt;
  }

  report(): Spread {
    return spread(this.#gaps, this.#count);
  }
}

/** The figures of the process that executes the steps. `cpu` is its share of a core. */
export type StepReport = { between: Spread; cpu: number };

let gaps = new StepGaps(0);
let startedAt = 0;
let cpuAtStart = process.cpuUsage();

/** The requests of a process that executes steps: the begin and the end of a turn. */
export const stepAnswers = {
  begin: ({ steps }: { steps: number }): void => {
    gaps = new StepGaps(steps);
    startedAt = microseconds();
    cpuAtStart = process.cpuUsage();
  },
  finish: (): StepReport => {
    const { user, system } = process.cpuUsage(cpuAtStart);
    return { between: gaps.report(), cpu: (user + system) / (microseconds() - startedAt) };
  },
};

/** Executes the steps of one run. `take` executes one step durably. */
export async function takeSteps(
  steps: number,
  take: (name: string, work: () => Promise<string>) => PromiseLike<unknown>,
): Promise<void> {
  let endedAt = 0;
  const work = async (): Promise<string> => {
    if (endedAt > 0) gaps.add(endedAt);
    endedAt = microseconds();
    return stepResult;
  };
  for (let step = 1; step <= steps; step++) await take(`step ${step}`, work);
}
