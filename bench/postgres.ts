/** What do nodes on one PostgreSQL reach, against a server that stores nothing, SQLite, and others that keep jobs in PostgreSQL? */
import { fill, killAndRestart } from "./backlog.ts";
import { type DatabaseServer, startDatabase, statements, type TableFigures, tableFigures } from "./database.ts";
import { type Drive, type Field, footnote, openField, startPassThrough, takeTurn, type Turn } from "./field.ts";
import { mebibytes, middle, ratio, showMiddle, table } from "./figures.ts";
import type { common, Given } from "./options.ts";
import { question } from "./question.ts";
import type { RivalAnswers, RivalName } from "./rival.ts";
import type { Server } from "./server.ts";
import { end, type Stage } from "./stage.ts";
import { startWaypost, type Waypost } from "./waypost.ts";

const options = {
  rounds: { default: 5, help: "turns of each" },
  messages: { default: 20_000, help: "messages of a turn, and of the warm-up" },
  nodes: { default: 3, help: "nodes on one database, at most" },
  "rival-messages": { default: 5_000, help: "messages of a turn of pg-boss and graphile-worker (0: leave them out)" },
  soak: { default: 1_000_000, help: "messages before dead rows and sizes of tables are looked at (0: leave it out)" },
  backlog: { default: 1_000_000, help: "delayed messages for throughput and restart with a backlog (0: leave it out)" },
} as const;
type Options = Given<typeof options & typeof common>;

/** `database`: its URL, where it has one. */
type Contestant = { server: Server; database: string | null; drive: Drive };
/** Both per message; statements are null without a database. */
type DatabaseTurn = Turn & { statements: number | null; databaseCpu: number };
type Measured = { name: string; turns: DatabaseTurn[] };

export const postgres = question({
  asks: "messages per second with 1, 2 and 3 nodes on one PostgreSQL, statements, dead rows, backlog, and others that use PostgreSQL",
  options,
  async find(given, stage) {
    const field = await openField(stage);
    const database = await startDatabase(stage, { pinned: given.pin });
    const drive: Drive = { connections: given.connections, messages: given.messages, seconds: null, rate: null };
    const passThrough: Contestant = { server: await startPassThrough(stage, given.connections), database: null, drive };
    const sqlite: Contestant = {
      ...{ server: await startWaypost(stage, { folder: stage.folder("sqlite"), name: "waypost, SQLite" }), database: null, drive },
    };
    const clusters = await startClusters(stage, database, { most: given.nodes, drive });
    const measured = await measure(field, database, { contestants: [passThrough, sqlite, ...clusters], rounds: given.rounds });
    const [one] = clusters;
    if (!one) throw new Error("--nodes: at least one");
    for (const { server } of [sqlite, ...clusters.slice(1)]) for (const node of [server, ...(server.others ?? [])]) await node.stop();
    const rivals = await measureRivals(field, { stage, database, one, given });
    const tables = given.soak > 0 ? await soak(field, one, given.soak) : [];
    const full = given.backlog > 0 ? await measureBacklog(field, { stage, database, one, given }) : null;
    const figures = { measured, rivals, tables, full };
    return { figures, text: report(figures) };
  },
});

type Report = { measured: Measured[]; rivals: Measured[]; tables: TableFigures[]; full: Awaited<ReturnType<typeof measureBacklog>> | null };

/** One node, two, three: each group on a database of its own, so that none hears of another. */
async function startClusters(
  stage: Stage,
  database: DatabaseServer,
  { most, drive }: { most: number; drive: Drive },
): Promise<Contestant[]> {
  const clusters: Contestant[] = [];
  for (let count = 1; count <= most; count += 1) {
    const url = await database.database(`nodes_${count}`);
    const nodes: Waypost[] = [];
    const name = `waypost, PostgreSQL, ${count === 1 ? "1 node" : `${count} nodes`}`;
    for (let node = 1; node <= count; node += 1)
      nodes.push(await startWaypost(stage, { folder: stage.folder("nodes"), database: url, name }));
    const [first, ...others] = nodes;
    if (first) clusters.push({ server: together(first, others), database: url, drive });
  }
  return clusters;
}

/** Several nodes as one service: what they have to settle is what all have together. */
function together(first: Waypost, others: readonly Waypost[]): Server {
  const unsettled = async (): Promise<number> => {
    const each = await Promise.all([first, ...others].map((node) => node.unsettled()));
    return each.reduce<number>((sum, figure) => sum + (figure ?? 0), 0);
  };
  return others.length === 0 ? first : { ...first, others, unsettled };
}

/** All of them in turns, after a warm-up of each. */
async function measure(
  field: Field,
  database: DatabaseServer,
  { contestants, rounds }: { contestants: readonly Contestant[]; rounds: number },
): Promise<Measured[]> {
  const measured = contestants.map(({ server }): Measured => ({ name: server.name, turns: [] }));
  for (const one of contestants) await takeTurn(field, one.server, one.drive);
  for (let round = 1; round <= rounds; round += 1) {
    for (const [index, one] of contestants.entries()) {
      const turn = await watchedTurn(field, database, one);
      measured[index]?.turns.push(turn);
      console.error(`round ${round}  ${one.server.name}: ${turn.perSecond.toFixed(0)} messages/s`);
    }
  }
  return measured;
}

