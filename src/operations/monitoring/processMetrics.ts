import { readdirSync } from "node:fs";
import { performance } from "node:perf_hooks";
import { getHeapStatistics } from "node:v8";
import type { Metric, Sample } from "./metricsText.ts";

const single = (value: number): Sample[] => [[{}, value]];
/** Returns a gauge without labels. */
export const gauge = (name: string, help: string, value: number): Metric => ({
  type: "gauge",
  name,
  help,
  samples: single(value),
});

/**
 * Returns the metrics of the process and of its JavaScript engine. The names are those of Prometheus clients.
 */
export function readProcessMetrics(): Metric[] {
  const { user, system } = process.cpuUsage();
  const { heapUsed, heapTotal, external, rss } = process.memoryUsage();
  const openFiles = countOpenFiles();
  return [
    {
      type: "counter",
      name: "process_cpu_seconds",
      help: "CPU time of all threads of the process.",
      samples: single((user + system) / 1e6),
    },
    gauge("process_resident_memory_bytes", "Memory of the process.", rss),
    gauge(
      "process_start_time_seconds",
      "When the process started, in Unix time.",
      performance.timeOrigin / 1000,
    ),
    ...(openFiles === null ? [] : [gauge("process_open_fds", "Open file descriptors.", openFiles)]),
    gauge("nodejs_heap_size_used_bytes", "Memory of the JavaScript heap that is in use.", heapUsed),
    gauge("nodejs_heap_size_total_bytes", "Memory of the JavaScript heap.", heapTotal),
    gauge(
      "nodejs_heap_size_limit_bytes",
      "Limit of the JavaScript heap.",
      getHeapStatistics().heap_size_limit,
    ),
    gauge("nodejs_external_memory_bytes", "Memory outside the heap that JavaScript objects hold.", external),
    {
      type: "counter",
      name: "nodejs_eventloop_active_seconds",
      help: "Time in which the event loop was busy. A rate near 1 means that the process is at its limit.",
      samples: single(performance.eventLoopUtilization().active / 1000),
    },
  ];
}

/** Returns the number of open files, or null where the system does not list them. */
function countOpenFiles(): number | null {
  try {
    return readdirSync("/proc/self/fd").length;
  } catch {
    return null;
  }
}
