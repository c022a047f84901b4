import type { Metric } from "./metricsText.ts";
import { gauge } from "./processMetrics.ts";
import type { OutboxFigures } from "./storeSampler.ts";

/** The end of the help of a figure that each node reads from the store. */
export const wholeStore = "All nodes show the same figure of the whole store; combine them with max().";

/** Returns the metrics of the outboxes of all accounts together. */
export const readOutboxMetrics = ({ outboxes, failing, waiting, rejected, lag }: OutboxFigures): Metric[] => [
  gauge("waypost_outboxes", `Outboxes. ${wholeStore}`, outboxes),
  gauge("waypost_outboxes_failing", `Outboxes whose rows wait because of an error. ${wholeStore}`, failing),
  gauge(
    "waypost_outbox_lag_seconds",
    `How long the oldest row of an outbox has waited, the longest of all outboxes. ${wholeStore}`,
    lag / 1000,
  ),
  gauge("waypost_outbox_rows_waiting", `Rows of outboxes that wait. ${wholeStore}`, waiting),
  gauge("waypost_outbox_rows_rejected", `Rejected rows of outboxes. ${wholeStore}`, rejected),
];
