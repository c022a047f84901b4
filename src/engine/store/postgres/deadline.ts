import type { Millis } from "../../core/values/basics.ts";
import { second } from "../../core/values/time.ts";
import { Interrupted } from "../layout/storageErrors.ts";
import type { Deadline } from "../sql/database.ts";

/**
 * How long a batch may take over all of its tries: connections, locks of other transactions, statements and
 * the commit. A database can hang in ways that no single time limit ends. A commit that waits for a missing
 * standby takes any time, although the host still answers, and keeps its row locks.
 */
export const batchTimeout: Millis = 8 * second;

/**
 * The longest time of a batch for the bodies that it stores. A caller waits for it, and is answered after
 * 14 s. Such a body arrives on a link that carries twice its size in about 12 s, because the driver sends a
 * string.
 */
const longestStoring: Millis = 13 * second;
/** The bytes of bodies for each millisecond that a batch may take longer: 2 MB/s. */
const bytesPerMilli = 2_000;

/** Returns how much longer than `time` a batch may take for bodies of this many bytes that it stores. */
export const timeToStore = (bytes: number, time: Millis = batchTimeout): Millis =>
  Math.min(timeFor(bytes), Math.max(0, longestStoring - time));

/** Returns how much longer a batch may take for bodies of this many bytes. */
const timeFor = (bytes: number): Millis => Math.floor(bytes / bytesPerMilli);

/** The longest extension of a deadline, because a commit that hangs keeps its locks until then. */
const longestExtension: Millis = 30 * second;

type DeadlineOptions = {
  time: Millis;
  /** The bytes of bodies for which `time` suffices. */
  bytes?: number;
  /** Waits for `time` milliseconds, or until `wake` is aborted. */
  pause(time: Millis, wake: AbortSignal): Promise<void>;
};

/** Runs a function with a deadline after `time` milliseconds. */
export async function withDeadline<T>(
  run: (deadline: Deadline) => Promise<T>,
  { time, bytes = 0, pause }: DeadlineOptions,
): Promise<T> {
  const end = new AbortController();
  const done = new AbortController();
  let left = time;
  let extension = 0;
  const waitForEnd = async (): Promise<void> => {
    while (left > 0 && !done.signal.aborted) {
      const next = left;
      left = 0;
      await pause(next, done.signal);
    }
    if (!done.signal.aborted) end.abort();
  };
  void waitForEnd();
  const willMove = (more: number): void => {
    const longer = Math.max(extension, Math.min(timeFor(more), longestExtension));
    left += longer - extension;
    extension = longer;
  };
  try {
    return await run({ signal: end.signal, time, bytes, willMove });
  } finally {
    done.abort();
  }
}

/**
 * Returns the setting of a transaction that has more time for large bodies, as SQL. PostgreSQL counts the
 * time in which a statement arrives as silence of the node, and a body may take longer than the silence that
 * is usually allowed. Returns an empty text for all other transactions.
 */
export const formatSilenceLimit = ({ time }: Pick<Deadline, "time">, usual: Millis): string =>
  time - usual < shortestExtension ? "" : `; set local idle_in_transaction_session_timeout = ${time}`;

/**
 * Returns the limit of silence of a transaction that will write bodies of this many bytes, or null if the
 * usual limit suffices.
 */
export function silenceForWriting(bytes: number, usual: Millis): Millis | null {
  const more = Math.min(timeFor(bytes), longestExtension);
  return more < shortestExtension ? null : usual + more;
}

/** In 2 s, the usual limit, any link that is fast enough for larger bodies carries a body below 500 kB. */
const shortestExtension: Millis = second / 4;

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
