import { countedStepTypes, messageOrigins } from "../../engine/core/model/activity.ts";
import { gateKinds } from "../../engine/core/admission/gate.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import type { ConditionSample } from "./conditionSampler.ts";
import type { Metrics } from "./metrics.ts";
import type { Labels, Metric, Sample } from "./metricsText.ts";
import { readOutboxMetrics, wholeStore } from "./outboxMetrics.ts";
import { readProcessMetrics } from "./processMetrics.ts";
import type { SpanCounts } from "./tracing/spanExporter.ts";
import type { StoreSample } from "./storeSampler.ts";

/** The state of a second copy of the store: for how long changes have been missing in it, in milliseconds. */
export type CopyReport = { lag: number; isComplete: boolean; writtenBytes: number };

/** Where the metrics of a server come from. */
export type MetricSources = {
  metrics: Metrics;
  build: { version: string; store: string };
  /** The last sample of the whole store, or null. */
  sample(): StoreSample | null;
  now(): Millis;
  /** The number of deliveries of this node that are in flight. */
  inFlight(): number;
  /** Whether all deliveries are held. */
  isOnHold(): boolean;
  /** Whether the server can take requests. */
  isReady(): boolean;
  /** The batches of acknowledged changes that the database has lost. */
  lostBatches(): number;
  /** The spans of traces, or null if they are sent nowhere. */
  spans: SpanCounts | null;
  /** The state of the disk of the store. Null if it is the disk of a database server. */
  diskLack(): { isLow: boolean; isShort: boolean } | null;
  /** The last sample of what is wrong for the accounts, or null. */
  conditions(): ConditionSample | null;
  /** The second copy of the store, or null if none is kept. */
  replica(): CopyReport | null;
};

/** Returns all metrics. A scrape waits for no read of the store: it reads numbers that are in memory. */
export const readMetrics = (sources: MetricSources): Metric[] => [
  gauge("waypost_build_info", "The version and the store of this server.", [[sources.build, 1]]),
  gauge(
    "waypost_ready",
    "1 while this server can take requests, like GET /v2/health/ready.",
    single(sources.isReady() ? 1 : 0),
  ),
  counter(
    "waypost_lost_batches",
    "Batches of acknowledged changes that the database has lost, as after a failover to a standby.",
    single(sources.lostBatches()),
  ),
  ...readConditionMetrics(sources),
  ...readMessageMetrics(sources),
  ...readWorkflowMetrics(sources.metrics),
  ...readStoreMetrics(sources),
  ...readDiskLack(sources),
  ...readReplicaMetrics(sources),
  ...readCommitMetrics(sources.metrics),
  ...readRequestMetrics(sources.metrics),
  ...readSpanMetrics(sources.spans),
  ...readProcessMetrics(),
];

/** Returns a gauge. */
const gauge = (name: string, help: string, samples: readonly Sample[]): Metric => ({
  type: "gauge",
  name,
  help,
  samples,
});

/** Returns a counter. `name` is without `_total`. */
const counter = (name: string, help: string, samples: readonly Sample[]): Metric => ({
  type: "counter",
  name,
  help,
  samples,
});

const noLabels: Labels = {};
const single = (value: number): Sample[] => [[noLabels, value]];

/** Returns one sample for each value of a label. */
const byLabel = (label: string, values: Readonly<Record<string, number>>): Sample[] =>
  Object.entries(values).map(([text, value]) => [{ [label]: text }, value]);

/** Returns one sample for each of these names. */
const pickSamples = <Name extends string>(
  label: string,
  names: readonly Name[],
  read: (name: Name) => number,
): Sample[] => names.map((name) => [{ [label]: name }, read(name)]);

