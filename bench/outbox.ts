/**
 * How fast do rows of the database of an application become deliveries, and what do they cost that database?
 * Waypost takes turns with pg-boss and graphile-worker, which also store a job in a transaction of the
 * application. Their workers send the same signed request to the same destination.
 */
import type { Client } from "pg";
import { type BenchSetup, destination, openBenchSetup } from "./benchSetup.ts";
import { microseconds } from "./clock.ts";
import { type DatabaseServer, startDatabase, statements, tableFigures } from "./database.ts";
import { formatSummary, formatTable, mebibytes, type Spread, summarize } from "./figures.ts";
import type { common, Given } from "./options.ts";
import {
  connectTo,
  type OutboxContestant,
  type OutboxPlace,
  startConsumer,
  startOutbox,
} from "./outboxContestants.ts";
import { body } from "./payload.ts";
import { question } from "./question.ts";
import { formatLeftOut, type LeftOut, readRivals, rivalsOption, startRivals } from "./rivals.ts";
import { pause } from "./server.ts";
import type { SinkReport } from "./sink.ts";

const rivalNames = ["pg-boss", "graphile-worker"] as const;

const options = {
  rivals: rivalsOption(rivalNames),
  rounds: { default: 3, help: "turns of each participant" },
  rows: { default: 15_000, help: "rows of a turn of Waypost that wait when it begins" },
  "rival-rows": { default: 5_000, help: "the same for each rival" },
  rate: { default: 100, help: "transactions per second while latency is measured" },
  seconds: { default: 8, help: "seconds of each such turn" },
  idle: { default: 20, help: "seconds in which statements without work are counted (0: skip this)" },
  held: { default: 32, help: "seconds for which a transaction is held; 3600 for an hour (0: skip this)" },
  "held-rate": { default: 200, help: "transactions per second meanwhile" },
} as const;
type Options = Given<typeof options & typeof common>;

/** Rows that waited at the start. `enqueue` and CPU times are in microseconds for each row. */
type Drain = { perSecond: number; enqueue: number; cpu: number; databaseCpu: number };
type Turn = { drain: Drain; taken: number | null; latency: Spread };
/** A quarter of the time for which a transaction was held, with the figures at its end. */
type Quarter = { latency: Spread; dead: number; bytes: number };
type Measured = { name: string; turns: Turn[]; idle: number | null; held: Quarter[] };

type Bench = { setup: BenchSetup; server: DatabaseServer; given: Options };

/** The benchmark of outboxes. */
export const outbox = question({
  asks:
    "rows/s of an outbox, commit to delivery, idle statements and dead rows in the database of the " +
    "application, against pg-boss and graphile-worker",
  options,
  async find(given, resources) {
    const names = readRivals(given.rivals, rivalNames);
    const setup = await openBenchSetup(resources);
    const server = await startDatabase(resources, { pinned: given.pin });
    const { connections } = given;
    const place: OutboxPlace = { resources, server, sink: destination(setup), connections };
    const waypost = await startOutbox(place);
    const { started, leftOut } = await startRivals(resources, names, (name) => startConsumer(place, name));
    const contestants = [waypost, ...started];
    const bench = { setup, server, given };
    const measured = contestants.map(({ name }): Measured => ({ name, turns: [], idle: null, held: [] }));
    for (const one of contestants) await takeTurn(bench, one);
    for (let round = 1; round <= given.rounds; round += 1)
      for (const [index, one] of contestants.entries()) {
        const turn = await takeTurn(bench, one);
        measured[index]?.turns.push(turn);
        console.error(`round ${round}  ${one.name}: ${describe(turn)}`);
      }
    // Idle ones do not disturb each other.
    const idle =
      given.idle > 0 ? await Promise.all(contestants.map((one) => countIdle(one, given.idle))) : [];
    for (const [index, one] of contestants.entries()) {
      const figures = measured[index];
      if (!figures) continue;
      figures.idle = idle[index] ?? null;
      if (given.held > 0) figures.held = await holdTransaction(bench, one);
    }
    for (const one of contestants) await one.end();
    return { figures: { measured, leftOut }, text: report(measured, leftOut, given) };
  },
});

