import type { FieldsOf } from "../../api/fields/field.ts";
import {
  count,
  integer,
  list,
  longText,
  mark,
  number,
  object,
  omitEmpty,
  optional,
  text,
  texts,
  time,
  word,
} from "../../api/fields/field.ts";
import type { NamedActor } from "../../api/fields/actor.ts";
import { actorFields } from "../../api/fields/actor.ts";
import type { Condition } from "../../engine/core/explain/condition.ts";
import { conditionKinds, conditionLevels } from "../../engine/core/explain/condition.ts";
import type { GateKind } from "../../engine/core/admission/gate.ts";
import { hostStates, readHostState } from "../../engine/core/explain/hostState.ts";
import { gateKinds, parseGate } from "../../engine/core/admission/gate.ts";
import { readStart } from "../../engine/core/admission/lease.ts";
import type { HostAttempts, HostPoint } from "../../engine/core/accounts/hostStatistics.ts";
import { hostLogEntries } from "../../engine/core/accounts/hostStatistics.ts";
import type { Point } from "../../engine/core/accounts/statistics.ts";
import type { EndedCounts } from "./endedCounts.ts";
import { maxEndedCount } from "./endedCounts.ts";
import type {
  CountUpTo,
  GateWithHeld,
  HeldAtGate,
  HostDetails,
  HostSituation,
  RunningToHost,
  Situation,
} from "./situation.ts";
import {
  hostMinutes,
  maxNamedGates,
  maxSituationCount,
  maxStateCount,
  situationMinutes,
} from "./situation.ts";

/** The names of paused queues, flow-control keys and schedules in an overview. */
const maxNames = 20;
/** The hosts that an overview lists. */
const maxWorstHosts = 5;
const upTo = `counted up to ${maxSituationCount}`;
const unknownDurations =
  "Attempts that a step settled (`settledBy`) are left out, because their durations are not recorded.";

const failureFields: FieldsOf<NonNullable<HostAttempts["lastFailure"]>> = {
  time: time("When the outcome was recorded, in Unix milliseconds.", ({ time }) => time),
  responseStatus: optional(count)("The HTTP status, if there was a response.", ({ status }) => status),
  error: optional(text)("Why there was no response.", ({ error }) => error),
};

const attemptsFields = {
  attempts: optional(count)(
    `The number of attempts among the newest ${hostLogEntries} log entries. Absent if there are none.`,
    ({ attempts }) => attempts?.attempts,
  ),
  failures: optional(count)(
    "The number of these attempts that failed.",
    ({ attempts }) => attempts?.failures,
  ),
  failureShare: optional(number)(
    "The share of these attempts that failed, from 0 to 1.",
    ({ attempts }) => attempts && attempts.failures / attempts.attempts,
  ),
  p50: optional(count)(
    `The duration that half of these attempts did not exceed, in milliseconds. ${unknownDurations}`,
    ({ attempts }) => attempts?.p50,
  ),
  p95: optional(count)(
    `The duration that 95 % of these attempts did not exceed, in milliseconds. ${unknownDurations}`,
    ({ attempts }) => attempts?.p95,
  ),
  lastFailure: optional(object(failureFields))(
    "The last failure. Absent if no attempt failed.",
    ({ attempts }) => attempts?.lastFailure,
  ),
} satisfies FieldsOf<{ attempts: HostAttempts | null }>;

/** A host, with the conditions of its account. */
export type ShownHost = HostSituation & { conditions: readonly Condition[] };

