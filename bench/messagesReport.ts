/** The table of the question `messages`. */
import type { TurnResult } from "./benchSetup.ts";
import { formatSummary, formatTable, mebibytes, ratio, type Summary, summarize } from "./figures.ts";
import type { Competitor } from "./messages.ts";
import { memory } from "./processFigures.ts";
import { formatLeftOut, type LeftOut } from "./rivals.ts";

type Figure = (turn: TurnResult) => number;

const perSecond: Figure = (turn) => turn.perSecond;
const cpuPerMessage: Figure = (turn) => turn.cpuPerMessage;

/** Formats the answer as text. The first server is the pass-through, and the second is Waypost. */
export function formatMessages(competitors: readonly Competitor[], leftOut: readonly LeftOut[]): string {
  const throughput = competitors.map(({ turns }) => turns);
  const rates = (competitors[0]?.paced ?? []).map(({ rate }) => rate);
  const table = formatTable([
    ["median (lowest to highest)", ...competitors.map(({ server }) => server.name)],
    summaryRow("messages/s, end to end", throughput, { of: perSecond, digits: 0 }),
    ratioRow("messages/s of waypost ÷ this", throughput, perSecond),
    summaryRow("CPU µs per message", throughput, { of: cpuPerMessage, digits: 1 }),
    ratioRow("CPU of waypost ÷ this", throughput, cpuPerMessage),
    [
      "memory idle / peak, MiB",
      ...competitors.map(
        ({ server, idle }) => `${mebibytes(idle.resident)} / ${mebibytes(memory(server.pid).peak)}`,
      ),
    ],
    summaryRow("load's share of a core", throughput, { of: (turn) => turn.load.cpu, digits: 2 }),
    summaryRow("sink's share of a core", throughput, { of: (turn) => turn.sink.cpu, digits: 2 }),
    ["end measured by", ...throughput.map((turns) => turns[0]?.settledBy ?? "")],
    ...rates.flatMap((rate) => rateRows(competitors, rate)),
  ]);
  return [table, "", cpuNote, ...formatLeftOut(leftOut)].join("\n");
}

const cpuNote = "CPU of BullMQ includes Redis; its memory does not.";

function summaryRow(
  name: string,
  turns: readonly TurnResult[][],
  { of, digits }: { of: Figure; digits: number },
): string[] {
  return [name, ...turns.map((each) => formatSummary(summarize(each.map(of)), digits))];
}

/** Returns a row with the figure of Waypost divided by that of each other server, turn by turn. */
function ratioRow(name: string, turns: readonly TurnResult[][], of: Figure): string[] {
  const waypost = (turns[1] ?? []).map(of);
  const cells = turns.map((each, index) =>
    index === 1 ? "" : formatSummary(ratio(waypost, each.map(of)), 2),
  );
  return [name, ...cells];
}

/** Returns the rows of one rate: CPU time, latency, and how late and how busy the load was. */
function rateRows(competitors: readonly Competitor[], rate: number): string[][] {
  const turns = competitors.map(({ paced }) => paced.find((one) => one.rate === rate)?.turns ?? []);
  const median = (each: readonly TurnResult[], of: Figure): number => summarize(each.map(of)).median;
  const latency = (name: string, side: "load" | "sink"): string[] => [
    `${name} at ${rate}/s, p50 / p99 ms`,
    ...turns.map((each) => {
      const [p50, p99] = (["p50", "p99"] as const).map((at) =>
        median(each, (turn) => turn[side].latency[at]).toFixed(2),
      );
      return `${p50} / ${p99}`;
    }),
  ];
  return [
    summaryRow(`CPU µs per message at ${rate}/s`, turns, { of: cpuPerMessage, digits: 0 }),
    ratioRow("CPU of waypost ÷ this", turns, cpuPerMessage),
    latency("publish", "load"),
    ratioRow("publish p99 of waypost ÷ this", turns, (turn) => turn.load.latency.p99),
    latency("publish to delivery", "sink"),
    ratioRow("publish to delivery p99 of waypost ÷ this", turns, (turn) => turn.sink.latency.p99),
    [
      `load behind its schedule at ${rate}/s, p99 ms`,
      ...turns.map((each) => median(each, (turn) => turn.load.lateness.p99).toFixed(2)),
    ],
    summaryRow(`load's share of a core at ${rate}/s`, turns, { of: (turn) => turn.load.cpu, digits: 2 }),
  ];
}

type Quantiles = { p50: Summary; p99: Summary };

/** Returns the figures to keep. */
export function makeFigures(competitors: readonly Competitor[]): object {
  const waypost = competitors[1];
  return {
    competitors: competitors.map(({ server, idle, turns, paced }) => ({
      name: server.name,
      perSecond: summarize(turns.map(perSecond)),
      cpuPerMessage: summarize(turns.map(cpuPerMessage)),
      memory: { idle: idle.resident, peak: memory(server.pid).peak },
      turns,
      rates: paced.map((one) => ({
        rate: one.rate,
        cpuPerMessage: summarize(one.turns.map(cpuPerMessage)),
        publish: quantiles(one.turns, "load"),
        delivery: quantiles(one.turns, "sink"),
        turns: one.turns,
      })),
    })),
    ratios: competitors
      .filter((one) => one !== waypost)
      .map(({ server, turns }) => ({
        waypostTo: server.name,
        perSecond: ratio((waypost?.turns ?? []).map(perSecond), turns.map(perSecond)),
        cpuPerMessage: ratio((waypost?.turns ?? []).map(cpuPerMessage), turns.map(cpuPerMessage)),
      })),
  };
}

function quantiles(turns: readonly TurnResult[], side: "load" | "sink"): Quantiles {
  const of = (at: "p50" | "p99"): Summary => summarize(turns.map((turn) => turn[side].latency[at]));
  return { p50: of("p50"), p99: of("p99") };
}
