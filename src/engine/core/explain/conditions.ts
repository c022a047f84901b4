import type { Attempted } from "../accounts/hostStatistics.ts";
import { wasAccepted } from "../accounts/hostStatistics.ts";
import type { LogRow } from "../model/logRow.ts";
import { recordsEnd } from "../model/logRow.ts";
import type { Schedule } from "../model/schedule.ts";
import { toTag } from "../search/tags.ts";
import type { Millis, NodeId } from "../values/basics.ts";
import { minute } from "../values/time.ts";
import type { Condition } from "./condition.ts";
import { describeFailure, formatMany, formatSpan, makeCondition, sortConditions } from "./condition.ts";
import type { GateFact, PauseFact } from "./gateConditions.ts";
import { findGateCondition } from "./gateConditions.ts";
import type { HostFacts } from "./hostConditions.ts";
import { findHostConditions } from "./hostConditions.ts";
import type { SlowRuns } from "./slowRuns.ts";
import { describeSlowRuns } from "./slowRuns.ts";

// Decides what is wrong. The overview, the alerts, the metrics, the command line and the self-check of a
// server show the same conditions. So none of them reports success while another one reports a problem.

/** A schedule, as far as conditions need it. `passedOver` is worded with its remedy. */
export type ScheduleFact = Pick<Schedule, "id" | "dueAt" | "paused" | "lastAt" | "passedOver">;

/** The state of the server that every account feels, and of what belongs to its operator. */
export type ServerFacts = {
  /** Why new messages are refused, or null. */
  refuses: string | null;
  /** Why this node takes no requests from a load balancer, or null. */
  notReady: string | null;
  isHeld: boolean;
  lostBatches: number;
  lostNodes: readonly NodeId[];
  copy: { lag: Millis; isComplete: boolean } | null;
  /** The disk of the server. Null if it is not known. */
  disk: { free: number; total: number } | null;
  /** Whether the account belongs to the operator, who also sees the conditions of the machines. */
  isOperators: boolean;
};

type LoggedAttempt = Attempted & Pick<LogRow, "tags" | "states">;

/** A copy that lacks changes for this long is behind. */
const copyBehindAfter: Millis = minute;
/** From this share on, a quota or a disk is near its limit. */
const nearLimit = 0.9;

/** The state of an account on which its conditions depend. Every list is bounded. */
export type ConditionFacts = Omit<HostFacts, "log"> & {
  /** Why publishes of the account are refused, or null. */
  refuses: string | null;
  server: ServerFacts;
  storage: { used: number; max: number };
  log: readonly LoggedAttempt[];
  gates: readonly GateFact[];
  pauses: readonly PauseFact[];
  schedules: readonly ScheduleFact[];
  slowRuns: readonly SlowRuns[];
};

/** Returns what is wrong for an account, the most urgent first. */
export function findConditions(facts: ConditionFacts, now: Millis): Condition[] {
  const ends = findLastEnds(facts.log);
  return sortConditions([
    ...findServerConditions(facts.server),
    ...findAccountRefusal(facts),
    ...findStorageCondition(facts.storage),
    ...findHostConditions(facts, now),
    ...facts.gates.flatMap((gate) => findGateCondition(gate, facts.pauses, now)),
    ...facts.slowRuns.map((runs) => describeSlowRuns(runs, now)),
    ...facts.schedules.flatMap((schedule) =>
      findScheduleConditions({ schedule, ended: ends.get(toTag.schedule(schedule.id)) }, now),
    ),
  ]);
}

/** Reports whether an account has used most of its quota. */
export const isStorageLow = ({ used, max }: ConditionFacts["storage"]): boolean => used >= nearLimit * max;

