import type { DeadLetter } from "../model/deadLetter.ts";
import type { Millis } from "../values/basics.ts";
import type { StepHead } from "../model/runPost.ts";
import type { StoredMessage } from "../model/message.ts";
import type { FailedStep } from "../model/failureText.ts";
import { findFailedStep } from "../model/failureText.ts";
import { readIdTime } from "../values/ids.ts";
import { findCause, findRunCause, toEndpoint } from "../model/cause.ts";

/**
 * A failed run or message, with the properties by which failures are grouped. `cause` is the id of the cause.
 * Runs have no `status`: one group of runs may have several.
 */
export type FailureSummary = {
  dlqId: string;
  time: Millis;
  url: string;
  error: string;
  status?: number | null;
  cause: string;
} & FailedStep;

/**
 * Failures with the same cause. In `error`, `…` replaces the parts that differ from one failure to the
 * next. `trend` has the numbers of failures in equal parts of a time, the oldest first. `isCut`: there are
 * more failures than were counted.
 */
export type FailureGroup = FailedStep & {
  url: string;
  error: string;
  status: number | null;
  cause: string;
  count: number;
  isCut: boolean;
  firstAt: Millis;
  lastAt: Millis;
  dlqId: string;
  trend: readonly number[];
};

/** A dead letter and its message. `head` is that of the step to which the message belongs, if it exists. */
type FailedEntry = { deadLetter: DeadLetter; message: StoredMessage; head: StepHead | null };

/** Returns the properties by which a dead letter of a message or a run is grouped. */
export function summarizeFailure({ deadLetter, message, head }: FailedEntry): FailureSummary {
  const { id, run, status, headers } = deadLetter;
  const { redaction } = message;
  const common = { dlqId: id, time: readIdTime(id) };
  if (run) {
    const step = findFailedStep(message.run?.stepKey, head, headers);
    const cause = findRunCause({ ...deadLetter, url: run.url, step, redaction });
    return { ...common, url: run.url, error: cause.error, cause: cause.id, ...step };
  }
  const cause = findCause({ ...deadLetter, url: message.url, redaction });
  const url = toEndpoint(message.url);
  return { ...common, url, error: cause.error, status, cause: cause.id, stepName: null, afterStep: null };
}

/** The number of parts of the time for which a group shows how many failures were added. */
const trendParts = 24;

/** Returns the bounds of the parts of a time: one more than there are parts. */
export const makeTrendBounds = ({ from, to }: { from: Millis; to: Millis }): Millis[] =>
  Array.from({ length: trendParts + 1 }, (_, at) =>
    Math.round(from + (Math.max(0, to - from) * at) / trendParts),
  );

/**
 * Groups failures by cause, or those of runs by URL, step and error. The largest group comes first. If two
 * groups are equally large, the group with the latest failure comes first. `dlqId` is the id of the latest
 * failure of the group, whose error is shown. `bounds` are those of the trend.
 */
export function groupFailures(
  failures: Iterable<FailureSummary>,
  bounds: readonly Millis[] = [],
): FailureGroup[] {
  const groups = new Map<string, FailureGroup>();
  for (const { dlqId, time, status = null, cause, ...shown } of failures) {
    const empty = { count: 0, firstAt: time, lastAt: time, dlqId, trend: bounds.slice(1).map(() => 0) };
    const known = groups.get(cause) ?? { ...shown, status, cause, isCut: false, ...empty };
    groups.set(cause, {
      ...known,
      ...(dlqId > known.dlqId ? { ...shown, dlqId } : {}),
      count: known.count + 1,
      firstAt: Math.min(known.firstAt, time),
      lastAt: Math.max(known.lastAt, time),
      trend: known.trend.map((count, at) =>
        time >= (bounds[at] ?? Infinity) && time < (bounds[at + 1] ?? 0) ? count + 1 : count,
      ),
    });
  }
  return sortGroups([...groups.values()]);
}

/** Returns the groups in the order in which they are shown. */
export const sortGroups = (groups: FailureGroup[]): FailureGroup[] =>
  groups.sort((a, b) => b.count - a.count || (a.dlqId < b.dlqId ? 1 : -1));