async function takeTurn(bench: Bench, one: OutboxContestant): Promise<Turn> {
  const { given } = bench;
  const isOutbox = one.name === "waypost";
  const rows = isOutbox ? given.rows : given["rival-rows"];
  const taken = isOutbox ? await take(bench, one, rows) : null;
  const drain = await runDrain(bench, one, rows);
  await one.start();
  await pause(2_000);
  const latency = await runPaced(bench, one, { rate: given.rate, seconds: given.seconds });
  await one.stop();
  return { drain, taken, latency };
}

/** Connections of the application, and the rows of one of its transactions, while rows are prepared. */
const writers = 4;
const rowsOfTransaction = 50;

/** Stores rows, in several transactions at a time. Returns the microseconds for each row. */
async function fill(
  { setup }: Bench,
  one: OutboxContestant,
  { rows, isDelayed = false }: { rows: number; isDelayed?: boolean },
): Promise<number> {
  const startedAt = microseconds();
  let next = 0;
  const write = async (): Promise<void> => {
    const sql = await connectTo(one.database);
    while (next < rows) {
      const from = next;
      next = Math.min(rows, from + rowsOfTransaction);
      const end = next;
      await sql.query("begin");
      for (let number = from; number < end; number += 1) {
        await sql.query("insert into orders (number) values ($1)", [number]);
        await one.enqueue(sql, body({ round: setup.rounds, number, at: microseconds() }), isDelayed);
      }
      await sql.query("commit");
    }
    await sql.end();
  };
  await Promise.all(Array.from({ length: writers }, write));
  return (microseconds() - startedAt) / rows;
}

/** Returns how many rows per second Waypost takes that wait, if nothing is delivered meanwhile. */
async function take(bench: Bench, one: OutboxContestant, rows: number): Promise<number> {
  await fill(bench, one, { rows, isDelayed: true });
  const sql = await connectTo(one.database);
  const startedAt = microseconds();
  await one.start();
  while ((await sql.query("select from waypost.outbox limit 1")).rowCount !== 0) await pause(5);
  const time = microseconds() - startedAt;
  await sql.end();
  await one.stop();
  return (rows * 1e6) / time;
}

/** Measures from the start of the work until the last of the rows that wait is delivered. */
async function runDrain(
  { setup, server, given }: Bench,
  one: OutboxContestant,
  rows: number,
): Promise<Drain> {
  const id = ++setup.rounds;
  await setup.sink.ask("begin", { id, messages: rows, copies: 1 });
  const enqueue = await fill({ setup, server, given }, one, { rows });
  const before = { cpu: one.cpu(), database: server.cpu() };
  const startedAt = microseconds();
  await one.start();
  const sink = await finish(setup, one, rows);
  const perSecond = (rows * 1e6) / (sink.lastAt - startedAt);
  await one.stop();
  const cpu = (one.cpu() - before.cpu) / rows;
  return { perSecond, enqueue, cpu, databaseCpu: (server.cpu() - before.database) / rows };
}

async function finish(setup: BenchSetup, { name }: OutboxContestant, expected: number): Promise<SinkReport> {
  const patience = 60_000;
  const sink = await setup.sink.ask("finish", { expected, patience }, patience + 10_000);
  if (sink.received < expected) throw new Error(`${name} delivered ${sink.received} of ${expected} rows.`);
  if (sink.repeated > 0) throw new Error(`${name} delivered ${sink.repeated} rows more than once.`);
  return sink;
}

/** Runs transactions at a fixed rate. Returns the time from the insert of each row to its arrival. */
async function runPaced(
  { setup }: Bench,
  one: OutboxContestant,
  { rate, seconds }: { rate: number; seconds: number },
): Promise<Spread> {
  const id = ++setup.rounds;
  const messages = Math.round(rate * seconds);
  await setup.sink.ask("begin", { id, messages, copies: 1 });
  const idle = await Promise.all(Array.from({ length: 8 }, () => connectTo(one.database)));
  const clients = [...idle];
  const running = new Set<Promise<void>>();
  const startAt = performance.now();
  for (let number = 0; number < messages; number += 1) {
    await pause(Math.max(0, startAt + (number * 1e3) / rate - performance.now()));
    const sql = idle.pop();
    // The application has no more connections. It waits for one, as a pool would.
    if (!sql) {
      await Promise.race(running);
      number -= 1;
      continue;
    }
    const transaction = publishOne(sql, one, { round: id, number }).finally(() => {
      idle.push(sql);
      running.delete(transaction);
    });
    running.add(transaction);
  }
  await Promise.all(running);
  const { latency } = await finish(setup, one, messages);
  await Promise.all(clients.map((sql) => sql.end()));
  return latency;
}