/** The fields of the delivery statistics of a host. */
export const hostFields = {
  state: word(hostStates)(
    "failing: there is a condition `host.failing`, or at least half of its attempts failed. " +
      "hanging: there is a condition `host.hanging`. unstable: at least 2 % of its attempts failed. " +
      "unknown: no attempt has ended lately.",
    readHostState,
  ),
  host: longText("The host, with the port unless it is the default one.", ({ host }) => host),
  inFlight: optional(count)(
    "Deliveries in flight, of this account. Absent if too many of all accounts are in flight.",
    ({ inFlight }) => inFlight,
    "IN FLIGHT",
  ),
  oldestStart: optional(time)(
    "When the longest attempt in flight began, in Unix milliseconds. Absent if none is in flight.",
    ({ oldestStart }) => oldestStart,
  ),
  waiting: count(
    `Messages that wait for delivery capacity for this host, or to be pulled, ${upTo}.`,
    ({ waiting }) => waiting,
  ),
  ...attemptsFields,
} satisfies FieldsOf<ShownHost>;

const hostMinuteFields: FieldsOf<HostPoint> = {
  start: time("The start of the minute, in Unix milliseconds.", ({ start }) => start),
  attempts: count("Attempts that ended.", ({ attempts }) => attempts),
  failures: count("The number of these attempts that failed.", ({ failures }) => failures),
  p50: optional(count)("The median of their durations, in milliseconds.", ({ p50 }) => p50),
  p95: optional(count)("The duration that 95 % did not exceed, in milliseconds.", ({ p95 }) => p95),
  inFlight: count("Attempts in flight at the end of the minute.", ({ inFlight }) => inFlight),
};

const runningFields: FieldsOf<RunningToHost> = {
  messageId: text("The id of the message.", ({ state }) => state.id),
  attempt: integer("The number of the attempt. The first one is 0.", ({ state }) => state.attempts),
  url: optional(longText)("The URL.", ({ message }) => message?.url),
  queueName: optional(text)("The queue.", ({ state }) => state.queue),
  node: optional(text)("The node that sends it.", ({ state }) => state.leasedBy),
  since: optional(time)("When the attempt began, in Unix milliseconds.", ({ state }) => readStart(state)),
  timeoutAt: optional(time)("When the attempt times out, in Unix milliseconds.", ({ state, message }) => {
    const since = readStart(state);
    return message && since !== null ? since + message.timeout : null;
  }),
  ending: mark("Present if an operator has ended the attempt.", ({ state }) => state.state === "ending"),
};

/** The fields of one host. */
export const hostDetailFields = {
  ...hostFields,
  at: time("The time of the server, in Unix milliseconds.", ({ at }) => at),
  minutes: list(hostMinuteFields)(`The last ${hostMinutes} minutes.`, ({ minutes }) => minutes),
  completeFrom: optional(time)(
    "Minutes before this time lack attempts, because the account has many. Absent if none lack any.",
    ({ completeFrom }) => completeFrom,
  ),
  running: list(runningFields)(
    "At most 100 attempts in flight, the longest first.",
    ({ running }) => running,
  ),
} satisfies FieldsOf<HostDetails & { conditions: readonly Condition[] }>;

const worstHostFields: FieldsOf<{ attempts: HostAttempts }> = {
  host: text("The host.", ({ attempts }) => attempts.host),
  ...attemptsFields,
};

/** The fields of a point of a series. */
export const pointFields: FieldsOf<Point> = {
  start: time("The start of the minute or of the point, in Unix milliseconds.", ({ at }) => at),
  messages: count(
    "Messages and callbacks that were accepted, and retries.",
    ({ counts }) => counts.messages + counts.workflowMessages,
  ),
  delivered: count(
    "Messages that were delivered.",
    ({ counts }) => counts.delivered + counts.workflowDelivered,
  ),
  failed: count("Messages that failed for good.", ({ counts }) => counts.failed + counts.workflowFailed),
  cancelled: count(
    "Messages that were cancelled.",
    ({ counts }) => counts.cancelled + counts.workflowCancelled,
  ),
};

const countFields: FieldsOf<CountUpTo> = {
  count: count(`The number, ${upTo}.`, ({ count }) => count),
  more: mark("Present if there are more.", ({ more }) => more),
};

