import type { Server } from "node:http";
import type { Logger } from "pino";
import { elapsed, systemClock } from "../../engine/clock/clock.ts";
import { ConditionSampler } from "./conditionSampler.ts";
import { Metrics } from "./metrics.ts";
import { listenForScrapes, metricsPath } from "./metricsServer.ts";
import type { MetricsFormat } from "./metricsText.ts";
import { contentTypes, formatMetrics, pickFormat } from "./metricsText.ts";
import { readDiskFigures } from "./diskFigures.ts";
import type { CopyReport } from "./serverMetrics.ts";
import { readMetrics } from "./serverMetrics.ts";
import { SpanExporter } from "./tracing/spanExporter.ts";
import { StoreSampler, type OutboxFigures, type StoreSample } from "./storeSampler.ts";
import { Tracing } from "./tracing/tracing.ts";
import { toSpanId } from "../../engine/delivery/deliveryRequest.ts";
import type { DispatcherLog } from "../../engine/delivery/dispatcher.ts";
import type { CommandInput } from "../../engine/store/catalog/commands.ts";
import type { Millis, NodeId } from "../../engine/core/values/basics.ts";
import { second } from "../../engine/core/values/time.ts";
import type { Store } from "../../engine/store/store.ts";
import type { ServerParts } from "../operation.ts";
import { formatUrl } from "../../settings/addresses.ts";
import type { ServerConfig } from "../../settings/config.ts";
import { toStorePath } from "../../settings/dataFolder.ts";
import { version } from "../../settings/version.ts";

/** The metrics of a server, and the samples of its store. */
export type Observation = {
  metrics: Metrics;
  /** The second copy of the store, or null if none is kept. */
  replica(): CopyReport | null;
  /** Counts an attempt, and adds its span if traces are on. */
  addAttempt: DispatcherLog["attempt"];
  /** Makes the spans of traces. Null: no OTLP endpoint is set. */
  tracing: Tracing | null;
  /** Returns the metrics for a client with this Accept header. */
  read(accept: string | undefined): { contentType: string; text: string };
  /** Shows from now on what is wrong for the accounts. */
  watchConditions(listConditions: ServerParts["listConditions"]): void;
  /** Takes the first sample and listens for scrapes. Returns the address of the metrics, or null. */
  start(): Promise<string | null>;
  stop(): Promise<void>;
};

/** The parts of a server that its metrics show. */
type Observed = { store: Store; node: NodeId; log: Logger; inFlight(): number; isOnHold(): boolean } & {
  replica(): CopyReport | null;
  /** Returns the figures of the outboxes of all accounts. */
  readOutboxes(now: Millis): Promise<OutboxFigures>;
  /** Returns why this node takes no requests, apart from its store, or null. */
  notReadyReason(): string | null;
  /** Returns how many batches of acknowledged changes the database has lost. */
  lostBatches(): number;
};

/** Observes a store and everything that is done with it. */
export function observe(settings: ServerConfig, observed: Observed): Observation {
  const { store, inFlight, isOnHold, replica, readOutboxes, notReadyReason, lostBatches } = observed;
  const metrics = new Metrics(elapsed);
  const exporter = createExporter(settings, observed);
  const tracing =
    exporter && new Tracing({ now: () => systemClock.now(), add: (span) => exporter.add(span), toSpanId });
  const isEmbedded = settings.databaseUrl === "";
  const sampler = new StoreSampler({
    takesChanges: () => store.takesChanges(),
    readFigures: () => store.read.storeFigures(),
    readDisk: async () => (isEmbedded ? readDiskFigures(toStorePath(settings.data)) : null),
    readOutboxes,
    clock: systemClock,
    elapsed,
  });
  observeBatches(store, metrics, sampler);
  let conditions: ConditionSampler | null = null;
  const format = (how: MetricsFormat): string =>
    formatMetrics(
      readMetrics({
        metrics,
        build: { version, store: isEmbedded ? "sqlite" : "postgres" },
        sample: () => sampler.last,
        now: () => systemClock.now(),
        inFlight,
        isOnHold,
        isReady: () => notReadyReason() === null && sampler.takesChanges && isFresh(sampler.last),
        lostBatches,
        conditions: () => conditions?.read() ?? null,
        replica,
        spans: exporter && exporter.counts,
        diskLack: () => readDiskLack(store),
      }),
      how,
    );
  let server: Server | null = null;
  return {
    metrics,
    replica,
    tracing,
    addAttempt: (delivery, outcome, settled) => {
      metrics.countAttempt(delivery, outcome, settled);
      if (tracing !== null) tracing.addAttempt(delivery, outcome, settled);
    },
    read: (accept) => {
      const how = pickFormat(accept);
      return { contentType: contentTypes[how], text: format(how) };
    },
    watchConditions: (listConditions) => {
      const accounts = () => store.read.accounts();
      conditions = new ConditionSampler({ accounts, listConditions, now: () => systemClock.now() });
    },
    start: async () => {
      await sampler.start();
      if (settings.metricsPort === null) return null;
      server = await listenForScrapes(format, { port: settings.metricsPort, host: settings.metricsHost });
      const address = server.address();
      return `${formatUrl(settings.metricsHost, address)}${metricsPath}`;
    },
    stop: async () => {
      server?.close();
      server?.closeAllConnections();
      await Promise.all([sampler.stop(), conditions?.stop(), exporter?.stop()]);
    },
  };
}

/** Counts what the store stores, and lets the sampler know of it. */
const observeBatches = (store: Store, { batches }: Metrics, sampler: StoreSampler): void =>
  store.observe({
    ...batches,
    stored: (batch) => {
      batches.stored(batch);
      if (batch.changedRows > 0) sampler.noteChange();
    },
  });

const readDiskLack = ({ upkeep: { disk } }: Store): { isLow: boolean; isShort: boolean } | null =>
  disk && { isLow: disk.isLow(), isShort: disk.isShort() };

/** The maximum age of a sample from a store that responds. */
const maxSampleAge: Millis = 30 * second;

const isFresh = (sample: StoreSample | null): boolean =>
  sample !== null && systemClock.now() - sample.at <= maxSampleAge;

/** Returns what sends the spans of traces, or null without an OTLP endpoint. */
const createExporter = (
  { otlpEndpoint: endpoint, otlpHeaders: headers }: ServerConfig,
  { node, log }: Observed,
): SpanExporter | null =>
  endpoint === ""
    ? null
    : new SpanExporter({
        target: { endpoint, headers },
        source: { version, node },
        clock: systemClock,
        warn: (message) => log.warn(message),
      });

/** Returns a store that makes the spans of publishes if traces are on. */
export function observePublishes(store: Store, { tracing }: Observation): Store {
  if (tracing === null) return store;
  return {
    ...store,
    execute: (name, input, options) => {
      if (name !== "publish") return store.execute(name, input, options);
      const published = tracing.publish(input as CommandInput<"publish">, (traced) =>
        store.execute("publish", traced, options),
      );
      // The compiler does not see that `name` is the name of this command.
      return published as Promise<never>;
    },
  };
}
