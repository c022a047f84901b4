import type { Millis } from "../../engine/core/values/basics.ts";
import { makeUnavailable, Refusal } from "../../engine/core/values/errors.ts";
import { minute, second } from "../../engine/core/values/time.ts";

/**
 * How long a request may take until its response begins, without the time in which its body arrives. The
 * response then begins within 15 s of the last byte, even if the server is slow. A response without an end
 * has begun when its stream is open, and has its own rules from then on.
 */
export const answerTime: Millis = 14 * second;
/** The time of a bulk action. It consists of many batches, and each of them has its own time limit. */
export const bulkAnswerTime: Millis = 2 * minute;
/** After this time, a bulk action begins no further part, so that it is answered in time with what it did. */
export const bulkWorkTime: Millis = bulkAnswerTime - answerTime;

/** Calls `wake` once after a time, unless the returned function is called before. */
type WakeAfter = (after: Millis, wake: () => void) => () => void;

type AnswerOptions<T> = {
  wakeAfter: WakeAfter;
  /** The time that is left. Default: `answerTime`. */
  time?: Millis;
  /** The kind of a request whose work has not ended in time, or whether it was stored, as far as is known. */
  outcome: LateOutcome;
  /** Reports whether the storage may have failed. Default: it may. */
  isInDoubt?(): boolean;
  /** Called with the result of work that ends too late. */
  dropLate?(result: T): void;
};

type LateOutcome = "read" | "bulk" | "notStored" | "unknown";

/**
 * Returns the result of the work for a request, or throws `Refusal` if the work has not ended in time: any
 * part of it may hang. The work itself continues, unless it asks `isLate`. It does not begin if no time is
 * left.
 */
export function answerInTime<T>(
  work: (isLate: () => boolean) => Promise<T>,
  { wakeAfter, time = answerTime, outcome, isInDoubt = () => true, dropLate }: AnswerOptions<T>,
): Promise<T> {
  if (time <= 0)
    return Promise.reject(makeUnavailable("notStored", new Error("the request was admitted too late")));
  return new Promise((resolve, reject) => {
    let isLate = false;
    const stop = wakeAfter(time, () => {
      isLate = true;
      reject(makeLateRefusal(time, { outcome, isInDoubt: isInDoubt() }));
    });
    work(() => isLate).then(
      (result) => {
        stop();
        if (isLate) dropLate?.(result);
        else resolve(result);
      },
      (error: unknown) => {
        stop();
        // After the refusal, this changes nothing.
        reject(error instanceof Error ? error : new Error(String(error)));
      },
    );
  });
}

/**
 * Returns the refusal of a request that was not answered in time. A read or a bulk action may be slow on a
 * storage that works. Any other change is short, so the storage hangs.
 */
function makeLateRefusal(
  time: Millis,
  { outcome, isInDoubt }: { outcome: LateOutcome; isInDoubt: boolean },
): Refusal {
  const late = `the request was not answered within ${formatSeconds(time)}`;
  if (outcome === "bulk") return isInDoubt ? makeUnavailable("unknown", new Error(late)) : makeBulkEnd(late);
  if (outcome !== "read" || isInDoubt) return makeUnavailable(outcome, new Error(late));
  const refusal = new Refusal(
    "too-slow",
    `request: took longer than ${formatSeconds(time)}, and the storage shows no failure; ` +
      "ask for fewer entries, or use a narrower filter",
  );
  refusal.cause = new Error(late);
  return refusal;
}

/** Returns the refusal of a bulk action whose time is over. `cause` is for the log. */
export function makeBulkEnd(cause: string): Refusal {
  const refusal = new Refusal(
    "too-slow",
    `request: a bulk action stops after ${formatSeconds(bulkWorkTime)}; what it did stays done; ` +
      "repeat the request to continue, or start a job with POST /v2/jobs",
  );
  refusal.cause = new Error(cause);
  return refusal;
}

const formatSeconds = (time: Millis): string => `${Math.ceil(time / second)} s`;

/** A request that is answered in time by `AnswerTimes`. `endsAt` is set by `begin`. */
export type TimedRequest = {
  endsAt: number;
  /** Called if the request has not ended in time. It has ended then. */
  refuseLate(refusal: Refusal): void;
};

type Timing = {
  wakeAfter: WakeAfter;
  /** A monotonic clock. */
  elapsed(): Millis;
};

/**
 * Refuses requests that are not answered in `answerTime`, or up to one second earlier. All requests share one
 * timer and need no promise: `answerInTime` costs a publish 1 µs and 1.4 KB. The timer starts at most once
 * per second, and is not set again if no request is open when it ends.
 */
export class AnswerTimes {
  readonly #timing: Timing;
  /** In the order in which they end. */
  readonly #requests = new Set<TimedRequest>();
  #isTimerSet = false;

  constructor(timing: Timing) {
    this.#timing = timing;
  }

  begin(request: TimedRequest): void {
    request.endsAt = this.#timing.elapsed() + answerTime;
    this.#requests.add(request);
    this.#startTimer();
  }

  /** Ends a request. Returns false if it has ended before. */
  end(request: TimedRequest): boolean {
    return this.#requests.delete(request);
  }

  #startTimer(): void {
    if (this.#isTimerSet) return;
    this.#isTimerSet = true;
    this.#timing.wakeAfter(second, () => this.#refuseLate());
  }

  /** Refuses the requests that would be late at the next call. On a busy server, calls come late as well. */
  #refuseLate(): void {
    this.#isTimerSet = false;
    const now = this.#timing.elapsed();
    for (const request of this.#requests) {
      if (request.endsAt - now >= second) break;
      this.end(request);
      request.refuseLate(makeLateRefusal(answerTime, { outcome: "unknown", isInDoubt: true }));
    }
    if (this.#requests.size > 0) this.#startTimer();
  }
}

/** Waits for work, but at most for a time. Never rejects. */
export const waitAtMost = (time: Millis, work: Promise<unknown>, wakeAfter: WakeAfter): Promise<void> =>
  new Promise((resolve) => {
    const stop = wakeAfter(time, resolve);
    const end = (): void => {
      stop();
      resolve();
    };
    work.then(end, end);
  });
