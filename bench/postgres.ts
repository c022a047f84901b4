/**
 * How fast are nodes on one PostgreSQL, compared with a server that stores nothing, with SQLite, and with
 * other job queues in PostgreSQL?
 */
import { fill, killAndRestart } from "./backlog.ts";
import {
  type DatabaseServer,
  startDatabase,
  statements,
  type TableFigures,
  tableFigures,
} from "./database.ts";
import {
  type Workload,
  type BenchSetup,
  formatFootnote,
  openBenchSetup,
  startPassThrough,
  runTurn,
  type TurnResult,
} from "./benchSetup.ts";
import { mebibytes, summarize, ratio, formatSummary, formatTable } from "./figures.ts";
import type { common, Given } from "./options.ts";
import { question } from "./question.ts";
import type { RivalName } from "./rival.ts";
import { startRival } from "./rivalServer.ts";
import type { Server } from "./server.ts";
import type { BenchResources } from "./benchResources.ts";
import { startWaypost, type Waypost } from "./waypost.ts";

const options = {
  rounds: { default: 5, help: "turns of each participant" },
  messages: { default: 20_000, help: "messages of a turn, and of the warm-up" },
  nodes: { default: 3, help: "maximum number of nodes on one database" },
  "rival-messages": {
    default: 5_000,
    help: "messages of a turn of pg-boss and graphile-worker (0: skip them)",
  },
  soak: {
    default: 1_000_000,
    help: "messages before dead rows and table sizes are read (0: skip this)",
  },
  backlog: {
    default: 1_000_000,
    help: "delayed messages for throughput and restart with a backlog (0: skip this)",
  },
} as const;
type Options = Given<typeof options & typeof common>;

/** `database` is its URL, or null. */
type Contestant = { server: Server; database: string | null; drive: Workload };
/** Figures per message. `statements` is null without a database. */
type DatabaseTurn = TurnResult & { statements: number | null; databaseCpu: number };
type Measured = { name: string; turns: DatabaseTurn[] };

/** The benchmark of nodes that share one PostgreSQL database. */
export const postgres = question({
  asks:
    "messages/s with 1, 2 and 3 nodes on one PostgreSQL, statements, dead rows and backlog, " +
    "against other job queues in PostgreSQL",
  options,
  async find(given, resources) {
    const setup = await openBenchSetup(resources);
    const database = await startDatabase(resources, { pinned: given.pin });
    const workload: Workload = {
      connections: given.connections,
      messages: given.messages,
      seconds: null,
      rate: null,
    };
    const passThrough: Contestant = {
      server: await startPassThrough(resources, given.connections),
      database: null,
      drive: workload,
    };
    const sqlite: Contestant = {
      server: await startWaypost(resources, { folder: resources.folder("sqlite"), name: "waypost, SQLite" }),
      database: null,
      drive: workload,
    };
    const clusters = await startClusters(resources, database, { max: given.nodes, workload });
    const measured = await measure(setup, database, {
      contestants: [passThrough, sqlite, ...clusters],
      rounds: given.rounds,
    });
    const [one] = clusters;
    if (!one) throw new Error("--nodes: must be at least 1");
    for (const { server } of [sqlite, ...clusters.slice(1)])
      for (const node of [server, ...(server.others ?? [])]) await node.stop();
    const rivals = await measureRivals(setup, { resources, database, one, given });
    const tables = given.soak > 0 ? await fillAndMeasure(setup, one, given.soak) : [];
    const full = given.backlog > 0 ? await measureBacklog(setup, { resources, database, one, given }) : null;
    const figures = { measured, rivals, tables, full };
    return { figures, text: report(figures) };
  },
});

type Report = {
  measured: Measured[];
  rivals: Measured[];
  tables: TableFigures[];
  full: Awaited<ReturnType<typeof measureBacklog>> | null;
};

/**
 * Starts groups of one, two and three nodes, each on its own database, so that groups do not affect each
 * other.
 */
async function startClusters(
  resources: BenchResources,
  database: DatabaseServer,
  { max, workload }: { max: number; workload: Workload },
): Promise<Contestant[]> {
  const clusters: Contestant[] = [];
  for (let count = 1; count <= max; count += 1) {
    const url = await database.database(`nodes_${count}`);
    const nodes: Waypost[] = [];
    const name = `waypost, PostgreSQL, ${count === 1 ? "1 node" : `${count} nodes`}`;
    for (let node = 1; node <= count; node += 1)
      nodes.push(await startWaypost(resources, { folder: resources.folder("nodes"), database: url, name }));
    const [first, ...others] = nodes;
    if (first) clusters.push({ server: combineNodes(first, others), database: url, drive: workload });
  }
  return clusters;
}

/** Returns several nodes as one service, which has to settle the sum of their messages. */
function combineNodes(first: Waypost, others: readonly Waypost[]): Server {
  const unsettled = async (): Promise<number> => {
    const each = await Promise.all([first, ...others].map((node) => node.unsettled()));
    return each.reduce<number>((sum, figure) => sum + (figure ?? 0), 0);
  };
  return others.length === 0 ? first : { ...first, others, unsettled };
}

/** Measures all participants in turns, after a warm-up of each. */
async function measure(
  setup: BenchSetup,
  database: DatabaseServer,
  { contestants, rounds }: { contestants: readonly Contestant[]; rounds: number },
): Promise<Measured[]> {
  const measured = contestants.map(({ server }): Measured => ({ name: server.name, turns: [] }));
  for (const one of contestants) await runTurn(setup, one.server, one.drive);
  for (let round = 1; round <= rounds; round += 1) {
    for (const [index, one] of contestants.entries()) {
      const turn = await runMeasuredTurn(setup, database, one);
      measured[index]?.turns.push(turn);
      console.error(`round ${round}  ${one.server.name}: ${turn.perSecond.toFixed(0)} messages/s`);
    }
  }
  return measured;
}

