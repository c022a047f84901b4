import type { ActivityName } from "../../engine/core/model/activity.ts";
import { activityNames } from "../../engine/core/model/activity.ts";
import type { Delivery } from "../../engine/core/model/delivery.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import type { Outcome } from "../../engine/core/model/attempt.ts";
import type { Settled } from "../../engine/core/attempts/applyOutcome.ts";
import type { BatchObserver } from "../../engine/store/store.ts";
import { Histogram, rowBounds, shortTimeBounds, timeBounds } from "./histogram.ts";

/** The outcomes of attempts, as the store has settled them. */
const attemptOutcomes = [
  "delivered",
  "retry",
  "ended",
  "failed",
  "cancelled",
  "late",
  "acknowledging",
] as const;

/** The result of a call to a webhook source, from the status of its response. */
export type SourceOutcome = "accepted" | "repeated" | "rejected" | "unavailable";

/** The figures of one route. */
export type RouteFigures = { codes: Map<number, number>; duration: Histogram };

const zeros = <Name extends string>(names: readonly Name[]): Record<Name, number> =>
  Object.fromEntries(names.map((name) => [name, 0])) as Record<Name, number>;

/**
 * The work of this process since it started, in plain numbers: a message costs a few additions. A scrape
 * only reads them. They are counted when the store has acknowledged the change, so they never show more than
 * what is on disk.
 */
export class Metrics {
  readonly activities = zeros(activityNames);
  readonly attempts = zeros(attemptOutcomes);
  readonly sourceCalls: Record<SourceOutcome, number> = {
    accepted: 0,
    repeated: 0,
    rejected: 0,
    unavailable: 0,
  };
  /** The rows of history that were removed before their retention had ended. */
  removedEarly = 0;
  readonly attemptDuration = new Histogram(timeBounds);
  readonly lateness = new Histogram(timeBounds);
  readonly scheduleLateness = new Histogram(timeBounds);
  readonly publishDuration = new Histogram(shortTimeBounds);
  readonly commitDuration = new Histogram(shortTimeBounds);
  readonly batchRows = new Histogram(rowBounds);
  readonly routes = new Map<string, RouteFigures>();
  /** The same figures by route, because a string for each request would cost more than the rest. */
  readonly #figures = new WeakMap<object, RouteFigures>();
  readonly #elapsed: () => Millis;
  #batchBeganAt: Millis = 0;

  /** `elapsed` is a monotonic clock. */
  constructor(elapsed: () => Millis) {
    this.#elapsed = elapsed;
  }

  /**
   * Receives what the store has stored. Batches that change nothing are not commits. A refused publish is not
   * measured.
   */
  readonly batches: BatchObserver = {
    elapsed: () => this.#elapsed(),
    published: (calledAt) => this.publishDuration.observeMillis(this.#elapsed() - calledAt),
    began: () => void (this.#batchBeganAt = this.#elapsed()),
    stored: ({ activities, changedRows }) => {
      for (const { name, late } of activities) this.#count(name, late);
      if (changedRows === 0) return;
      this.commitDuration.observeMillis(this.#elapsed() - this.#batchBeganAt);
      this.batchRows.observe(changedRows);
    },
  };

  #count(name: ActivityName, late: Millis | undefined): void {
    this.activities[name]++;
    if (late !== undefined) this.scheduleLateness.observeMillis(late);
  }

  /** Counts an attempt whose outcome is stored. */
  countAttempt({ message, attempt }: Delivery, { timing }: Outcome, settled: Settled["became"]): void {
    this.attempts[settled]++;
    if (!timing) return;
    this.attemptDuration.observeMillis(timing.duration);
    if (attempt === 0) this.lateness.observeMillis(timing.startedAt - message.notBefore);
  }

  /** Counts a request. `route` is one of the routes of the API. */
  countRequest(route: CountedRoute | null, status: number, ms: Millis): void {
    const figures = this.#figures.get(route ?? noRoute) ?? this.#addRoute(route);
    figures.codes.set(status, (figures.codes.get(status) ?? 0) + 1);
    figures.duration.observeMillis(ms);
    if (route?.access === "source" && route.method === "POST") this.sourceCalls[readSourceOutcome(status)]++;
  }

  #addRoute(route: CountedRoute | null): RouteFigures {
    const name = route === null ? "other" : `${route.method} ${route.path}`;
    const figures = this.routes.get(name) ?? { codes: new Map(), duration: new Histogram(timeBounds) };
    this.routes.set(name, figures);
    this.#figures.set(route ?? noRoute, figures);
    return figures;
  }
}

/** A route of the API, which is the same object for all of its requests. */
type CountedRoute = { method: string; path: string; access: string };

const noRoute = {};

function readSourceOutcome(status: number): SourceOutcome {
  if (status === 200) return "accepted";
  if (status === 202) return "repeated";
  return status >= 500 ? "unavailable" : "rejected";
}
