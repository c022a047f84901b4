import { expect, test } from "vitest";
import { Histogram } from "../../../src/operations/monitoring/histogram.ts";
import type { Metric } from "../../../src/operations/monitoring/metricsText.ts";
import { formatMetrics, pickFormat } from "../../../src/operations/monitoring/metricsText.ts";

test("a histogram counts each value up to its bound, and the text adds the counts up", () => {
  const times = new Histogram([0.1, 1]);
  for (const value of [0.1, 0.5, 0.5, 7, -3]) times.observe(value);
  times.observeMillis(2_000);
  const metric: Metric = {
    type: "histogram",
    name: "t_seconds",
    help: "Times.",
    samples: [[{ a: "b" }, times]],
  };
  expect(formatMetrics([metric], "text")).toBe(
    [
      "# HELP t_seconds Times.",
      "# TYPE t_seconds histogram",
      't_seconds_bucket{a="b",le="0.1"} 2',
      't_seconds_bucket{a="b",le="1.0"} 4',
      't_seconds_bucket{a="b",le="+Inf"} 6',
      't_seconds_sum{a="b"} 10.1',
      't_seconds_count{a="b"} 6',
      "",
    ].join("\n"),
  );
});

test("a counter has its suffix where each format expects it", () => {
  const metric: Metric = {
    type: "counter",
    name: "n",
    help: "A\nB \\ C",
    samples: [[{ l: 'a"b\\c\nd' }, 3]],
  };
  expect(formatMetrics([metric], "text")).toBe(
    '# HELP n_total A\\nB \\\\ C\n# TYPE n_total counter\nn_total{l="a\\"b\\\\c\\nd"} 3\n',
  );
  expect(formatMetrics([metric], "openMetrics")).toBe(
    '# HELP n A\\nB \\\\ C\n# TYPE n counter\nn_total{l="a\\"b\\\\c\\nd"} 3\n# EOF\n',
  );
});

test("a client gets OpenMetrics only if it names that format", () => {
  expect(pickFormat(undefined)).toBe("text");
  expect(pickFormat("text/plain;version=0.0.4")).toBe("text");
  expect(pickFormat("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2")).toBe("openMetrics");
});
