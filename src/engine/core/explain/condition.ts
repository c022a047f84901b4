import type { Actor } from "../model/auditEntry.ts";
import type { Millis } from "../values/basics.ts";
import { day, hour, minute, second } from "../values/time.ts";

/** The kinds of conditions, the most urgent first. */
export const conditionKinds = [
  "server.refusing",
  "server.notReady",
  "account.refusing",
  "deliveries.held",
  "changes.lost",
  "storage.full",
  "host.refused",
  "host.failing",
  "host.hanging",
  "schedule.late",
  "schedule.refused",
  "schedule.failing",
  "source.rejecting",
  "outbox.failing",
  "outbox.rejecting",
  "outbox.late",
  "token.refused",
  "publishes.dropped",
  "queue.blocked",
  "key.blocked",
  "puller.missing",
  "limit.blocked",
  "queue.drowning",
  "key.drowning",
  "runs.slow",
  "queue.paused",
  "key.paused",
  "storage.low",
  "disk.low",
  "node.lost",
  "copy.behind",
  "queue.limited",
  "key.limited",
  "puller.busy",
  "schedule.paused",
  "source.paused",
] as const;
/** The kind of a condition. */
export type ConditionKind = (typeof conditionKinds)[number];

/**
 * How urgent a condition is.
 * - `problem`: something does not work.
 * - `warning`: something waits for a person, or will stop working.
 * - `note`: it works as it was set up, and somebody may want to know. It causes no alert.
 */
export const conditionLevels = ["problem", "warning", "note"] as const;
/** How urgent a condition is. */
export type ConditionLevel = (typeof conditionLevels)[number];

/** Something that is wrong, or that somebody may want to know. The text is for people. */
export type Condition = {
  kind: ConditionKind;
  level: ConditionLevel;
  /** The name or id of the thing: a host, a queue, a schedule and so on. */
  subject: string;
  text: string;
  /** Since when, or null if that is not known. */
  since: Millis | null;
  /** When the oldest message that waits was due, or null if none waits or it is not known. */
  oldestDueAt: Millis | null;
  /** The messages that wait, or the calls that were rejected. */
  count: number | null;
  /** The person who caused it, if one did and the audit log still has it. */
  by: Actor | null;
};

/** The kinds of conditions that concern the server, and not one account. */
const serverKinds: ReadonlySet<ConditionKind> = new Set([
  "server.refusing",
  "server.notReady",
  "deliveries.held",
  "changes.lost",
  "disk.low",
  "node.lost",
  "copy.behind",
]);

/** Reports whether a condition is one of the server. Each account that may see it has it. */
export const isOfServer = (kind: ConditionKind): boolean => serverKinds.has(kind);

/** How far back failures and rejections count. */
export const conditionWindow: Millis = hour;

/** Returns conditions by urgency: by level, then in the order of their kinds, then the oldest first. */
export const sortConditions = (conditions: readonly Condition[]): Condition[] =>
  conditions.toSorted(
    (a, b) =>
      conditionLevels.indexOf(a.level) - conditionLevels.indexOf(b.level) ||
      conditionKinds.indexOf(a.kind) - conditionKinds.indexOf(b.kind) ||
      (a.since ?? 0) - (b.since ?? 0) ||
      (a.subject < b.subject ? -1 : 1),
  );

/** The conditions of one kind that are listed one by one. */
const maxOfKind = 10;

/** Returns conditions with at most a few of each kind. One more says how many others there are. */
export function shortenConditions(conditions: readonly Condition[]): Condition[] {
  const seen = new Map<ConditionKind, number>();
  return conditions.flatMap((condition): Condition[] => {
    const { kind, level } = condition;
    const number = (seen.get(kind) ?? 0) + 1;
    seen.set(kind, number);
    if (number < maxOfKind) return [condition];
    if (number > maxOfKind) return [];
    const others = conditions.filter((one) => one.kind === kind).length - maxOfKind + 1;
    return others === 1
      ? [condition]
      : [makeCondition({ kind, level, subject: "", text: `${others} more: ${kind}`, count: others })];
  });
}

/** Returns a condition in which all that is not known is null. */
export const makeCondition = (
  known: Pick<Condition, "kind" | "level" | "subject" | "text"> & Partial<Condition>,
): Condition => ({
  ...{ since: null, oldestDueAt: null, count: null, by: null },
  ...known,
});

export const describeFailure = ({ status, error }: { status: number | null; error: string | null }): string =>
  status === null ? (error ?? "no response") : `status ${status}`;

export const formatMany = (count: number, one: string, many: string): string =>
  `${count} ${count === 1 ? one : many}`;

/** Returns a time span for people, in its largest unit: 40 s, 6 min, 3 h or 2 d. */
export function formatSpan(span: Millis): string {
  const units = [
    [day, "d"],
    [hour, "h"],
    [minute, "min"],
  ] as const;
  const [length, unit] = units.find(([one]) => span >= one) ?? [second, "s"];
  return `${Math.round(span / length)} ${unit}`;
}
