/**
 * What do limits and statistics cost? Publishes of an account with every limit take turns with an account
 * without limits, and with an older server.
 */
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { makeToken } from "../src/engine/core/values/tokenText.ts";
import {
  type Contestant,
  destination,
  type Workload,
  openBenchSetup,
  runTurns,
  type TurnResult,
} from "./benchSetup.ts";
import { type Summary, summarize, ratio, formatSummary, formatTable } from "./figures.ts";
import { nameSlot } from "./payload.ts";
import { question } from "./question.ts";
import type { Server } from "./server.ts";
import { root } from "./benchResources.ts";
import { findMain, startWaypost } from "./waypost.ts";

const options = {
  rounds: { default: 8, help: "throughput turns of each server" },
  messages: { default: 30_000, help: "messages of a throughput turn" },
  "warm-up": { default: 60_000, help: "messages of the warm-up of each server" },
  paths: {
    default: 1,
    help: "paths of the destination, used in turn; each path is a separate endpoint",
  },
  before: {
    default: "",
    help: "folder of another version of this repository, installed, that also takes turns",
  },
} as const;

/** Each limit that has a cost, set so high that nothing is held or refused. */
const ampleLimits = {
  parallelism: "9999",
  "global-parallelism": "900000000",
  "requests-per-second": "900000000",
  "requests-per-day": "900000000",
  "requests-per-day-hard": "900000000",
  "dead-letters": "100000",
  "log-entries": "10000000",
};

/** The benchmark of the limits and statistics of accounts. */
export const accounts = question({
  asks: "publish throughput with all account limits and statistics, against none and another version",
  options,
  async find(given, resources) {
    const setup = await openBenchSetup(resources);
    const folder = resources.folder("waypost");
    const here = await startWaypost(resources, { folder, name: "no limits" });
    const limited = setLimits({ folder, server: here, name: "all limits", sources: root });
    const servers = [here, limited];
    if (given.before !== "") {
      const home = { folder: resources.folder("before"), name: "before", sources: given.before };
      const before = await startWaypost(resources, home);
      servers.push(setLimits({ ...home, server: before, name: "before, all limits" }), before);
    }
    const path = `/v2/publish/${destination(setup)}${given.paths > 1 ? `-at-${nameSlot}` : ""}`;
    const target = { path, headers: [], names: given.paths };
    const workload: Workload = {
      connections: given.connections,
      messages: given.messages,
      seconds: null,
      rate: null,
      target,
    };
    const warmUp = { ...workload, messages: given["warm-up"] };
    const turns = await runTurns(
      setup,
      servers.map((server): Contestant => ({ server, warmUp, drive: workload })),
      given.rounds,
    );
    const found = servers.map(({ name }, index) => ({ name, turns: turns[index] ?? [] }));
    const left = countEndpointRows(folder);
    return { figures: { found, left }, text: `${report(found)}\n\nRows of endpoints left: ${left}.` };
  },
});

/** Sets every limit of an account of a running server. */
function setLimits({
  folder,
  server,
  name,
  sources,
}: {
  folder: string;
  server: Server;
  name: string;
  sources: string;
}): Server {
  const flags = Object.entries(ampleLimits).flatMap(([limit, value]) => [`--${limit}`, value]);
  const command = [
    findMain(sources),
    "account",
    "limits",
    "testUser1",
    ...flags,
    "--data",
    join(folder, "data"),
  ];
  execFileSync(process.execPath, command, { cwd: sources });
  return { ...server, name, token: makeToken("testUser1", "testPassword") };
}

/** Returns the number of endpoints that still have a row after all deliveries. */
function countEndpointRows(folder: string): number {
  const database = new DatabaseSync(join(folder, "data", "waypost.db"), { readOnly: true });
  try {
    return Number(
      database.prepare("select count(*) as count from limiters where id like 'endpoint:%'").get()?.["count"],
    );
  } finally {
    database.close();
  }
}

function report(found: readonly { name: string; turns: readonly TurnResult[] }[]): string {
  const rival = found.at(-1)?.name === "before" ? found.at(-1) : found[0];
  const of = (turns: readonly TurnResult[], figure: (turn: TurnResult) => number): number[] =>
    turns.map(figure);
  const against = (turns: readonly TurnResult[], figure: (turn: TurnResult) => number): Summary =>
    ratio(of(turns, figure), of(rival?.turns ?? [], figure));
  const perSecond = (turn: TurnResult): number => turn.perSecond;
  const cpu = (turn: TurnResult): number => turn.cpuPerMessage;
  return formatTable([
    ["median (lowest to highest)", ...found.map(({ name }) => name)],
    [
      "messages/s, end to end",
      ...found.map(({ turns }) => formatSummary(summarize(of(turns, perSecond)), 0)),
    ],
    [
      `÷ "${rival?.name}", turn by turn`,
      ...found.map(({ turns }) => formatSummary(against(turns, perSecond), 2)),
    ],
    ["CPU µs per message", ...found.map(({ turns }) => formatSummary(summarize(of(turns, cpu)), 1))],
    [`÷ "${rival?.name}", turn by turn`, ...found.map(({ turns }) => formatSummary(against(turns, cpu), 2))],
  ]);
}