function readMessageMetrics({ metrics, inFlight }: MetricSources): Metric[] {
  const { activities, attempts, attemptDuration, lateness, publishDuration } = metrics;
  return [
    counter(
      "waypost_messages_published",
      "Messages that were stored, by origin: published, a callback, from a schedule, or for a workflow run.",
      pickSamples("kind", messageOrigins, (origin) => activities[`published ${origin}`]),
    ),
    counter(
      "waypost_messages_finished",
      "Messages that ended. Callbacks and messages of workflow runs are included.",
      pickSamples(
        "outcome",
        ["delivered", "failed", "cancelled"] as const,
        (end) => activities[`finished ${end}`],
      ),
    ),
    counter(
      "waypost_delivery_attempts",
      "Attempts of this node, by what followed. late: another node had taken over, so nothing followed.",
      byLabel("outcome", attempts),
    ),
    histogram("waypost_delivery_attempt_duration_seconds", "The whole time of an attempt.", attemptDuration),
    histogram(
      "waypost_delivery_lateness_seconds",
      "The time from when a message was due to its first attempt, with the time that gates held it.",
      lateness,
    ),
    histogram(
      "waypost_publish_duration_seconds",
      "The time to store a publish, until it is on disk. Refused publishes are not measured.",
      publishDuration,
    ),
    gauge(
      "waypost_deliveries_in_flight",
      "Deliveries of this node that are in flight, or whose outcome is not stored yet.",
      single(inFlight()),
    ),
    counter(
      "waypost_leases_expired",
      "Attempts that ended without a report, because their node ended or was cut off.",
      single(activities["lease expired"]),
    ),
    counter(
      "waypost_acknowledged_attempts_expired",
      "Attempts whose receivers answered that they report later, and did not report in time.",
      single(activities["acknowledged attempt expired"]),
    ),
    counter(
      "waypost_quarantined",
      "Due messages and firings that were set aside because the storage refused their changes.",
      single(activities.quarantined),
    ),
    counter(
      "waypost_repairs",
      "Rows that the self-check has corrected, because they would have left work undone.",
      single(activities.repaired),
    ),
    counter(
      "waypost_dead_letters_dropped",
      "Dead letters that were removed because of their age or a limit, and not by a request.",
      single(activities["dead letter expired"]),
    ),
    counter(
      "waypost_alerts_dropped",
      "Alerts that were not sent, because there were too many in an hour or they were held for too long.",
      single(activities["alert dropped"]),
    ),
  ];
}

function readWorkflowMetrics({ activities, scheduleLateness, sourceCalls }: Metrics): Metric[] {
  return [
    counter(
      "waypost_runs",
      "Workflow runs that started or ended. A resumed run starts again.",
      pickSamples(
        "outcome",
        ["started", "succeeded", "failed", "cancelled"] as const,
        (what) => activities[`run ${what}`],
      ),
    ),
    counter(
      "waypost_steps",
      "Steps of workflow runs that were stored, by type. plan: the announcement of a parallel step.",
      pickSamples("type", countedStepTypes, (type) => activities[`step ${type}`] ?? 0),
    ),
    counter(
      "waypost_steps_run_on",
      "Steps after which the endpoint continued in the same call. They are steps of the type Run, too.",
      single(activities["step ran on"] ?? 0),
    ),
    counter(
      "waypost_schedules_fired",
      "Firings of schedules. Skipped firings are not counted.",
      single(activities["schedule fired"]),
    ),
    histogram(
      "waypost_schedule_lateness_seconds",
      "The time from when a schedule was due until it fired.",
      scheduleLateness,
    ),
    counter(
      "waypost_source_calls",
      "Calls to webhook sources. repeated: the event was accepted before.",
      byLabel("outcome", sourceCalls),
    ),
  ];
}

function readStoreMetrics({ sample, now, isOnHold }: MetricSources): Metric[] {
  const read = sample();
  const hold = gauge(
    "waypost_held",
    "1 while all deliveries are paused by the operator.",
    single(isOnHold() ? 1 : 0),
  );
  if (read === null) return [hold];
  const { counts, leased, acknowledging, oldestDueAt, at, disk, outboxes } = read;
  const held = (kind: (typeof gateKinds)[number]): number => counts[`held ${kind}`];
  const states = {
    pending: counts.pending,
    retrying: counts.retrying,
    delivering: leased,
    acknowledging,
    held: gateKinds.reduce((sum, kind) => sum + held(kind), 0),
  };
  return [
    hold,
    gauge("waypost_messages", `Unfinished messages, by state. ${wholeStore}`, byLabel("state", states)),
    gauge(
      "waypost_messages_held",
      `Messages that are due and wait at a gate. ${wholeStore}`,
      pickSamples("gate", gateKinds, held),
    ),
    gauge(
      "waypost_oldest_due_age_seconds",
      `How long the oldest due message that no node is sending and no gate holds has been due. ${wholeStore}`,
      single(oldestDueAt === null ? 0 : Math.max(0, now() - oldestDueAt) / 1000),
    ),
    gauge("waypost_dead_letters", `Dead letters. ${wholeStore}`, single(counts.deadLetters)),
    gauge(
      "waypost_runs_active",
      `Workflow runs that have not ended. ${wholeStore}`,
      single(counts.activeRuns),
    ),
    ...readOutboxMetrics(outboxes),
    gauge("waypost_waiters", `Waiting steps of workflow runs. ${wholeStore}`, single(counts.waiters)),
    gauge(
      "waypost_store_sample_age_seconds",
      "The age of the figures of the whole store. It grows while the store does not respond.",
      single(Math.max(0, now() - at) / 1000),
    ),
    ...(disk === null
      ? []
      : [
          gauge("waypost_store_bytes", "The size of the database file.", single(disk.storeBytes)),
          gauge("waypost_wal_bytes", "The size of the write-ahead log.", single(disk.walBytes)),
          gauge("waypost_disk_free_bytes", "Free space of the data folder's disk.", single(disk.freeBytes)),
        ]),
  ];
}

