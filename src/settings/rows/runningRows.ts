import {
  duration,
  listenAddress,
  onOff,
  oneOf,
  otlpEndpoint,
  otlpHeaders,
  planPrices,
  portOrNone,
  price,
} from "./settingValues.ts";

/** The settings of the log, metrics and traces. */
export const logRows = {
  logFormat: {
    takes: oneOf("auto", "json", "text"),
    default: "auto",
    value: "<format>",
    example: "json",
    help:
      "format of the log and of the first lines of a start; auto: text on a terminal, JSON elsewhere. " +
      "waypost dev prints its first lines as text, unless the format is json",
  },
  logLevel: {
    takes: oneOf("trace", "debug", "info", "warn", "error", "silent"),
    default: "info",
    value: "<level>",
    example: "debug",
    help: "log level; debug logs each request and each attempt",
  },
  metricsPort: {
    takes: portOrNone,
    default: "",
    value: "<n>",
    example: "9464",
    help: "additional port that serves only /metrics, without a token",
  },
  metricsHost: {
    takes: listenAddress,
    default: "127.0.0.1",
    value: "<address>",
    example: "10.0.0.5",
    help: "address for --metrics-port; every client that reaches it can read figures about all accounts",
  },
  otlpEndpoint: {
    takes: otlpEndpoint,
    default: "",
    value: "<url>",
    example: "http://127.0.0.1:4318",
    help: "OpenTelemetry collector that receives traces at <url>/v1/traces; also OTEL_EXPORTER_OTLP_ENDPOINT",
  },
  otlpHeaders: {
    takes: otlpHeaders,
    default: "",
    value: "<headers>",
    example: "api-key=secret,tenant=7",
    help: "headers for --otlp-endpoint, such as api-key=secret; also OTEL_EXPORTER_OTLP_HEADERS",
  },
} as const;

/** The settings of how the server runs and stops. */
export const runningRows = {
  grace: {
    takes: duration(0),
    default: "10s",
    value: "<duration>",
    example: "30s",
    help: "time that running deliveries get to finish when the server stops",
  },
  selfCheck: {
    takes: onOff,
    default: "on",
    value: "<on|off>",
    example: "off",
    help: "off: the server does not look for stuck work, and repairs none",
  },
  skipCalls: {
    takes: oneOf("none", "older", "all"),
    default: "older",
    value: "<clients>",
    example: "all",
    help:
      "workflow clients that are not called with results of parallel steps that they would discard: " +
      "older: those before version 1; all: also those from version 1 on, whose middlewares then miss " +
      "afterExecution of these steps",
  },
  fastPath: {
    takes: onOff,
    default: "on",
    value: "<on|off>",
    example: "off",
    help:
      "off: plain publishes go through the HTTP framework, " +
      "with the same responses and about 15 % more CPU time per message",
  },
} as const;

/** The settings of prices in statistics and budgets. */
export const priceRows = {
  messagePrice: {
    takes: price,
    default: "0",
    value: "<dollars>",
    example: "1",
    help: "price of 100,000 messages in statistics and budgets, in dollars",
  },
  workflowPrice: {
    takes: price,
    default: "0",
    value: "<dollars>",
    example: "1",
    help: "price of 100,000 workflow messages in statistics and budgets, in dollars",
  },
  bandwidthPrice: {
    takes: price,
    default: "0",
    value: "<dollars>",
    example: "0.05",
    help: "price of 1 GB of bodies, in or out, in statistics and budgets, in dollars",
  },
  reservedPrices: {
    takes: planPrices,
    default: "",
    value: "<plan=dollars,…>",
    example: "paid=10,fixed_1m=180",
    help: "prices of plans shown in accounts, such as paid=10,fixed_1m=180",
  },
} as const;