async function watchedTurn(field: Field, database: DatabaseServer, { server, database: url, drive }: Contestant): Promise<DatabaseTurn> {
  const before = { statements: url === null ? 0 : await statements(url), cpu: database.cpu() };
  const turn = await takeTurn(field, server, drive);
  const used = url === null ? null : ((await statements(url)) - before.statements) / turn.messages;
  return { ...turn, statements: used, databaseCpu: (database.cpu() - before.cpu) / turn.messages };
}

type Rest = { stage: Stage; database: DatabaseServer; one: Contestant; given: Options };

/** One node of ours in turns with them. They poll, so they are not there while anything else is measured. */
async function measureRivals(field: Field, { stage, database, one, given }: Rest): Promise<Measured[]> {
  if (given["rival-messages"] === 0) return [];
  const contestants = [one];
  for (const name of ["pg-boss", "graphile-worker"] as const) contestants.push(await startRival(stage, database, { name, given }));
  const measured = await measure(field, database, { contestants, rounds: given.rounds });
  for (const { server } of contestants.slice(1)) await server.stop();
  return measured;
}

async function startRival(
  stage: Stage,
  database: DatabaseServer,
  { name, given }: { name: RivalName; given: Options },
): Promise<Contestant> {
  const url = await database.database(name.replace("-", "_"));
  const part = stage.part<RivalAnswers>("rival", "server");
  const { port } = await part.ask("listen", { name, database: url, connections: given.connections }, 60_000);
  const server: Server = {
    ...{ name, pid: part.process.pid ?? Number.NaN, port, token: "none" },
    unsettled: () => part.ask("unsettled", undefined),
    stop: () => end(part.process, "SIGTERM"),
  };
  const drive: Drive = { connections: given.connections, messages: given["rival-messages"], seconds: null, rate: null };
  return { server, database: url, drive };
}

/** What so many messages leave behind, right after them. */
async function soak(field: Field, { server, database, drive }: Contestant, messages: number): Promise<TableFigures[]> {
  console.error(`soak: ${messages} messages`);
  await takeTurn(field, server, { ...drive, messages, patience: 600_000 });
  return database === null ? [] : tableFigures(database);
}

/** A node with a backlog, in turns with the one that has none. */
async function measureBacklog(field: Field, { stage, database, one, given }: Rest) {
  const home = {
    folder: stage.folder("backlog"),
    database: await database.database("backlog"),
    name: "waypost, PostgreSQL, with a backlog",
  };
  const filled = await startWaypost(stage, home);
  const perSecond = await fill(field, filled, { count: given.backlog, batch: 1_000, fillers: 4 });
  const { server, restarts } = await killAndRestart(stage, field, { ...home, server: filled, times: 3 });
  const contestants = [one, { server, database: home.database, drive: one.drive }];
  const measured = await measure(field, database, { contestants, rounds: given.rounds });
  return { filled: given.backlog, perSecond, restarts, measured };
}

const rates = (of: Measured | undefined): number[] => (of?.turns ?? []).map(({ perSecond }) => perSecond);

function report({ measured, rivals, tables, full }: Report): string {
  const parts = [compared(measured, "pass-through"), `Deliveries: ${footnote(measured.flatMap(({ turns }) => turns))}`];
  if (rivals.length > 0) parts.push(compared(rivals, "1 node"));
  if (tables.length > 0) parts.push(tableReport(tables));
  if (full) {
    const restart = (of: "ready" | "firstDelivery"): string => `${showMiddle(middle(full.restarts.map((one) => one[of])), 0)} ms`;
    parts.push(
      compared(full.measured, "1 node"),
      `Filled with ${full.filled} at ${full.perSecond.toFixed(0)} messages/s. Restart with them: ready after ${restart("ready")}, first delivery after ${restart("firstDelivery")}.`,
    );
  }
  return parts.join("\n\n");
}

/** Against the first of them. */
function compared(measured: readonly Measured[], first: string): string {
  const sqlite = measured.find(({ name }) => name.includes("SQLite"));
  const rows = measured.map((one) => [
    one.name,
    showMiddle(middle(rates(one)), 0),
    showMiddle(ratio(rates(one), rates(measured[0])), 2),
    ...(sqlite ? [showMiddle(ratio(rates(one), rates(sqlite)), 2)] : []),
    showMiddle(middle(one.turns.map(({ cpuPerMessage }) => cpuPerMessage)), 1),
    showMiddle(middle(one.turns.map(({ databaseCpu }) => databaseCpu)), 1),
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
  return table([["median (lowest to highest)", ...heads], ...rows]);
}

const showStatements = (of: readonly number[]): string => (of.length === 0 ? "" : showMiddle(middle(of), 3));

function tableReport(tables: readonly TableFigures[]): string {
  const rows = tables
    .filter(({ bytes }) => bytes > 1024 * 1024)
    .map(({ table: name, live, dead, bytes }) => [name, String(live), String(dead), mebibytes(bytes)]);
  return table([["table", "rows", "dead rows", "MiB, with indexes"], ...rows]);
}