const namedGateFields: FieldsOf<GateWithHeld> = {
  name: longText("The name of the queue or key, or the endpoint or host.", ({ name }) => name),
  count: count("The number of messages that it holds.", ({ count }) => count),
  paused: mark("Present if it is paused.", ({ isPaused }) => isPaused),
};

const heldFields: FieldsOf<HeldAtGate> = {
  ...countFields,
  oldestAt: optional(time)(
    "When the oldest of those counted was accepted. Absent if none is held.",
    ({ oldestAt }) => oldestAt,
  ),
  largest: optional(list(namedGateFields))(
    `The ${maxNamedGates} gates of this kind that hold most. Absent if none holds any.`,
    ({ largest }) => omitEmpty(largest),
  ),
};

const gateFields: FieldsOf<Situation["held"]> = Object.fromEntries(
  gateKinds.map((kind) => [kind, object(heldFields)("", (held: Situation["held"]) => held[kind])]),
);

const pausedFields: FieldsOf<readonly string[]> = {
  count: count(
    "The number of those that are paused, up to 1000 queues and keys together.",
    (names) => names.length,
  ),
  names: texts(`The names or ids of at most ${maxNames} of them.`, (names) =>
    names.toSorted().slice(0, maxNames),
  ),
};

const readPausedGates = ({ pausedGates }: Situation, kind: GateKind): string[] =>
  pausedGates.map(parseGate).flatMap((gate) => (gate.kind === kind ? gate.name : []));

const pausedOfKind = object(pausedFields);
const pausesFields: FieldsOf<Situation> = {
  queues: pausedOfKind("", (situation) => readPausedGates(situation, "queue")),
  keys: pausedOfKind("", (situation) => readPausedGates(situation, "key")),
  schedules: pausedOfKind("", ({ pausedSchedules }) => pausedSchedules),
  sources: pausedOfKind("", ({ pausedSources }) => pausedSources),
};

const countedEnd = `, counted up to ${maxEndedCount}.`;

const endedFields: FieldsOf<EndedCounts["messages"]> = {
  delivered: object(countFields)(`Delivered messages${countedEnd}`, ({ delivered }) => delivered),
  failed: object(countFields)(`Messages that failed for good${countedEnd}`, ({ failed }) => failed),
  cancelled: object(countFields)(`Cancelled messages${countedEnd}`, ({ cancelled }) => cancelled),
};

const runFields: FieldsOf<ShownSituation> = {
  active: object(countFields)("Workflow runs that have not ended.", ({ activeRuns }) => activeRuns),
  failed: object(countFields)("Workflow runs that failed and still exist.", ({ failedRuns }) => failedRuns),
  succeeded: object(countFields)(
    `Workflow runs with a result${countedEnd}`,
    ({ ended }) => ended.runs.succeeded,
  ),
  cancelled: object(countFields)(`Cancelled workflow runs${countedEnd}`, ({ ended }) => ended.runs.cancelled),
};

const aboutCountedState = `Counted among the first ${maxStateCount} messages that wait for their due time.`;

/** A condition, and who caused it with the name of the token. */
export type ShownCondition = Condition & { by: NamedActor | null };

/** The fields of something that is wrong. */
const conditionFields: FieldsOf<ShownCondition> = {
  kind: word(conditionKinds)("The kind of the problem.", ({ kind }) => kind),
  level: word(conditionLevels)(
    "problem: something does not work. warning: something waits for a person, or will stop working. note: " +
      "it works as it was set up, and somebody may want to know.",
    ({ level }) => level,
  ),
  subject: longText(
    "The thing that it is about: a host, a queue, a schedule, and so on.",
    ({ subject }) => subject,
  ),
  text: text("A sentence for people.", ({ text }) => text),
  since: optional(time)("Since when, in Unix milliseconds. Absent if it is not known.", ({ since }) => since),
  oldestDueAt: optional(time)(
    "When the oldest message that waits was due, in Unix milliseconds. Absent if none waits.",
    ({ oldestDueAt }) => oldestDueAt,
  ),
  count: optional(count)(
    "The number of messages that wait, of deliveries in flight, or of rejected calls.",
    ({ count }) => count,
  ),
  by: optional(object(actorFields))(
    "The person who caused it. Absent if nobody did, or if the audit log has no record of it.",
    ({ by }) => by,
  ),
};

