import type { Histogram } from "./histogram.ts";

/** The labels of a sample. Their values are few and known: none is the name of a tenant, a URL or a queue. */
export type Labels = Readonly<Record<string, string>>;
/** A value with its labels. */
export type Sample = readonly [labels: Labels, value: number];

/** A metric with its samples. `name` is without `_total`, which the text adds to a counter. */
export type Metric = { name: string; help: string } & (
  | { type: "counter" | "gauge"; samples: readonly Sample[] }
  | { type: "histogram"; samples: readonly (readonly [labels: Labels, histogram: Histogram])[] }
);

/** The content types of both formats. */
export const contentTypes = {
  openMetrics: "application/openmetrics-text; version=1.0.0; charset=utf-8",
  text: "text/plain; version=0.0.4; charset=utf-8",
} as const;
/** A format of metrics. */
export type MetricsFormat = keyof typeof contentTypes;

/** Returns the format for an Accept header: OpenMetrics if the client names it, else the older text. */
export const pickFormat = (accept: string | undefined): MetricsFormat =>
  accept?.includes("application/openmetrics-text") === true ? "openMetrics" : "text";

/** Returns metrics as text. */
export function formatMetrics(metrics: readonly Metric[], format: MetricsFormat): string {
  const lines = metrics.flatMap((metric) => formatMetric(metric, format));
  return `${lines.join("\n")}\n${format === "openMetrics" ? "# EOF\n" : ""}`;
}

function formatMetric(metric: Metric, format: MetricsFormat): string[] {
  const { name, help, type } = metric;
  const sampleName = type === "counter" ? `${name}_total` : name;
  const family = format === "openMetrics" ? name : sampleName;
  const head = [`# HELP ${family} ${escapeText(help)}`, `# TYPE ${family} ${type}`];
  const samples =
    type === "histogram"
      ? metric.samples.flatMap(([labels, histogram]) => formatHistogram(name, labels, histogram))
      : metric.samples.map(([labels, value]) => formatSample(sampleName, labels, value));
  return [...head, ...samples];
}

function formatHistogram(name: string, labels: Labels, { bounds, counts, sum }: Histogram): string[] {
  let count = 0;
  const buckets = [...counts].map((inBucket, at) => {
    count += inBucket;
    return formatSample(`${name}_bucket`, { ...labels, le: formatBound(bounds[at]) }, count);
  });
  return [...buckets, formatSample(`${name}_sum`, labels, sum), formatSample(`${name}_count`, labels, count)];
}

/** OpenMetrics requires that a bound looks like a floating-point number. */
const formatBound = (bound: number | undefined): string =>
  bound === undefined ? "+Inf" : Number.isInteger(bound) ? `${bound}.0` : String(bound);

function formatSample(name: string, labels: Labels, value: number): string {
  const pairs = Object.entries(labels).map(([label, text]) => `${label}="${escapeText(text, '"')}"`);
  return `${name}${pairs.length === 0 ? "" : `{${pairs.join(",")}}`} ${value}`;
}

const escapeText = (text: string, quote = ""): string => {
  const escaped = text.replaceAll("\\", "\\\\").replaceAll("\n", "\\n");
  return quote === "" ? escaped : escaped.replaceAll(quote, `\\${quote}`);
};
