import type { Millis } from "../model/message.ts";
import type { FailedStep } from "../model/failureText.ts";
import { maxErrorLength } from "../model/failureText.ts";

/** A failed run, as far as it is told apart from others. */
export type FailureSummary = { dlqId: string; time: Millis; url: string; error: string } & FailedStep;

/** Failures that look alike. `error` has `…` for whatever differs from one to the next. */
export type FailureGroup = FailedStep & { url: string; error: string; count: number; firstAt: Millis; lastAt: Millis; dlqId: string };

/** Puts together what failed at the same step with the same error; most frequent first, then the one that failed last. `dlqId`: the latest. */
export function groupFailures(failures: Iterable<FailureSummary>): FailureGroup[] {
  const groups = new Map<string, FailureGroup>();
  for (const { dlqId, time, url, stepName, afterStep, ...failure } of failures) {
    const error = normalizeError(failure.error);
    const key = JSON.stringify([url, stepName, afterStep, error]);
    const known = groups.get(key) ?? { url, stepName, afterStep, error, count: 0, firstAt: time, lastAt: time, dlqId };
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

/** What is shown of an error. */
const maxShownLength = maxErrorLength / 4;

/**
 * An error without what differs from one time to the next: quoted texts, identifiers, numbers, hexadecimals. The first
 * line of it, cut. Texts that are equal then are taken for the same error. Where the code does not fit a history, the
 * quoted names tell which steps, and stay.
 */
export function normalizeError(text: string): string {
  const [line = ""] = text
    .trim()
    .slice(0, maxErrorLength)
    .split(/[\r\n]/, 1);
  const mismatch = /^(?:a step|step \d+)(: history has "(?:[^"\\]|\\.)*", the endpoint ran "(?:[^"\\]|\\.)*")$/.exec(line);
  const plain = mismatch ? `step …${mismatch[1]}` : withoutValues(line);
  return plain.length > maxShownLength ? `${plain.slice(0, maxShownLength)}…` : plain;
}

const withoutValues = (line: string): string =>
  line
    .replace(/"[^"]*"|`[^`]*`|(?<![\p{L}\p{N}])'[^']*'(?![\p{L}\p{N}])/gu, "…")
    .replace(/[\p{L}\p{N}_-]+/gu, (word) => (isPlainWord(word) ? word : "…"))
    .replace(/…([.:/,-]?…)+/g, "…")
    .replace(/\s+/g, " ")
    .trim();

/** A word that is the same each time: no number, and nothing that a program made up. */
const isPlainWord = (word: string): boolean => !/\p{N}/u.test(word) && !/^[a-f]{8,}$/i.test(word);