const stateFields: FieldsOf<ShownSituation> = {
  pending: object(countFields)(aboutCountedState, ({ states }) => states.pending),
  retrying: object(countFields)(aboutCountedState, ({ states }) => states.retrying),
  delivering: object(countFields)("", ({ inFlight }): CountUpTo => ({
    count: inFlight,
    more: inFlight >= maxSituationCount,
  })),
  held: object(countFields)("", ({ states }) => states.held),
  paused: object(countFields)("", ({ states }) => states.paused),
};

type ShownSituation = Situation & {
  /** At most a few of each kind. */
  conditions: readonly ShownCondition[];
  inFlight: number;
  ended: EndedCounts;
  maxStorage: number;
  disk: ShownDisk | null;
};

/** `needed`: the free bytes that new messages need, or null if it is not known. */
type ShownDisk = { free: number; total: number; needed: number | null };

/** The fields of the situation of an account. */
export const situationFields: FieldsOf<ShownSituation> = {
  conditions: list(conditionFields)(
    "The problems, the most urgent first. The list is empty if there are none. It has at most 10 " +
      "conditions of a kind. If there are more, the last of them has an empty subject, and its text says " +
      "how many others there are.",
    ({ conditions }) => conditions,
  ),
  minutes: list(pointFields)(
    `The last ${situationMinutes} minutes, the current one last.`,
    ({ minutes }) => minutes,
  ),
  unfinished: object(countFields)("Unfinished messages.", ({ unfinished }) => unfinished),
  states: object(stateFields)(
    "Unfinished messages by state, as the lists show them.",
    (situation) => situation,
  ),
  inFlight: count(`Deliveries in flight, ${upTo}.`, ({ inFlight }) => inFlight),
  ended: object(endedFields)(
    "Messages that have ended and are still in the log, by how they ended.",
    ({ ended }) => ended.messages,
  ),
  held: object(gateFields)("Messages that are due and wait at a gate, by gate.", ({ held }) => held),
  nextDueAt: optional(time)(
    "The earliest due time of a message that waits for one, in Unix milliseconds. If it is long past, no " +
      "server claims messages. Absent if no message waits for a time.",
    ({ nextDueAt }) => nextDueAt,
  ),
  deadLetters: count("Dead letters.", ({ deadLetters }) => deadLetters),
  paused: object(pausesFields)("Paused queues, keys, schedules and sources.", (situation) => situation),
  runs: object(runFields)("", (situation) => situation),
  worstHosts: list(worstHostFields)(
    `At most ${maxWorstHosts} hosts with failures, the largest share of failures first.`,
    ({ hosts }) =>
      hosts
        .filter(({ failures }) => failures > 0)
        .slice(0, maxWorstHosts)
        .map((attempts) => ({ attempts })),
  ),
  storage: object<ShownSituation>({
    used: integer("Bytes that the account stores.", ({ storedBytes }) => storedBytes),
    max: integer("The quota of stored bytes.", ({ maxStorage }) => maxStorage),
  })("", (situation) => situation),
  disk: optional(
    object<ShownDisk>({
      free: count("Free bytes.", ({ free }) => free),
      total: count("All bytes.", ({ total }) => total),
      needed: optional(count)("Free bytes that new messages need.", ({ needed }) => needed),
    }),
  )(
    "The disk of the data folder. Absent on PostgreSQL, and for accounts with a plan of the operator.",
    ({ disk }) => disk,
  ),
};
