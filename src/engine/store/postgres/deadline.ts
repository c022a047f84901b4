import type { Millis } from "../../core/values/basics.ts";
import { second } from "../../core/values/time.ts";
import { Interrupted } from "../layout/storageErrors.ts";

/**
 * How long a batch may take over all of its tries: connections, locks of other transactions, statements and
 * the commit. A database can hang in ways that no single time limit ends: a commit that waits for a missing
 * standby takes any time, although the host still answers, and keeps its row locks.
 */
export const batchTimeout: Millis = 8 * second;

type DeadlineOptions = {
  time: Millis;
  /** Waits for `time` milliseconds, or until `wake` is aborted. */
  pause(time: Millis, wake: AbortSignal): Promise<void>;
};

/** Runs a function with a deadline: a signal that is aborted after `time` milliseconds. */
export async function withDeadline<T>(
  run: (deadline: AbortSignal) => Promise<T>,
  { time, pause }: DeadlineOptions,
): Promise<T> {
  const deadline = new AbortController();
  const done = new AbortController();
  void pause(time, done.signal).then(() => done.signal.aborted || deadline.abort());
  try {
    return await run(deadline.signal);
  } finally {
    done.abort();
  }
}

/** The error of a transaction whose deadline passed before its commit was sent. */
export const makeLate = (cause?: unknown): Interrupted => new Interrupted(lateText, { cause });

/** Why a connection was cut at the deadline, for the log. */
export const lateText = "PostgreSQL did not complete the batch in time";

/**
 * Waits for a result, or throws `Interrupted` once the deadline has passed. The deadline does not stop the
 * work, so no transaction may be open meanwhile.
 */
export async function beforeDeadline<T>(deadline: AbortSignal, result: Promise<T>): Promise<T> {
  let stop: () => void = () => undefined;
  const isOver = new Promise<void>((resolve) => {
    stop = resolve;
    deadline.addEventListener("abort", stop, { once: true });
  });
  try {
    if (!deadline.aborted) await Promise.race([result, isOver]);
  } finally {
    deadline.removeEventListener("abort", stop);
    // After the deadline, no caller waits for the result.
    result.catch(() => undefined);
  }
  if (deadline.aborted) throw makeLate();
  return result;
}
