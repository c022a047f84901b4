import type { DeadLetter } from "../model/deadLetter.ts";
import type { Millis } from "../values/basics.ts";
import type { StepHead } from "../model/runPost.ts";
import type { StoredMessage } from "../model/message.ts";
import type { FailedStep } from "../model/failureText.ts";
import {
  findFailedStep,
  formatFailure,
  formatRunFailure,
  maxErrorLength,
  readResponseMessage,
} from "../model/failureText.ts";
import { readIdTime } from "../values/ids.ts";

/**
 * A failed run or message, with the properties by which failures are grouped. Runs have no `status`: one
 * cause may have several.
 */
export type FailureSummary = {
  dlqId: string;
  time: Millis;
  url: string;
  error: string;
  status?: number | null;
} & FailedStep;

/**
 * Failures with the same cause. In `error`, `…` replaces the parts that differ from one failure to the next.
 */
export type FailureGroup = FailedStep & {
  url: string;
  error: string;
  status: number | null;
  count: number;
  firstAt: Millis;
  lastAt: Millis;
  dlqId: string;
};

/** A dead letter and its message. `head` is that of the step to which the message belongs, if it exists. */
type FailedEntry = { deadLetter: DeadLetter; message: StoredMessage; head: StepHead | null };

/** Returns the properties by which a dead letter of a message or a run is grouped. */
export function summarizeFailure({ deadLetter, message, head }: FailedEntry): FailureSummary {
  const { id, run, status, headers } = deadLetter;
  const { redaction } = message;
  const common = { dlqId: id, time: readIdTime(id) };
  if (run) {
    const error = formatFailure(deadLetter, redaction);
    return { ...common, url: run.url, error, ...findFailedStep(message.run?.stepKey, head, headers) };
  }
  const failure = { error: deadLetter.error ?? "", status, ...readResponseMessage(deadLetter.body) };
  const error = formatRunFailure(failure, redaction);
  return { ...common, url: message.url, error, status, stepName: null, afterStep: null };
}

/**
 * Groups failures by URL, step, error and status. The largest group comes first. If two groups are equally
 * large, the group with the latest failure comes first. `dlqId` is the id of the latest failure of the group.
 */
export function groupFailures(failures: Iterable<FailureSummary>): FailureGroup[] {
  const groups = new Map<string, FailureGroup>();
  for (const { dlqId, time, url, stepName, afterStep, status = null, ...failure } of failures) {
    const error = normalizeError(failure.error);
    const key = JSON.stringify([url, stepName, afterStep, error, status]);
    const known = groups.get(key) ?? {
      url,
      stepName,
      afterStep,
      error,
      status,
      count: 0,
      firstAt: time,
      lastAt: time,
      dlqId,
    };
    groups.set(key, {
      ...known,
      count: known.count + 1,
      firstAt: Math.min(known.firstAt, time),
      lastAt: Math.max(known.lastAt, time),
      dlqId: dlqId > known.dlqId ? dlqId : known.dlqId,
    });
  }
  return [...groups.values()].sort((a, b) => b.count - a.count || (a.dlqId < b.dlqId ? 1 : -1));
}

/** The maximum length of a shown error, in characters. */
const maxShownLength = maxErrorLength / 4;

/**
 * Returns the first line of an error without the parts that vary: quoted texts, identifiers, numbers and
 * hexadecimals. The line is cut to its limit. Errors with equal results belong to one group. If the error
 * says that the code does not fit the history, the quoted names of the steps stay, because they identify the
 * cause.
 */
export function normalizeError(text: string): string {
  const [line = ""] = text
    .trim()
    .slice(0, maxErrorLength)
    .split(/[\r\n]/, 1);
  const mismatch =
    /^(?:a step|step \d+)(: history has "(?:[^"\\]|\\.)*", the endpoint ran "(?:[^"\\]|\\.)*")$/.exec(line);
  const normalized = mismatch ? `step …${mismatch[1]}` : withoutValues(line);
  return normalized.length > maxShownLength ? `${normalized.slice(0, maxShownLength)}…` : normalized;
}

const withoutValues = (line: string): string =>
  line
    .replace(/"[^"]*"|`[^`]*`|(?<![\p{L}\p{N}])'[^']*'(?![\p{L}\p{N}])/gu, "…")
    .replace(/[\p{L}\p{N}_-]+/gu, (word) => (isPlainWord(word) ? word : "…"))
    .replace(/…([.:/,-]?…)+/g, "…")
    .replace(/\s+/g, " ")
    .trim();

/**
 * Reports whether a word is plain text and not a value. A word is a value if it contains a digit, or if it
 * consists of at least 8 characters from a to f.
 */
const isPlainWord = (word: string): boolean => !/\p{N}/u.test(word) && !/^[a-f]{8,}$/i.test(word);
