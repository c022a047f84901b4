import type { Command } from "commander";
import { systemClock } from "../engine/clock/clock.ts";
import type { Api, ClientContext, OutputFlags } from "./api.ts";
import { apiPath } from "./apiPath.ts";
import { connectToApi, showResult, withOutput } from "./api.ts";
import type { Fields } from "./terminal/fields.ts";
import { readLine, readLines, readNumber, readObject, readObjects, readRaw } from "./terminal/fields.ts";
import { toSafeLine } from "./terminal/safeText.ts";
import { formatPairs, formatTable } from "./terminal/table.ts";
import { columnsOfOutput, styled } from "./terminal/terminal.ts";
import { formatAge } from "./terminal/times.ts";

/** Adds the commands `waypost overview` and `waypost stats`. */
export function addSituationCommands(program: Command, context: ClientContext): void {
  withOutput(
    program.command("overview").description("show what is in flight, waiting, failed and paused"),
  ).action((flags: OutputFlags) => {
    const api = connectToApi(context);
    return showResult(flags, async () => {
      const overview = await api.read({ path: "/v2/overview", needs: { one: overviewFields } });
      return { value: overview, describe: () => describeOverview(overview) };
    });
  });
  withOutput(
    program
      .command("stats")
      .description("show the messages and the usage of an account by day")
      .option("--period <period>", "time that the first line covers: 1h, 3h, 12h, 1d, 3d, 7d or 30d", "7d"),
  ).action((flags: OutputFlags & { period: string }) => {
    const api = connectToApi(context);
    return showResult(flags, async () => {
      const stats = await readStatistics(api, flags.period);
      return { value: stats, describe: () => describeStatistics(stats, flags.period) };
    });
  });
}

async function readStatistics(api: Api, period: string): Promise<Fields> {
  const me = await api.read({ path: "/v2/me", needs: { one: { account: "object" } } });
  const id = readRaw(readObject(me, "account"), "id");
  return api.read({
    path: apiPath`/v2/svc/stats/${id}`,
    query: { period },
    needs: { one: { daily_requests: "objects", daily_used: "objects", daily_bandwidths: "objects" } },
  });
}

/** The fields of an overview without which its figures would be zero. */
const overviewFields = {
  conditions: "objects",
  minutes: "objects",
  unfinished: "object",
  inFlight: "number",
  deadLetters: "number",
  held: "object",
  paused: "object",
  runs: "object",
} as const;

/** Returns a count of the API, which may be a lower bound. */
const readCount = (fields: Fields, name: string): string => {
  const counted = readObject(fields, name);
  return `${readNumber(counted, "count") ?? 0}${counted["more"] === true ? "+" : ""}`;
};

function describeOverview(overview: Fields): string[] {
  const now = systemClock.now();
  const minutes = readObjects(overview, "minutes");
  const sum = (name: string): number =>
    minutes.reduce((total, minute) => total + (readNumber(minute, name) ?? 0), 0);
  const held = readObject(overview, "held");
  const runs = readObject(overview, "runs");
  const paused = readObject(overview, "paused");
  const gates = Object.keys(held).filter((gate) => readCount(held, gate) !== "0");
  const deadLetters = readLine(overview, "deadLetters");
  const pausedNames = Object.keys(paused).flatMap((kind) => {
    const names = readLines(readObject(paused, kind), "names");
    return names.length > 0 ? [`${kind}: ${names.join(", ")}`] : [];
  });
  const hosts = readObjects(overview, "worstHosts");
  return [
    ...describeConditions(overview, { now, failures: Number(deadLetters) }),
    ...formatPairs([
      [
        `last ${minutes.length} min`,
        `${sum("messages")} messages and retries, ${sum("delivered")} delivered, ${sum("failed")} failed`,
      ],
      ["unfinished", readCount(overview, "unfinished")],
      ["in flight", readLine(overview, "inFlight")],
      ["held", gates.map((gate) => `${gate} ${readCount(held, gate)}`).join(", ")],
      ["next due", formatAge(overview, "nextDueAt", now)],
      ["dead letters", deadLetters === "0" ? "0" : styled("red", deadLetters)],
      ["runs", `${readCount(runs, "active")} active, ${readCount(runs, "failed")} failed`],
      ["paused", pausedNames.join("; ")],
      ["storage", formatShare(readObject(overview, "storage"), "used", "max")],
      ["disk free", formatShare(readObject(overview, "disk"), "free", "total")],
    ]),
    ...(hosts.length > 0 ? ["", ...formatTable(hostColumns, hosts, columnsOfOutput())] : []),
  ];
}

