import type { Millis } from "../values/basics.ts";
import { minute } from "../values/time.ts";
import type { GateFlow } from "./gateConditions.ts";

/** The state of a queue, and its last minutes. */
export type DrainFacts = {
  /** The messages that wait for a slot of the queue. */
  waiting: number;
  /** Null: no limit. */
  parallelism: number | null;
  /** Null: not known. */
  flow: readonly GateFlow[] | null;
};

/**
 * When a queue will be empty at its present pace. `emptyIn` is null if its backlog does not shrink, and
 * everything is null if the pace is not known. `faster`
 * is the same with more parallelism, if the queue needs long.
 */
export type DrainForecast = {
  publishedPerMinute: number | null;
  sentPerMinute: number | null;
  emptyIn: Millis | null;
  faster: { parallelism: number; emptyIn: Millis } | null;
};

/** More parallelism is proposed if a queue needs longer than this. */
const longDrain: Millis = 5 * minute;
/** The proposed parallelism, as a multiple of the present one. */
const proposedFactor = 5;

/**
 * Returns when a queue will be empty. The pace is the mean of the given minutes. With more parallelism, as
 * many more messages are sent in the same time, which holds if the destination stays as fast as it is.
 */
export function forecastDrain({ waiting, parallelism, flow }: DrainFacts): DrainForecast {
  if (flow === null)
    return { publishedPerMinute: null, sentPerMinute: null, emptyIn: waiting === 0 ? 0 : null, faster: null };
  const mean = (read: (one: GateFlow) => number): number =>
    flow.length === 0 ? 0 : flow.reduce((sum, one) => sum + read(one), 0) / flow.length;
  const published = mean((one) => one.published);
  const sent = mean((one) => one.ended);
  const emptyIn = waiting === 0 ? 0 : drain(waiting, sent - published);
  const proposed = parallelism === null ? null : parallelism * proposedFactor;
  const isSlow = emptyIn === null || emptyIn > longDrain;
  const fasterIn = proposed === null || !isSlow ? null : drain(waiting, sent * proposedFactor - published);
  return {
    publishedPerMinute: round(published),
    sentPerMinute: round(sent),
    emptyIn,
    faster: proposed === null || fasterIn === null ? null : { parallelism: proposed, emptyIn: fasterIn },
  };
}

const drain = (waiting: number, perMinute: number): Millis | null =>
  perMinute <= 0 ? null : Math.round((waiting / perMinute) * minute);

const round = (value: number): number => Math.round(value * 10) / 10;
