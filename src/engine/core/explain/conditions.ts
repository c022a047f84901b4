import type { Attempted } from "../accounts/hostStatistics.ts";
import { readAttemptHost, sumAttemptsByHost, wasAccepted } from "../accounts/hostStatistics.ts";
import type { Gate, GateKind } from "../admission/gate.ts";
import type { Actor } from "../model/auditEntry.ts";
import type { Limiter } from "../model/limiter.ts";
import type { Schedule } from "../model/schedule.ts";
import type { HostFailures } from "../node/failingLanes.ts";
import { toTag } from "../search/tags.ts";
import type { Millis, NodeId } from "../values/basics.ts";
import { day, hour, minute, second } from "../values/time.ts";

// Decides what is wrong. The overview, the alerts, the metrics, the command line and the self-check of a
// server show the same conditions. So none of them reports success while another one reports a problem.

/** The kinds of conditions, the most urgent first. */
export const conditionKinds = [
  "server.refusing",
  "deliveries.held",
  "changes.lost",
  "storage.full",
  "host.failing",
  "host.hanging",
  "schedule.late",
  "schedule.refused",
  "schedule.failing",
  "source.rejecting",
  "queue.blocked",
  "key.blocked",
  "limit.blocked",
  "queue.paused",
  "key.paused",
  "storage.low",
  "disk.low",
  "node.lost",
  "copy.behind",
  "queue.limited",
  "key.limited",
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
  /** The messages that wait, or the calls that were rejected. */
  count: number | null;
  /** The person who caused it, if one did and the audit log still has it. */
  by: Actor | null;
};

/** The deliveries of one node to a host that are in flight. `since`: when the oldest was sent. */
export type HostInFlight = { host: string; count: number; since: Millis };

/**
 * A queue, a key or a limit of the account that is paused or holds messages. `held`: the number of them, and
 * `more` if there are more. `dueAt`: when the oldest was due, and `passedAt`: when a message that had passed
 * the gate was last accepted; null if that is not known.
 */
export type GateFact = {
  gate: Gate;
  limiter: Pick<Limiter, "paused" | "parallelism" | "running" | "rate" | "period" | "windowStart"> | null;
  held: { count: number; more: boolean };
  dueAt: Millis | null;
  passedAt: Millis | null;
};

/** A pause that the audit log records. */
export type PauseFact = { gate: Gate; time: Millis; by: Actor };

/** A schedule, as far as conditions need it. `passedOver` is worded with its remedy. */
export type ScheduleFact = Pick<Schedule, "id" | "dueAt" | "paused" | "lastAt" | "passedOver">;

/** The state of the server that every account feels, and of what belongs to its operator. */
export type ServerFacts = {
  /** Why new messages are refused, or null. */
  refuses: string | null;
  isHeld: boolean;
  lostBatches: number;
  lostNodes: readonly NodeId[];
  copy: { lag: Millis; isComplete: boolean } | null;
  /** The disk of the server. Null if it is not known. */
  disk: { free: number; total: number } | null;
  /** Whether the account belongs to the operator, who also sees the conditions of the machines. */
  isOperators: boolean;
};

/** The state of an account on which its conditions depend. Every list is bounded. */
export type ConditionFacts = {
  server: ServerFacts;
  storage: { used: number; max: number };
  /** The newest log entries. */
  log: readonly (Attempted & { tags: readonly string[] })[];
  /** The hosts whose last attempts by this node have failed. The log of a busy account covers little time. */
  failing: readonly HostFailures[];
  /** The deliveries of this node that are in flight. */
  inFlight: readonly HostInFlight[];
  gates: readonly GateFact[];
  pauses: readonly PauseFact[];
  schedules: readonly ScheduleFact[];
};

/** How far back failures and rejections count. */
export const conditionWindow: Millis = hour;
/** The fewest attempts to a host from which it counts as failing. */
const fewestAttempts = 3;
/**
 * A host that has responded to nothing for this long hangs, unless it usually takes longer. A few deliveries
 * may be long calls, so they are given more time.
 */
const hangsAfter = { many: 20 * second, few: 5 * minute } as const;
/** A host hangs after this many times the duration that 95 % of its attempts do not exceed. */
const hangFactor = 4;
/** A message that has been due for this long at a gate is blocked, unless its queue or key moves. */
const blockedAfter: Millis = minute;
/** A queue or key moves if one of its messages was accepted within this time. */
const movesWithin: Millis = 5 * minute;
/** A copy that lacks changes for this long is behind. */
const copyBehindAfter: Millis = minute;
/** From this share on, a quota or a disk is near its limit. */
const nearLimit = 0.9;

