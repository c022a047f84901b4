/**
 * What do schedules cost? The bench measures many schedules that are far from due on an idle server, then
 * many that are due in the same minute.
 */
import { microseconds } from "./clock.ts";
import {
  destination,
  type Workload,
  type BenchSetup,
  openBenchSetup,
  sendLoad,
  runTurn,
} from "./benchSetup.ts";
import { mebibytes, formatTable } from "./figures.ts";
import type { common, Given } from "./options.ts";
import { cpuTime, memory } from "./processFigures.ts";
import { question } from "./question.ts";
import { formatActivity, activityHeads, type ThreadActivity, watchIdle } from "./idleActivity.ts";
import { pause, waitUntilQuiet, type Server } from "./server.ts";
import { startWaypost } from "./waypost.ts";

const options = {
  far: { default: 100_000, help: "schedules that are due in half a year" },
  due: { default: 10_000, help: "schedules that are due in the same minute" },
  lead: { default: 15, help: "shortest time in seconds to create them before that minute" },
  messages: { default: 5_000, help: "messages of the warm-up of each server" },
  settle: { default: 10, help: "idle seconds before the servers are watched" },
  seconds: { default: 20, help: "seconds that the servers are watched" },
} as const;

type Options = Given<typeof options & typeof common>;

/** Resident memory in bytes, before and after something. */
type Growth = { before: number; after: number };

/** Times in milliseconds from the start of the minute. */
type Firing = {
  fired: number;
  repeated: number;
  first: number;
  last: number;
  cpuPerFiring: number;
  peak: number;
};

type Figures = {
  filledPerSecond: number;
  growth: Growth;
  without: ThreadActivity[];
  with: ThreadActivity[];
  firing: Firing;
};

const minute = 60_000;
const halfAYear = 182 * 24 * 60 * minute;

/** The benchmark of many schedules. */
export const schedules = question({
  asks:
    "idle cost and memory of many schedules, and the time to fire all that are due in one minute; " +
    "goal: within that minute",
  options,
  async find(given, resources) {
    const setup = await openBenchSetup(resources);
    const without = await startWaypost(resources, {
      folder: resources.folder("without"),
      name: "without schedules",
    });
    const filled = await startWaypost(resources, {
      folder: resources.folder("with"),
      name: "with schedules",
    });
    const servers = [without, filled];
    for (const server of servers) await runTurn(setup, server, toWorkload(given, given.messages));
    const before = memory(filled.pid).resident;
    const filledPerSecond = await makeSchedules(setup, filled, {
      workload: toWorkload(given, given.far),
      at: Date.now() + halfAYear,
      round: 0,
    });
    await waitUntilQuiet(filled.pid);
    console.error(`${given.far} schedules created at ${filledPerSecond.toFixed(0)}/s`);
    const [restWithout = [], restWith = []] = await watchIdle(servers, given);
    const growth = { before, after: memory(filled.pid).resident };
    const firing = await fireTogether(setup, filled, given);
    const figures: Figures = { filledPerSecond, growth, without: restWithout, with: restWith, firing };
    return { figures, text: report(figures, given) };
  },
});

function toWorkload({ connections }: Options, messages: number): Workload {
  return { connections, messages, seconds: null, rate: null };
}

/**
 * Creates as many schedules as the workload has messages. They fire once a year, in the minute of `at`.
 * Returns the schedules per second.
 */
async function makeSchedules(
  setup: BenchSetup,
  server: Server,
  { workload, at, round }: { workload: Workload; at: number; round: number },
): Promise<number> {
  if (workload.messages === 0) return 0;
  const target = {
    path: `/v2/schedules/${destination(setup)}`,
    headers: [`Svc-Cron: ${makeYearlyCron(new Date(at))}`],
    names: 1,
  };
  const { sent, firstSentAt, lastAnsweredAt } = await sendLoad(setup, server, { ...workload, target, round });
  return (sent * 1e6) / (lastAnsweredAt - firstSentAt);
}

function makeYearlyCron(at: Date): string {
  return `${at.getUTCMinutes()} ${at.getUTCHours()} ${at.getUTCDate()} ${at.getUTCMonth() + 1} *`;
}

/** Fires all schedules of a minute. Throws if one is missing at the end of the minute, early, or repeated. */
async function fireTogether(setup: BenchSetup, server: Server, given: Options): Promise<Firing> {
  const round = ++setup.rounds;
  const dueAt = Math.ceil((Date.now() + given.lead * 1e3) / minute) * minute;
  await setup.sink.ask("begin", { id: round, messages: given.due, copies: 1 });
  await makeSchedules(setup, server, { workload: toWorkload(given, given.due), at: dueAt, round });
  await waitUntilQuiet(server.pid);
  const left = dueAt - Date.now();
  if (left <= 0)
    throw new Error(
      `The minute began before its ${given.due} schedules were created. Use more than --lead ${given.lead}.`,
    );
  console.error(`${given.due} schedules created, due in ${(left / 1e3).toFixed(0)} s`);
  const cpuBefore = cpuTime(server.pid);
  const patience = left + minute;
  const { received, firstAt, lastAt } = await setup.sink.ask(
    "finish",
    { expected: given.due, patience },
    patience + 10_000,
  );
  // Repetitions may arrive after the last first delivery.
  await waitUntilQuiet(server.pid, 30_000);
  await pause(2_000);
  const { repeated } = await setup.sink.ask("finish", { expected: 0, patience: 0 });
  requireAll({ due: given.due, received, repeated });
  const startOfMinute = microseconds() - (Date.now() - dueAt) * 1e3;
  const [first, last] = [firstAt, lastAt].map((at) => (at - startOfMinute) / 1e3) as [number, number];
  // The system clock is read in whole milliseconds.
  if (first < -2) throw new Error(`The first schedule fired ${-first} ms before its minute.`);
  const cpuPerFiring = (cpuTime(server.pid) - cpuBefore) / given.due;
  return { fired: received, repeated, first, last, cpuPerFiring, peak: memory(server.pid).peak };
}

function requireAll({ due, received, repeated }: { due: number; received: number; repeated: number }): void {
  if (received === due && repeated === 0) return;
  throw new Error(
    `Of ${due} schedules due in the same minute ${due - received} were missing at its end, ` +
      `and ${repeated} deliveries were repeated.`,
  );
}

function report(
  { filledPerSecond, growth, without, with: filled, firing }: Figures,
  { far, due }: Options,
): string {
  const rest = formatTable([
    ["idle", ...activityHeads],
    ["without schedules", ...formatActivity(without)],
    [`with ${far} schedules`, ...formatActivity(filled)],
  ]);
  const more = growth.after - growth.before;
  const fired = formatTable([
    [`${due} due in the same minute`, ""],
    ["fired, missing, doubled", `${firing.fired}, ${due - firing.fired}, ${firing.repeated}`],
    ["start of the minute to the first arrival, ms", firing.first.toFixed(0)],
    ["start of the minute to the last arrival, ms", firing.last.toFixed(0)],
    ["CPU µs per firing", firing.cpuPerFiring.toFixed(1)],
    ["peak memory, MiB", mebibytes(firing.peak)],
  ]);
  const growthText = `${mebibytes(growth.before)} and ${mebibytes(growth.after)} MiB`;
  const size = `Memory before and after ${far} schedules were created: ${growthText}`;
  const made = `${size} (${mebibytes(more)} more), created at ${filledPerSecond.toFixed(0)}/s.`;
  return [rest, made, fired].join("\n\n");
}
