// The page of the reference on limits.
import { limits } from "../src/engine/core/values/limits.ts";
import { maxPatterns } from "../src/engine/core/model/publishRights.ts";
import { makeTable } from "./markdown.ts";

const formatCount = (value: number): string => value.toLocaleString("en");
const formatDays = (value: number): string => `${value / 86_400_000} days`;
const formatHours = (value: number): string => `${value / 3_600_000} hours`;
/** Formats a size in MiB or KiB. */
export const formatSize = (bytes: number): string =>
  bytes % 2 ** 20 === 0 ? `${bytes / 2 ** 20} MiB` : `${bytes / 2 ** 10} KiB`;

const aboutLimits: {
  readonly [N in keyof typeof limits]: readonly [about: string, show: (value: number) => string];
} = {
  messageBytes: ["Body of one message, unless `WAYPOST_MAX_BODY` is set", formatSize],
  retries: ["Retries of one message", formatCount],
  delay: ["Delay, and how far ahead not-before may be", formatDays],
  timeout: ["Timeout of one attempt", formatHours],
  ackTimeout: ["Ack-Timeout: how long a receiver may hold an attempt, extensions included", formatHours],
  pulledOrigins: ["Pulled origins of an account", formatCount],
  pulledAttempts: ["Attempts that one pull returns", formatCount],
  pullWait: ["Time for which a pull waits", (value) => `${value / 1000} seconds`],
  pulls: ["Waiting pulls of an account, on one server", formatCount],
  serverPulls: ["Waiting pulls of all accounts, on one server", formatCount],
  deduplicationWindow: ["Deduplication-Window: how long repetitions of a message are recognized", formatDays],
  labels: ["Labels of one message", formatCount],
  nameLength: [
    "Characters of a label, a deduplication id, the name of a queue, key, URL group or endpoint, " +
      "or the id of a schedule",
    formatCount,
  ],
  urlLength: ["Characters of a URL", formatCount],
  hostLength: ["Characters of the host of a URL", formatCount],
  headerBytes: ["Headers sent for one message, including its callbacks; and one setting", formatSize],
  callbackDepth: ["Callbacks of callbacks", formatCount],
  parallelism: ["Parallelism of a queue or a flow-control key", formatCount],
  rate: ["Rate of a flow-control key", formatCount],
  period: ["Period of a flow-control key", formatDays],
  queues: ["Queues of an account, unless `WAYPOST_MAX_QUEUES` is set", formatCount],
  groups: ["URL groups of an account", formatCount],
  endpoints: ["Endpoints of a URL group, and of one request that adds or removes endpoints", formatCount],
  groupLength: ["Characters of all names and URLs of a URL group", formatCount],
  fanOutBytes: [
    "Total body bytes of a request, or of one firing of a schedule, to URL groups, counted per endpoint",
    formatSize,
  ],
  sources: ["Sources of an account", formatCount],
  jobs: ["Jobs of an account, including those that have ended and are still listed", formatCount],
  jobFilter: ["Filter of a job, as JSON, in characters", formatCount],
  tails: ["Open tails of the log of an account, on one server", formatCount],
  serverTails: ["Open tails of the log of all accounts, on one server", formatCount],
  tailBytes: ["Lines that wait for the reader of a tail; further lines are left out", formatSize],
  tokens: ["Tokens of an account, besides the main and the read-only token", formatCount],
  schedules: ["Schedules of an account", formatCount],
  steps: ["Steps in the history of a workflow run", formatCount],
  historyBytes: ["History of a workflow run, as sent", formatSize],
  invokeDepth: ["Depth of workflow runs that invoke other runs", formatCount],
  notifications: [
    "Events that a workflow run keeps because they came before a step waited for them",
    formatCount,
  ],
  notificationBytes: ["Bodies of these events", formatSize],
  waiters: ["Waiting steps that one event wakes", formatCount],
};

/** Returns the lines below the title. */
export function makeLimitsText(): string[] {
  const rows = Object.entries(aboutLimits).map(([name, [about, show]]) => [
    about,
    show(limits[name as keyof typeof limits]),
  ]);
  rows.push(["Destination patterns of a token", formatCount(maxPatterns)]);
  return [
    "A request that exceeds a limit is refused with 412 or 413, and the error names the limit.",
    "",
    ...makeTable(["Limit", "At most"], rows),
    "",
  ];
}