/** Returns what is wrong for an account, the most urgent first. */
export const findConditions = (facts: ConditionFacts, now: Millis): Condition[] =>
  sortConditions([
    ...findServerConditions(facts.server),
    ...findStorageCondition(facts.storage),
    ...findHostConditions(facts, now),
    ...facts.gates.flatMap((gate) => findGateCondition(gate, facts, now)),
    ...facts.schedules.flatMap((schedule) => findScheduleConditions(schedule, facts, now)),
  ]);

/** Returns conditions by urgency: by level, then in the order of their kinds, then the oldest first. */
export const sortConditions = (conditions: readonly Condition[]): Condition[] =>
  conditions.toSorted(
    (a, b) =>
      conditionLevels.indexOf(a.level) - conditionLevels.indexOf(b.level) ||
      conditionKinds.indexOf(a.kind) - conditionKinds.indexOf(b.kind) ||
      (a.since ?? 0) - (b.since ?? 0) ||
      (a.subject < b.subject ? -1 : 1),
  );

/** Returns a condition in which all that is not known is null. */
export const makeCondition = (
  known: Pick<Condition, "kind" | "level" | "subject" | "text"> & Partial<Condition>,
): Condition => ({ since: null, count: null, by: null, ...known });

/** Reports whether an account has used most of its quota. */
export const isStorageLow = ({ used, max }: ConditionFacts["storage"]): boolean => used >= nearLimit * max;

