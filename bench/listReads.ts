/** The reads of a large account: every list, with every filter, for rare, common and missing values. */

/** A request that is measured. `change`: it is not a GET, but changes nothing here. */
export type ListRead = { path: string; change?: { method: string; body?: unknown } };

type Values = Record<string, string>;

const needles: readonly string[] = [
  "label=needle",
  "label=common",
  "label=none",
  "queueName=needle",
  "scheduleId=scd_needle",
  "topicName=needle",
  "flowControlKey=needle",
  "flowControlKey=common",
  "label=needle&label=other&flowControlKey=common&flowControlKey=needle",
  "label=common&flowControlKey=needle",
  "url=https://needle.example/rare",
  "url=https://shop77.example/hook",
  "url=https://none.example/none",
  "callerIp=192.0.2.99",
  "callerIp=192.0.2.1",
  "fromDate=MIDDLE&toDate=LATER",
];
const places: readonly string[] = [
  "host=needle.example",
  "host=shop77.example",
  "host=none.example",
  "path=/rare",
  "path=/hook",
  "path=/none",
];
const unfinished: readonly string[] = [
  ...["pending", "retrying", "delivering", "held", "paused"].map((state) => `state=${state}`),
  ...["queue", "key", "endpoint", "account", "capacity"].map((gate) => `gate=${gate}`),
  "minAttempts=1",
  "minAttempts=2",
  "dueFrom=MIDDLE&dueTo=LATER",
  "state=held&path=/rare",
  "gate=key&label=none",
  "workflowRunId=wfr_1",
];
const orders: readonly string[] = ["", "sort=due", "order=latestFirst", "sort=due&order=latestFirst"];

const listWith = (path: string, filters: readonly string[], more: readonly string[] = [""]): string[] =>
  more.flatMap((one) =>
    ["", ...filters].map((filter) => {
      const query = [filter, one].filter((part) => part !== "").join("&");
      return query === "" ? path : `${path}?${query}`;
    }),
  );

const runFilters: readonly string[] = [
  "workflowRunId=wfr_77",
  "workflowRunId=none",
  "workflowUrl=https://flow7.example/work",
  "label=none",
  "callerIp=192.0.2.1",
  "host=flow7.example",
  "host=none.example",
  "state=RUN_STARTED",
  "state=RUN_FAILED",
  "state=RUN_SUCCESS",
  "fromDate=MIDDLE&toDate=LATER",
];

const gets: readonly string[] = [
  ...listWith("/v2/messages", [...needles, ...places, ...unfinished], orders),
  ...listWith("/v2/logs", [...needles, ...places], ["", "order=earliestFirst"]),
  ...listWith(
    "/v2/logs",
    ["CREATED", "ACTIVE", "RETRY", "ERROR", "DELIVERED", "FAILED", "CANCELLED"].map(
      (state) => `state=${state}`,
    ),
  ),
  ...listWith("/v2/logs", ["state=FAILED&label=needle", "state=DELIVERED&host=needle.example"]),
  ...listWith(
    "/v2/dlq",
    [...needles, "responseStatus=418", "responseStatus=500"],
    ["", "order=earliestFirst"],
  ),
  ...listWith("/v2/dlq/groups", ["label=needle", "label=none", "responseStatus=500"]),
  ...listWith("/v2/workflows/runs", runFilters),
  ...listWith("/v2/workflows/logs", runFilters),
  ...listWith(
    "/v2/workflows/dlq",
    runFilters.filter((filter) => !/^(host|state)/.test(filter)),
  ),
  "/v2/workflows/dlq/groups",
  "/v2/workflows/runs/wfr_77",
  "/v2/waiters",
  "/v2/waiters/event-7",
  "/v2/overview",
  "/v2/hosts",
  "/v2/queues",
  "/v2/queues/busy/holders",
  "/v2/flowControl",
  "/v2/flowControl?search=k1",
  "/v2/flowControl/busy/holders",
  "/v2/jobs",
  "/v2/alerts/log",
  "/v2/sources",
  "/v2/schedules",
  "/v2/topics",
  "/v2/audit",
  "/v2/audit?action=none",
  "/v2/tokens",
  "/v2/svc/stats/defaultUser",
];

/** Bulk actions on what does not exist, and dry runs. */
const changes: readonly ListRead[] = [
  ...[
    "label=none",
    "queueName=none",
    "url=https://none.example/none",
    "host=none.example",
    "path=/none",
    "host=shop77.example&label=none",
  ].map((filter) => ({ path: `/v2/messages?${filter}`, change: { method: "DELETE" } })),
  ...["label=none", "callerIp=192.0.2.98", "responseStatus=404"].map((filter) => ({
    path: `/v2/dlq?${filter}`,
    change: { method: "DELETE" },
  })),
  ...["host=none.example", "label=none", "path=/none"].map((filter) => ({
    path: `/v2/workflows/runs?${filter}`,
    change: { method: "DELETE" },
  })),
  ...["host=shop77.example", "label=common"].map((filter) => ({
    path: `/v2/messages?${filter}&dryRun=true`,
    change: { method: "DELETE" },
  })),
];

/** Returns all reads. `now` is the time of the middle of the rows. */
export function listReads(now: number): ListRead[] {
  const times: Values = { MIDDLE: String(now - 600_000), LATER: String(now + 600_000) };
  const withTimes = (path: string): string => path.replace(/MIDDLE|LATER/g, (name) => times[name] ?? name);
  return [...gets.map((path): ListRead => ({ path: withTimes(path) })), ...changes];
}
