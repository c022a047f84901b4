import { z } from "zod";
import type { GateKind } from "../../engine/core/admission/gate.ts";
import { gateKinds, parseGate } from "../../engine/core/admission/gate.ts";
import type { HostAttempts } from "../../engine/core/accounts/hostStatistics.ts";
import type { Point } from "../../engine/core/accounts/statistics.ts";
import type { CountUpTo, HeldAtGate, HostSituation, Situation } from "./situation.ts";
import { hostLogEntries } from "../../engine/core/accounts/hostStatistics.ts";
import { maxSituationCount, situationMinutes } from "./situation.ts";
import { omitMissing } from "../../api/fields/field.ts";

/** The names of paused things that an overview lists. */
const maxNames = 20;
/** The hosts that an overview lists. */
const maxWorstHosts = 5;

const countJson = ({ count, more }: CountUpTo) => ({ count, ...(more ? { more: true as const } : {}) });

const pausedJson = (names: readonly string[]) => ({
  count: names.length,
  names: names.toSorted().slice(0, maxNames),
});

const minuteJson = ({ at, counts }: Point) => ({
  start: at,
  messages: counts.messages + counts.workflowMessages,
  delivered: counts.delivered + counts.workflowDelivered,
  failed: counts.failed + counts.workflowFailed,
  cancelled: counts.cancelled + counts.workflowCancelled,
});

const heldJson = ({ oldestAt, ...count }: HeldAtGate) => ({
  ...countJson(count),
  ...(oldestAt === null ? {} : { oldestAt }),
});

const attemptsJson = ({ host, attempts, failures, p50, p95, lastFailure }: HostAttempts) =>
  omitMissing({
    host,
    attempts,
    failures,
    failureShare: failures / attempts,
    p50,
    p95,
    lastFailure:
      lastFailure &&
      omitMissing({ time: lastFailure.time, responseStatus: lastFailure.status, error: lastFailure.error }),
  });

/** Returns how deliveries to a host go, as the API shows it. */
export const hostJson = ({ host, inFlight, waiting, attempts }: HostSituation): Record<string, unknown> =>
  omitMissing({ host, inFlight, waiting, ...(attempts ? attemptsJson(attempts) : {}) });

/** Returns the situation of an account as the API shows it. */
export function situationJson(
  situation: Situation,
  more: { inFlight: number; maxStorage: number; disk: { free: number; total: number } | null },
): Record<string, unknown> {
  const namesOf = (kind: GateKind): string[] =>
    situation.pausedGates.map(parseGate).flatMap((gate) => (gate.kind === kind ? gate.name : []));
  return omitMissing({
    minutes: situation.minutes.map(minuteJson),
    unfinished: countJson(situation.unfinished),
    inFlight: more.inFlight,
    held: Object.fromEntries(gateKinds.map((kind) => [kind, heldJson(situation.held[kind])])),
    nextDueAt: situation.nextDueAt,
    deadLetters: situation.deadLetters,
    paused: {
      queues: pausedJson(namesOf("queue")),
      keys: pausedJson(namesOf("key")),
      schedules: pausedJson(situation.pausedSchedules),
      sources: pausedJson(situation.pausedSources),
    },
    runs: { active: countJson(situation.activeRuns), failed: countJson(situation.failedRuns) },
    worstHosts: situation.hosts
      .filter(({ failures }) => failures > 0)
      .slice(0, maxWorstHosts)
      .map(attemptsJson),
    storage: { used: situation.storedBytes, max: more.maxStorage },
    disk: more.disk,
  });
}

const natural = z.int().min(0);
const upTo = `counted up to ${maxSituationCount}`;
const countSchema = z.object({
  count: natural.describe(`The number, ${upTo}.`),
  more: z.literal(true).optional().describe("Present if there are more."),
});
const pausedSchema = z.object({
  count: natural.describe("The number of those that are paused, up to 1000 queues and keys together."),
  names: z.array(z.string()).describe(`The names or ids of at most ${maxNames} of them.`),
});
const heldSchema = countSchema.extend({
  oldestAt: z
    .int()
    .optional()
    .describe("When the oldest of those counted was accepted. Absent if none is held."),
});