async function runMeasuredTurn(
  setup: BenchSetup,
  database: DatabaseServer,
  { server, database: url, drive: workload }: Contestant,
): Promise<DatabaseTurn> {
  const before = { statements: url === null ? 0 : await statements(url), cpu: database.cpu() };
  const turn = await runTurn(setup, server, workload);
  const used = url === null ? null : ((await statements(url)) - before.statements) / turn.messages;
  return { ...turn, statements: used, databaseCpu: (database.cpu() - before.cpu) / turn.messages };
}

type RivalContext = { resources: BenchResources; database: DatabaseServer; one: Contestant; given: Options };

/**
 * Measures one Waypost node in turns with the rivals. They poll, so they run only during this measurement.
 */
async function measureRivals(
  setup: BenchSetup,
  { resources, database, one, given }: RivalContext,
): Promise<Measured[]> {
  if (given["rival-messages"] === 0) return [];
  const contestants = [one];
  for (const name of ["pg-boss", "graphile-worker"] as const)
    contestants.push(await startContestant(resources, database, { name, given }));
  const measured = await measure(setup, database, { contestants, rounds: given.rounds });
  for (const { server } of contestants.slice(1)) await server.stop();
  return measured;
}

async function startContestant(
  resources: BenchResources,
  database: DatabaseServer,
  { name, given }: { name: RivalName; given: Options },
): Promise<Contestant> {
  const url = await database.database(name.replace("-", "_"));
  const server = await startRival(resources, { name, database: url, connections: given.connections });
  const workload: Workload = {
    connections: given.connections,
    messages: given["rival-messages"],
    seconds: null,
    rate: null,
  };
  return { server, database: url, drive: workload };
}

/** Returns the table sizes right after this many messages. */
async function fillAndMeasure(
  setup: BenchSetup,
  { server, database, drive: workload }: Contestant,
  messages: number,
): Promise<TableFigures[]> {
  console.error(`soak: ${messages} messages`);
  await runTurn(setup, server, { ...workload, messages, patience: 600_000 });
  return database === null ? [] : tableFigures(database);
}

/** Measures a node with a backlog in turns with a node without one. */
async function measureBacklog(setup: BenchSetup, { resources, database, one, given }: RivalContext) {
  const home = {
    folder: resources.folder("backlog"),
    database: await database.database("backlog"),
    name: "waypost, PostgreSQL, with a backlog",
  };
  const filled = await startWaypost(resources, home);
  const perSecond = await fill(setup, filled, { count: given.backlog, batch: 1_000, fillers: 4 });
  const { server, restarts } = await killAndRestart(resources, setup, { ...home, server: filled, times: 3 });
  const contestants = [one, { server, database: home.database, drive: one.drive }];
  const measured = await measure(setup, database, { contestants, rounds: given.rounds });
  return { filled: given.backlog, perSecond, restarts, measured };
}

const listRates = (of: Measured | undefined): number[] => (of?.turns ?? []).map(({ perSecond }) => perSecond);

function report({ measured, rivals, tables, full }: Report): string {
  const parts = [
    formatComparison(measured, "pass-through"),
    `Deliveries: ${formatFootnote(measured.flatMap(({ turns }) => turns))}`,
  ];
  if (rivals.length > 0) parts.push(formatComparison(rivals, "1 node"));
  if (tables.length > 0) parts.push(tableReport(tables));
  if (full) {
    const restart = (of: "ready" | "firstDelivery"): string =>
      `${formatSummary(summarize(full.restarts.map((one) => one[of])), 0)} ms`;
    parts.push(
      formatComparison(full.measured, "1 node"),
      `Filled with ${full.filled} at ${full.perSecond.toFixed(0)} messages/s. ` +
        `Restart with them: ready after ${restart("ready")}, ` +
        `first delivery after ${restart("firstDelivery")}.`,
    );
  }
  return parts.join("\n\n");
}

/** Formats a comparison with the first participant. */
function formatComparison(measured: readonly Measured[], first: string): string {
  const sqlite = measured.find(({ name }) => name.includes("SQLite"));
  const rows = measured.map((one) => [
    one.name,
    formatSummary(summarize(listRates(one)), 0),
    formatSummary(ratio(listRates(one), listRates(measured[0])), 2),
    ...(sqlite ? [formatSummary(ratio(listRates(one), listRates(sqlite)), 2)] : []),
    formatSummary(summarize(one.turns.map(({ cpuPerMessage }) => cpuPerMessage)), 1),
    formatSummary(summarize(one.turns.map(({ databaseCpu }) => databaseCpu)), 1),
    showStatements(one.turns.flatMap((turn) => turn.statements ?? [])),
  ]);
  const heads = [
    "messages/s",
    `to ${first}`,
    ...(sqlite ? ["to SQLite"] : []),
    "CPU µs",
    "CPU µs of the database",
    "statements per message",
  ];
  return formatTable([["median (lowest to highest)", ...heads], ...rows]);
}

const showStatements = (of: readonly number[]): string =>
  of.length === 0 ? "" : formatSummary(summarize(of), 3);

function tableReport(tables: readonly TableFigures[]): string {
  const rows = tables
    .filter(({ bytes }) => bytes > 1024 * 1024)
    .map(({ table: name, live, dead, bytes }) => [name, String(live), String(dead), mebibytes(bytes)]);
  return formatTable([["table", "rows", "dead rows", "MiB, with indexes"], ...rows]);
}