function findServerConditions({ isOperators, ...server }: ServerFacts): Condition[] {
  const { refuses, isHeld, lostBatches, lostNodes, copy, disk } = server;
  const forAll = [
    refuses !== null &&
      makeCondition({
        kind: "server.refusing",
        level: "problem",
        subject: "server",
        text: `The server refuses new messages: ${refuses}`,
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

function findHostConditions({ log, failing, inFlight }: ConditionFacts, now: Millis): Condition[] {
  const inLog = new Map(sumAttemptsByHost(log).map((host) => [host.host, host]));
  const byNode = new Map(failing.map((host) => [host.host, host]));
  const open = new Map(inFlight.map((host) => [host.host, host]));
  const rows = Map.groupBy(log, readAttemptHost);
  return [...new Set([...inLog.keys(), ...byNode.keys(), ...open.keys()])].flatMap((host) => {
    const attempts = rows.get(host) ?? [];
    const known = inLog.get(host);
    const since = findFailingSince(attempts, byNode.get(host), now);
    if (since !== null) {
      const answer = known?.lastFailure ? `: ${describeFailure(known.lastFailure)}` : "";
      return makeCondition({
        kind: "host.failing",
        level: "problem",
        subject: host,
        text: `${host} has accepted nothing for ${formatSpan(now - since)}${answer}`,
        since,
        count: open.get(host)?.count ?? null,
      });
    }
    const waiting = open.get(host);
    if (!waiting || !isHanging(waiting, { attempts, usual: known?.p95 ?? null }, now)) return [];
    return makeCondition({
      kind: "host.hanging",
      level: "problem",
      subject: host,
      text:
        `${host} has answered none of ${formatMany(waiting.count, "delivery", "deliveries")} in flight for ` +
        formatSpan(now - waiting.since),
      since: waiting.since,
      count: waiting.count,
    });
  });
}

/**
 * Returns since when a host has accepted nothing in spite of several attempts, or null. `attempts` are those
 * of all nodes in the newest part of the log, and `ofNode` is what this node has seen.
 */
function findFailingSince(
  attempts: readonly Attempted[],
  ofNode: HostFailures | undefined,
  now: Millis,
): Millis | null {
  const lastSuccess = Math.max(0, ...attempts.flatMap((row) => (wasAccepted(row) ? [row.time] : [])));
  const inLog = attempts.flatMap(({ time }) => (time > lastSuccess ? [time] : []));
  const seen = ofNode && ofNode.since > lastSuccess ? ofNode : null;
  const times = [...inLog, ...(seen ? [seen.since, seen.last] : [])];
  const isFailing =
    Math.max(...times) > now - conditionWindow &&
    Math.max(inLog.length, seen?.failures ?? 0) >= fewestAttempts;
  return isFailing ? Math.min(...times) : null;
}

/** Reports whether a host answers nothing: it has accepted nothing since the oldest in flight was sent. */
const isHanging = (
  { count, since }: HostInFlight,
  { attempts, usual }: { attempts: readonly Attempted[]; usual: Millis | null },
  now: Millis,
): boolean =>
  now - since >= Math.max(hangsAfter[count < fewestAttempts ? "few" : "many"], hangFactor * (usual ?? 0)) &&
  attempts.every((row) => row.time < since || !wasAccepted(row));

const gateNames: Readonly<Record<GateKind, string>> = {
  queue: "Queue",
  key: "Key",
  endpoint: "The account's limit for the endpoint",
  account: "The account's limit",
  capacity: "The server's capacity for the host",
};

function findGateCondition(fact: GateFact, { pauses }: ConditionFacts, now: Millis): Condition[] {
  const { gate, limiter, held, dueAt } = fact;
  const { kind, name } = gate;
  const number = `${held.count}${held.more ? "+" : ""}`;
  const waiting = `${number} ${held.count === 1 ? "message waits" : "messages wait"}`;
  const title = `${gateNames[kind]} ${name}`.trim();
  const common = { subject: name === "" ? kind : name, count: held.count, since: dueAt };
  if (limiter?.paused === true && (kind === "queue" || kind === "key")) {
    const pause = pauses.find((one) => one.gate.kind === kind && one.gate.name === name);
    return [
      makeCondition({
        ...common,
        kind: `${kind}.paused`,
        level: held.count > 0 ? "warning" : "note",
        text: `${title} is paused${held.count > 0 ? `: ${waiting}` : ""}`,
        since: pause?.time ?? dueAt,
        by: pause?.by ?? null,
      }),
    ];
  }
  if (dueAt === null || now - dueAt < blockedAfter) return [];
  const backlog = `${waiting}, the oldest for ${formatSpan(now - dueAt)}`;
  if (kind !== "queue" && kind !== "key")
    return [
      makeCondition({
        ...common,
        kind: "limit.blocked",
        level: "warning",
        text: `${title}: ${backlog}`,
      }),
    ];
  const isMoving = hasMoved(fact, now);
  return [
    makeCondition({
      ...common,
      kind: isMoving ? `${kind}.limited` : `${kind}.blocked`,
      level: isMoving ? "note" : "warning",
      text: isMoving
        ? `${title} sends as fast as its limits allow: ${backlog}${forecast(fact, now)}`
        : `${title}: ${backlog}`,
    }),
  ];
}

/** Reports whether messages pass a queue or key: its rate is in use, or one of its messages was accepted. */
const hasMoved = ({ limiter, passedAt }: GateFact, now: Millis): boolean =>
  (passedAt !== null && passedAt > now - movesWithin) ||
  (limiter !== null && limiter.rate !== null && limiter.windowStart > now - 2 * limiter.period);

/** Returns when a key with a rate will have sent what it holds, as the end of a sentence. */
function forecast({ gate, limiter, held }: GateFact, now: Millis): string {
  if (gate.kind !== "key" || !limiter || limiter.rate === null || limiter.rate === 0 || held.more) return "";
  const windows = Math.ceil(held.count / limiter.rate);
  const left = Math.max(0, limiter.windowStart + windows * limiter.period - now);
  return `. The last one is sent in about ${formatSpan(left)}`;
}

function findScheduleConditions(
  { id, dueAt, paused, lastAt, passedOver }: ScheduleFact,
  { log }: ConditionFacts,
  now: Millis,
): Condition[] {
  if (paused)
    return [
      makeCondition({
        kind: "schedule.paused",
        level: "note",
        subject: id,
        text: `Schedule ${id} is paused`,
      }),
    ];
  if (dueAt !== null && dueAt <= now - minute)
    return [
      makeCondition({
        kind: "schedule.late",
        level: "problem",
        subject: id,
        text: `Schedule ${id} has not fired`,
        since: dueAt,
      }),
    ];
  if (passedOver !== undefined)
    return [
      makeCondition({
        kind: "schedule.refused",
        level: "problem",
        subject: id,
        text: `Schedule ${id} published nothing: ${passedOver}`,
        since: lastAt,
      }),
    ];
  const tag = toTag.schedule(id);
  const attempts = log.filter((row) => readAttemptHost(row) !== undefined && row.tags.includes(tag));
  const last = attempts.reduce<(typeof attempts)[number] | null>(
    (newest, row) => (newest === null || row.time > newest.time ? row : newest),
    null,
  );
  return last === null || wasAccepted(last)
    ? []
    : [
        makeCondition({
          kind: "schedule.failing",
          level: "problem",
          subject: id,
          text: `The last message of schedule ${id} failed: ${describeFailure(last)}`,
          since: last.time,
        }),
      ];
}

const describeFailure = ({ status, error }: { status: number | null; error: string | null }): string =>
  status === null ? (error ?? "no response") : `status ${status}`;

const formatMany = (count: number, one: string, many: string): string =>
  `${count} ${count === 1 ? one : many}`;

/** Returns a time span for people, in its largest unit: 40 s, 6 min, 3 h or 2 d. */
function formatSpan(span: Millis): string {
  const units = [
    [day, "d"],
    [hour, "h"],
    [minute, "min"],
  ] as const;
  const [length, unit] = units.find(([one]) => span >= one) ?? [second, "s"];
  return `${Math.round(span / length)} ${unit}`;
}