const unknownDurations =
  "Attempts that a step settled (`settledBy`) are left out, because their durations are not recorded.";

const attemptsFields = {
  attempts: natural
    .optional()
    .describe(
      `The number of attempts among the newest ${hostLogEntries} log entries. Absent if there are none.`,
    ),
  failures: natural.optional().describe("The number of these attempts that failed."),
  failureShare: z.number().optional().describe("The share of these attempts that failed, from 0 to 1."),
  p50: natural
    .optional()
    .describe(
      "The duration that half of these attempts did not exceed, in milliseconds. " + unknownDurations,
    ),
  p95: natural
    .optional()
    .describe(
      "The duration that 95 % of these attempts did not exceed, in milliseconds. " + unknownDurations,
    ),
  lastFailure: z
    .object({
      time: z.int().describe("When the outcome was recorded, in Unix milliseconds."),
      responseStatus: natural.optional().describe("The HTTP status, if there was a response."),
      error: z.string().optional().describe("Why there was no response."),
    })
    .optional()
    .describe("The last failure. Absent if no attempt failed."),
};

/** How deliveries to a host go, as the API shows it. */
export const hostSchema = z.object({
  host: z.string().describe("The host, with the port unless it is the default one."),
  inFlight: natural
    .optional()
    .describe("Deliveries in flight, of this account. Absent if too many of all accounts are in flight."),
  waiting: natural.describe(`Messages that wait for delivery capacity for this host, ${upTo}.`),
  ...attemptsFields,
});

/** The situation of an account, as the API shows it. */
export const situationSchema = z.object({
  minutes: z
    .array(
      z.object({
        start: z.int().describe("The start of the minute, in Unix milliseconds."),
        messages: natural.describe("Messages and callbacks that were accepted, and retries."),
        delivered: natural.describe("Messages that were delivered."),
        failed: natural.describe("Messages that failed for good."),
        cancelled: natural.describe("Messages that were cancelled."),
      }),
    )
    .describe(`The last ${situationMinutes} minutes, the current one last.`),
  unfinished: countSchema.describe("Unfinished messages."),
  inFlight: natural.describe(`Deliveries in flight, ${upTo}.`),
  held: z
    .object(Object.fromEntries(gateKinds.map((kind) => [kind, heldSchema])))
    .describe("Messages that are due and wait at a gate, by gate."),
  nextDueAt: z
    .int()
    .optional()
    .describe(
      "The earliest due time of a message that waits for one, in Unix milliseconds. If it is long past, no " +
        "server claims messages. Absent if no message waits for a time.",
    ),
  deadLetters: natural.describe("Dead letters."),
  paused: z
    .object({ queues: pausedSchema, keys: pausedSchema, schedules: pausedSchema, sources: pausedSchema })
    .describe("Paused queues, keys, schedules and sources."),
  runs: z.object({
    active: countSchema.describe("Workflow runs that have not ended."),
    failed: countSchema.describe("Workflow runs that failed and still exist."),
  }),
  worstHosts: z
    .array(z.object({ host: z.string().describe("The host."), ...attemptsFields }))
    .describe(`At most ${maxWorstHosts} hosts with failures, the largest share of failures first.`),
  storage: z.object({
    used: z.int().describe("Bytes that the account stores."),
    max: z.int().describe("The quota of stored bytes."),
  }),
  disk: z
    .object({
      free: natural.describe("Free bytes."),
      total: natural.describe("All bytes."),
    })
    .optional()
    .describe(
      "The disk of the data folder. Absent on PostgreSQL, and for accounts with a plan of the operator.",
    ),
});