function readConditionMetrics({ conditions, now }: MetricSources): Metric[] {
  const sample = conditions();
  if (sample === null) return [];
  return [
    gauge(
      "waypost_conditions",
      `Conditions of the accounts, by kind and level, as GET /v2/overview lists them. ${wholeStore}`,
      sample.counts.map(({ kind, level, count }): Sample => [{ kind, level }, count]),
    ),
    gauge(
      "waypost_conditions_sample_age_seconds",
      "The age of the oldest of these figures. A scrape starts the next look at them.",
      single(Math.max(0, now() - sample.at) / 1000),
    ),
  ];
}

function readDiskLack({ metrics, diskLack }: MetricSources): Metric[] {
  const lack = diskLack();
  if (lack === null) return [];
  return [
    gauge(
      "waypost_disk_low",
      "1 while new messages are refused because the disk is almost full.",
      single(lack.isLow ? 1 : 0),
    ),
    gauge(
      "waypost_disk_short",
      "1 while history is removed before its retention ends, because the disk has little room.",
      single(lack.isShort ? 1 : 0),
    ),
    counter(
      "waypost_history_removed_early",
      "Rows of history that were removed while the disk had little room.",
      single(metrics.removedEarly),
    ),
  ];
}

function readReplicaMetrics({ replica }: MetricSources): Metric[] {
  const report = replica();
  if (report === null) return [];
  return [
    gauge(
      "waypost_replica_lag_seconds",
      "For how long changes have been missing in the second copy of the store.",
      single(report.lag / 1000),
    ),
    gauge(
      "waypost_replica_complete",
      "1 while the second copy has the whole store, except for its lag.",
      single(report.isComplete ? 1 : 0),
    ),
    counter(
      "waypost_replica_written_bytes",
      "Bytes that were written to the second copy.",
      single(report.writtenBytes),
    ),
  ];
}

function readCommitMetrics({ commitDuration, batchRows }: Metrics): Metric[] {
  const commits = commitDuration.counts.reduce((sum, count) => sum + count, 0);
  return [
    counter(
      "waypost_store_commits",
      "Batches of this node that changed rows and are on disk.",
      single(commits),
    ),
    histogram(
      "waypost_store_commit_duration_seconds",
      "The time of a batch that changed rows: load, decide, write and sync.",
      commitDuration,
    ),
    histogram("waypost_store_batch_rows", "The rows that a batch changed.", batchRows),
  ];
}

function readRequestMetrics({ routes }: Metrics): Metric[] {
  const all = [...routes];
  return [
    counter(
      "waypost_http_requests",
      "Requests to the API, by route and status. other: no route.",
      all.flatMap(([route, { codes }]) =>
        [...codes].map(([code, count]): Sample => [{ route, code: String(code) }, count]),
      ),
    ),
    {
      type: "histogram",
      name: "waypost_http_request_duration_seconds",
      help: "The time of a request to the API, until its response was sent.",
      samples: all.map(([route, { duration }]) => [{ route }, duration] as const),
    },
  ];
}

const readSpanMetrics = (spans: SpanCounts | null): Metric[] =>
  spans === null
    ? []
    : [
        counter(
          "waypost_trace_spans",
          "Spans that the OTLP endpoint took, and spans that were dropped.",
          byLabel("outcome", spans),
        ),
      ];

const histogram = (name: string, help: string, values: Metrics["lateness"]): Metric => ({
  type: "histogram",
  name,
  help,
  samples: [[noLabels, values]],
});