/** Returns what is wrong, a line each, or that nothing is. */
function describeConditions(
  overview: Fields,
  { now, failures }: { now: number; failures: number },
): string[] {
  const conditions = readObjects(overview, "conditions");
  const bad =
    conditions.filter((condition) => readLine(condition, "level") !== "note").length + (failures > 0 ? 1 : 0);
  const title =
    bad === 0 ? "Nothing needs attention." : `${bad} ${bad === 1 ? "thing needs" : "things need"} attention:`;
  return [
    bad === 0 ? title : styled("bold", title),
    ...(failures > 0 ? [`  ${styled("red", "problem")}  Dead letters and failed runs: ${failures}`] : []),
    ...conditions.map((condition) => {
      const level = readLine(condition, "level");
      const since = formatAge(condition, "since", now);
      const by = describeActor(readObject(condition, "by"));
      const origin = [since && `began ${since}`, by && `by ${by}`].filter(Boolean).join(", ");
      const text = readLine(condition, "text");
      const shownLevel = styled(level === "problem" ? "red" : "dim", level.padEnd(7));
      return `  ${shownLevel}  ${text}${origin && ` (${origin})`}`;
    }),
    "",
  ];
}

/** Returns who made a change, or "" if that is not known. */
const describeActor = (by: Fields): string =>
  readLine(by, "user") || readLine(by, "token") || readLine(by, "kind");

const hostColumns = [
  { title: "WORST HOSTS", show: (host: Fields) => readLine(host, "host"), shrinks: true },
  { title: "ATTEMPTS", show: (host: Fields) => readLine(host, "attempts"), isNumber: true },
  { title: "FAILURES", show: (host: Fields) => readLine(host, "failures"), isNumber: true },
  {
    title: "LAST FAILURE",
    show: (host: Fields) => {
      const last = readObject(host, "lastFailure");
      return [readLine(last, "responseStatus"), readLine(last, "error")].filter(Boolean).join(" ");
    },
    shrinks: true,
  },
] as const;

/** From this quota on, 256 TiB, an account has no limit. */
const noLimitFrom = 2 ** 48;

function formatShare(fields: Fields, part: string, whole: string): string {
  const [some, all] = [readNumber(fields, part), readNumber(fields, whole)];
  if (some === null || all === null) return "";
  if (all >= noLimitFrom) return `${formatBytes(some)}, no limit`;
  return `${formatBytes(some)} of ${formatBytes(all)}`;
}

function formatBytes(bytes: number): string {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  const at = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log10(Math.max(1, bytes)) / 3)));
  const value = bytes / 1000 ** at;
  return `${at === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[at]}`;
}

/** Returns the sums of the series that cover the period. */
function describePeriod(stats: Fields): string {
  const sum = (points: readonly Fields[]): number =>
    points.reduce((total, point) => total + (readNumber(point, "y") ?? 0), 0);
  const outcomes = [
    ...readObjects(stats, "daily_svc_messages"),
    ...readObjects(stats, "daily_workflow_messages"),
  ];
  const ended = (id: string): number =>
    outcomes
      .filter((outcome) => readRaw(outcome, "id") === id)
      .reduce((total, outcome) => total + sum(readObjects(outcome, "data_points")), 0);
  return [
    `${sum(readObjects(stats, "daily_used"))} messages and retries`,
    `${sum(readObjects(stats, "daily_used_workflow"))} of runs`,
    `${ended("delivered")} delivered`,
    `${ended("failed")} failed`,
    `${ended("canceled")} cancelled`,
    formatBytes(sum(readObjects(stats, "daily_bandwidth_used"))),
  ].join(", ");
}

function describeStatistics(stats: Fields, period: string): string[] {
  const days = readObjects(stats, "daily_requests");
  const bandwidth = readObjects(stats, "daily_bandwidths");
  const today = new Date(systemClock.now()).toISOString().slice(0, 10);
  const rows = days
    .map((day, at) => ({
      day,
      date: readLine(day, "x").slice(0, 10),
      bytes: readNumber(bandwidth[at] ?? {}, "y"),
    }))
    .filter(({ date }) => date <= today);
  const columns = [
    { title: "DAY", show: ({ date }: (typeof rows)[number]) => date },
    { title: "REQUESTS", show: ({ day }: (typeof rows)[number]) => readLine(day, "y"), isNumber: true },
    {
      title: "OF RUNS",
      show: ({ day }: (typeof rows)[number]) => readLine(day, "workflow_message"),
      isNumber: true,
    },
    {
      title: "SENT",
      show: ({ bytes }: (typeof rows)[number]) => (bytes === null ? "" : formatBytes(bytes)),
      isNumber: true,
    },
  ] as const;
  return [
    ...formatPairs([
      [`last ${toSafeLine(period)}`, describePeriod(stats)],
      ["dead letters", readLine(stats, "dlq_message_count")],
      ["storage", formatShare(stats, "storage_bytes", "max_storage_bytes")],
    ]),
    ...(rows.length > 0 ? ["", ...formatTable(columns, rows, columnsOfOutput())] : []),
  ];
}
