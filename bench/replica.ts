/** What does a second copy of the store cost? A server with and one without `--replicate` take turns. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { openBenchSetup, runTurn, type BenchSetup, type Workload } from "./benchSetup.ts";
import { estimateRatio, formatSummary, formatTable, summarize } from "./figures.ts";
import { threads } from "./processFigures.ts";
import { question } from "./question.ts";
import { ask, pause } from "./server.ts";
import { startWaypost, type Waypost } from "./waypost.ts";

const options = {
  rounds: { default: 10, help: "turns of each server" },
  "warm-up": { default: 2, help: "warm-up turns of each server" },
  messages: { default: 10_000, help: "messages of a turn" },
  target: { default: "", help: "folder for the copies [a folder of the data root]" },
} as const;

/**
 * The figures of one turn. CPU is in microseconds per message: the main thread and the other threads of the
 * server, and the process that writes the copy. `written`: bytes of the copy per message.
 */
type Turn = { main: number; others: number; writer: number; written: number; perSecond: number };

type Contestant = { server: Waypost; writer: number | null };

/** The benchmark of `--replicate`. */
export const replica = question({
  asks: "CPU of the server and of the process that writes a second copy, with --replicate against without",
  options,
  async find(given, resources) {
    const setup = await openBenchSetup(resources);
    const target = given.target === "" ? resources.folder("copy") : given.target;
    const without = await startWaypost(resources, { folder: resources.folder("without"), name: "without" });
    const settings = ["--replicate", join(target, "replica")];
    const home = { folder: resources.folder("with"), name: "with", settings };
    const server = await startWaypost(resources, home);
    while (!/"complete":\s*true/.test(await ask(server, { path: "/v2/health" }))) await pause(50);
    const contestants = [
      { server: without, writer: null },
      { server, writer: findWriter(server.pid) },
    ] as const;
    const workload = { connections: given.connections, messages: given.messages, seconds: null, rate: null };
    const turns: [Turn[], Turn[]] = [[], []];
    for (let round = 1 - given["warm-up"]; round <= given.rounds; round += 1)
      for (const index of round % 2 === 0 ? ([0, 1] as const) : ([1, 0] as const)) {
        const turn = await takeTurn(setup, contestants[index], workload);
        if (round > 0) turns[index].push(turn);
        console.error(`round ${round}  ${contestants[index].server.name}: ${describe(turn)}`);
      }
    const [before, now] = turns;
    return { figures: { without: before, with: now }, text: report(before, now) };
  },
});

function findWriter(server: number): number {
  const children = readFileSync(`/proc/${server}/task/${server}/children`, "latin1").trim().split(" ");
  const writer = children.find((pid) =>
    readFileSync(`/proc/${pid}/cmdline`, "latin1").match(/replicaWriterMain|replica\/writerMain/),
  );
  if (writer === undefined) throw new Error("The server has no process that writes the copy.");
  return Number(writer);
}

async function takeTurn(
  setup: BenchSetup,
  { server, writer }: Contestant,
  workload: Workload,
): Promise<Turn> {
  const read = async () => ({
    main: sumCpu(server.pid, (id) => id === server.pid),
    others: sumCpu(server.pid, (id) => id !== server.pid),
    writer: writer === null ? 0 : sumCpu(writer),
    written: await readWritten(server),
  });
  const before = await read();
  const { perSecond, messages } = await runTurn(setup, server, workload);
  const after = await read();
  const perMessage = (name: keyof typeof before): number => (after[name] - before[name]) / messages;
  return {
    main: perMessage("main"),
    others: perMessage("others"),
    writer: perMessage("writer"),
    written: perMessage("written"),
    perSecond,
  };
}

const sumCpu = (pid: number, isCounted: (id: number) => boolean = () => true): number =>
  threads(pid)
    .filter(({ id }) => isCounted(id))
    .reduce((sum, { cpu }) => sum + cpu, 0);

async function readWritten(server: Waypost): Promise<number> {
  const metrics = await ask(server, { path: "/metrics" });
  return Number(/^waypost_replica_written_bytes_total(?:\{.*\})? (\S+)/m.exec(metrics)?.[1] ?? 0);
}

const describe = ({ main, others, writer, perSecond }: Turn): string =>
  `${perSecond.toFixed(0)}/s, main ${main.toFixed(1)} µs, other threads ${others.toFixed(1)} µs, ` +
  `writer ${writer.toFixed(1)} µs each`;

function report(before: readonly Turn[], now: readonly Turn[]): string {
  const figures: { name: string; read(turn: Turn): number; digits: number }[] = [
    { name: "CPU µs, main thread", read: ({ main }) => main, digits: 1 },
    { name: "CPU µs, server", read: ({ main, others }) => main + others, digits: 1 },
    { name: "CPU µs, with the writer", read: (turn) => turn.main + turn.others + turn.writer, digits: 1 },
    { name: "per second", read: ({ perSecond }) => perSecond, digits: 0 },
  ];
  const rows = figures.map(({ name, read, digits }) => {
    const [old, current] = [before.map(read), now.map(read)];
    const { mean, low, high } = estimateRatio(current, old);
    return [
      name,
      formatSummary(summarize(old), digits),
      formatSummary(summarize(current), digits),
      `${mean.toFixed(3)} (${low.toFixed(3)} to ${high.toFixed(3)})`,
    ];
  });
  const writer = formatSummary(summarize(now.map((turn) => turn.writer)), 1);
  const written = formatSummary(summarize(now.map((turn) => turn.written)), 0);
  const note =
    `The writer used ${writer} µs per message, and wrote ${written} bytes.\n` +
    "Without and with: median (lowest to highest). Ratio: mean of the pairs, with its 95 % interval.";
  return `${formatTable([["", "without", "with", "with ÷ without"], ...rows])}\n\n${note}`;
}
