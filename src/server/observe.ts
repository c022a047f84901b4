import type { Server } from "node:http";
import packageFile from "../../package.json" with { type: "json" };
import { elapsed, systemClock } from "../clock/clock.ts";
import { Metrics } from "../monitoring/metrics.ts";
import { listenForScrapes, metricsPath } from "../monitoring/metricsServer.ts";
import type { MetricsFormat } from "../monitoring/metricsText.ts";
import { contentTypes, formatMetrics, pickFormat } from "../monitoring/metricsText.ts";
import { readDiskFigures } from "../monitoring/diskFigures.ts";
import { readMetrics } from "../monitoring/serverMetrics.ts";
import { StoreSampler } from "../monitoring/storeSampler.ts";
import type { Store } from "../store/store.ts";
import { formatUrl } from "./addresses.ts";
import type { ServerConfig } from "./config.ts";
import { toStorePath } from "./dataFolder.ts";

/** The metrics of a server, and the samples of its store. */
export type Observation = {
  metrics: Metrics;
  /** Returns the metrics for a client with this Accept header. */
  read(accept: string | undefined): { contentType: string; text: string };
  /** Takes the first sample and listens for scrapes. Returns the address of the metrics, or null. */
  start(): Promise<string | null>;
  stop(): Promise<void>;
};

/** The parts of a server that its metrics show. */
type Observed = { store: Store; inFlight(): number; isHeld(): boolean };

/** Observes a store and everything that is done with it. */
export function observe(settings: ServerConfig, { store, inFlight, isHeld }: Observed): Observation {
  const metrics = new Metrics(elapsed);
  store.observe(metrics.batches);
  const isEmbedded = settings.databaseUrl === "";
  const sampler = new StoreSampler({
    readFigures: () => store.read.storeFigures(),
    readDisk: async () => (isEmbedded ? readDiskFigures(toStorePath(settings.data)) : null),
    clock: systemClock,
    elapsed,
  });
  const format = (how: MetricsFormat): string =>
    formatMetrics(
      readMetrics({
        metrics,
        build: { version: packageFile.version, store: isEmbedded ? "sqlite" : "postgres" },
        sample: () => sampler.last,
        now: () => systemClock.now(),
        inFlight,
        isHeld,
      }),
      how,
    );
  let server: Server | null = null;
  return {
    metrics,
    read: (accept) => {
      const how = pickFormat(accept);
      return { contentType: contentTypes[how], text: format(how) };
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
      await sampler.stop();
    },
  };
}

/** Returns a store that measures how long publishes take. */
export const measurePublishes = (store: Store, metrics: Metrics): Store => ({
  ...store,
  execute: (name, input, options) =>
    name === "publish"
      ? metrics.measurePublish(() => store.execute(name, input, options))
      : store.execute(name, input, options),
});