async function publishOne(
  sql: Client,
  one: OutboxContestant,
  { round, number }: { round: number; number: number },
): Promise<void> {
  await sql.query("begin");
  await sql.query("insert into orders (number) values ($1)", [number]);
  await one.enqueue(sql, body({ round, number, at: microseconds() }));
  await sql.query("commit");
}

/** Returns how many statements per second run in the database of an application without work. */
async function countIdle(one: OutboxContestant, seconds: number): Promise<number> {
  await one.start();
  await pause(5_000);
  const before = await statements(one.database);
  await pause(seconds * 1e3);
  const after = await statements(one.database);
  await one.stop();
  return (after - before) / seconds;
}

/** Works while a transaction of the application stays open, so that the database cannot remove dead rows. */
async function holdTransaction(bench: Bench, one: OutboxContestant): Promise<Quarter[]> {
  const { held: seconds, "held-rate": rate } = bench.given;
  await one.start();
  const holder = await connectTo(one.database);
  await holder.query("begin isolation level repeatable read");
  await holder.query("select count(*) from orders");
  const quarters: Quarter[] = [];
  for (let at = 0; at < 4; at += 1) {
    const latency = await runPaced(bench, one, { rate, seconds: seconds / 4 });
    // The counts of a table follow within a second.
    await pause(1_500);
    const tables = (await tableFigures(one.database)).filter(({ table: name }) => name !== "orders");
    const [dead, bytes] = [sum(tables.map((table) => table.dead)), sum(tables.map((table) => table.bytes))];
    quarters.push({ latency, dead, bytes });
    console.error(`held  ${one.name}: ${dead} dead rows, p99 ${latency.p99.toFixed(0)} ms`);
  }
  await holder.query("rollback");
  await holder.end();
  await one.stop();
  return quarters;
}

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

const describe = ({ drain, taken, latency }: Turn): string =>
  `${drain.perSecond.toFixed(0)} rows/s${taken === null ? "" : `, ${taken.toFixed(0)} taken/s`}, ` +
  `p50 ${latency.p50.toFixed(1)} ms, p99 ${latency.p99.toFixed(1)} ms`;

function report(measured: readonly Measured[], leftOut: readonly LeftOut[], given: Options): string {
  const show = (turns: readonly Turn[], read: (turn: Turn) => number | null, digits = 0): string => {
    const values = turns.flatMap((turn) => read(turn) ?? []);
    return values.length === 0 ? "" : formatSummary(summarize(values), digits);
  };
  const rows = measured.map(({ name, turns, idle }) => [
    name,
    show(turns, ({ drain }) => drain.perSecond),
    show(turns, ({ taken }) => taken),
    show(turns, ({ drain }) => drain.cpu),
    show(turns, ({ drain }) => drain.databaseCpu),
    show(turns, ({ drain }) => drain.enqueue),
    show(turns, ({ latency }) => latency.p50, 1),
    show(turns, ({ latency }) => latency.p99, 1),
    idle === null ? "" : idle.toFixed(1),
  ]);
  const heads = [
    ...["delivered/s", "taken/s", "CPU µs of a row", "of the database", "µs to store a row"],
    ...[`p50 ms at ${given.rate}/s`, "p99 ms", "idle statements/s"],
  ];
  const held = measured.flatMap(({ name, held: quarters }) =>
    quarters.map(({ latency, dead, bytes }, at) => [
      ...[
        name,
        `${at + 1}/4`,
        String(dead),
        mebibytes(bytes),
        latency.p50.toFixed(1),
        latency.p99.toFixed(1),
      ],
    ]),
  );
  const heldHeads = [`held for ${given.held} s, ${given["held-rate"]}/s`, "after", "dead rows", "MiB"];
  return [
    formatTable([["median (lowest to highest)", ...heads], ...rows]),
    ...(held.length > 0 ? [formatTable([[...heldHeads, "p50 ms", "p99 ms"], ...held])] : []),
    ...formatLeftOut(leftOut),
  ].join("\n\n");
}