function findServerConditions({ isOperators, ...server }: ServerFacts): Condition[] {
  const { refuses, notReady, isHeld, lostBatches, lostNodes, copy, disk } = server;
  const forAll = [
    refuses !== null &&
      makeCondition({
        kind: "server.refusing",
        level: "problem",
        subject: "server",
        text: `The server refuses new messages: ${refuses}`,
      }),
    notReady !== null &&
      makeCondition({
        kind: "server.notReady",
        level: "problem",
        subject: "server",
        // The reason may name files of the server.
        text: `The server is not ready${isOperators ? `: ${notReady}` : ""}`,
      }),
    isHeld &&
      makeCondition({
        kind: "deliveries.held",
        level: "problem",
        subject: "server",
        text: "No message is sent: the operator has paused all deliveries",
      }),
  ];
  const forOperator = [
    lostBatches > 0 &&
      makeCondition({
        kind: "changes.lost",
        level: "problem",
        subject: "database",
        text: `The database has lost ${formatMany(lostBatches, "batch", "batches")} of saved changes`,
        count: lostBatches,
      }),
    ...findDiskCondition(disk),
    ...lostNodes.map((node) =>
      makeCondition({
        kind: "node.lost",
        level: "warning",
        subject: node,
        text: `Node ${node} is lost. Other nodes have taken over its messages`,
      }),
    ),
    copy !== null &&
      (copy.lag >= copyBehindAfter || !copy.isComplete) &&
      makeCondition({
        kind: "copy.behind",
        level: "warning",
        subject: "copy",
        text: copy.isComplete
          ? `The second copy of the store is ${formatSpan(copy.lag)} behind`
          : "The second copy of the store is not complete",
      }),
  ];
  return [...forAll, ...(isOperators ? forOperator : [])].filter((one) => one !== false);
}

const findAccountRefusal = ({ refuses }: ConditionFacts): Condition[] =>
  refuses === null
    ? []
    : [
        makeCondition({
          kind: "account.refusing",
          level: "problem",
          subject: "account",
          text: `New messages of the account are refused: ${refuses}`,
        }),
      ];

/** Returns the condition of a disk that has little room. */
export const findDiskCondition = (disk: ServerFacts["disk"]): Condition[] =>
  disk === null || disk.total - disk.free < nearLimit * disk.total
    ? []
    : [
        makeCondition({
          kind: "disk.low",
          level: "warning",
          subject: "disk",
          text: `${disk.free} of ${disk.total} bytes of the disk are free`,
        }),
      ];

function findStorageCondition({ used, max }: ConditionFacts["storage"]): Condition[] {
  if (!isStorageLow({ used, max })) return [];
  const isFull = used >= max;
  const effect = isFull ? "publishes are refused" : "at the limit, publishes are refused";
  return [
    makeCondition({
      kind: isFull ? "storage.full" : "storage.low",
      level: isFull ? "problem" : "warning",
      subject: "storage",
      text: `${used} of ${max} bytes are used; ${effect}`,
    }),
  ];
}

type ScheduleParts = { schedule: ScheduleFact; ended: LoggedAttempt | undefined };

/** `ended`: the newest log entry that records the end of a message of the schedule. */
function findScheduleConditions({ schedule, ended }: ScheduleParts, now: Millis): Condition[] {
  const { id: subject, dueAt, paused, lastAt, passedOver } = schedule;
  const title = `Schedule ${subject}`;
  if (paused)
    return [makeCondition({ kind: "schedule.paused", level: "note", subject, text: `${title} is paused` })];
  const found = [
    dueAt !== null &&
      dueAt <= now - minute &&
      makeCondition({
        ...{ kind: "schedule.late", level: "problem", subject, since: dueAt },
        text: `${title} has not fired`,
      }),
    passedOver !== undefined &&
      makeCondition({
        ...{ kind: "schedule.refused", level: "problem", subject, since: lastAt },
        text: `${title} published nothing: ${passedOver}`,
      }),
    ended?.states.includes("FAILED") === true &&
      makeCondition({
        ...{ kind: "schedule.failing", level: "problem", subject, since: ended.time },
        text: `The last message of schedule ${subject} failed: ${describeFailure(ended)}`,
      }),
  ];
  return found.filter((one) => one !== false);
}

/** Returns the newest log entry that records the end of a message, by the tag of its schedule. */
function findLastEnds(log: readonly LoggedAttempt[]): ReadonlyMap<string, LoggedAttempt> {
  const ends = new Map<string, LoggedAttempt>();
  for (const row of log)
    if (recordsEnd(row) || wasAccepted(row))
      for (const tag of row.tags) if ((ends.get(tag)?.time ?? -1) < row.time) ends.set(tag, row);
  return ends;
}
