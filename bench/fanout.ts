/**
 * What does a URL group cost? Deliveries through few publishes to groups take turns with as many single
 * publishes.
 */
import {
  formatFootnote,
  type Contestant,
  type Workload,
  openBenchSetup,
  runTurns,
  type TurnResult,
} from "./benchSetup.ts";
import { summarize, ratio, formatSummary, formatTable } from "./figures.ts";
import { sinkUrl } from "./payload.ts";
import { question } from "./question.ts";
import { ask, type Server } from "./server.ts";
import { startWaypost } from "./waypost.ts";

/** The number of endpoints of each group. */
const sizes = [1, 10, 100] as const;

type Measured = { name: string; turns: TurnResult[] };

/** The benchmark of publishes to URL groups. */
export const fanout = question({
  asks: "deliveries/s through URL groups of 1, 10 and 100 endpoints, against single publishes",
  options: {
    rounds: { default: 5, help: "turns of each way" },
    deliveries: {
      default: 20_000,
      help: "deliveries of a turn and of the warm-up; publishes are fewer by the size of the group",
    },
  },
  async find(given, resources) {
    const setup = await openBenchSetup(resources);
    const waypost = await startWaypost(resources, { folder: resources.folder("waypost") });
    const single: Workload = {
      connections: given.connections,
      messages: given.deliveries,
      seconds: null,
      rate: null,
    };
    const contestants: Contestant[] = [
      { server: { ...waypost, name: "single publishes" }, warmUp: single, drive: single },
    ];
    for (const size of sizes) {
      await makeGroup(waypost, { size, sinkPort: setup.sinkPort });
      const target = { path: `/v2/publish/${makeGroupName(size)}`, headers: [], names: 1 };
      const workload: Workload = {
        ...single,
        messages: Math.ceil(given.deliveries / size),
        target,
        copies: size,
      };
      const name = size === 1 ? "a group with 1 endpoint" : `a group with ${size} endpoints`;
      contestants.push({ server: { ...waypost, name }, warmUp: workload, drive: workload });
    }
    const turns = await runTurns(setup, contestants, given.rounds);
    const measured = contestants.map(({ server }, index): Measured => ({
      name: server.name,
      turns: turns[index] ?? [],
    }));
    return { figures: { measured }, text: report(measured) };
  },
});

const makeGroupName = (size: number): string => `fan-${size}`;

/**
 * Creates a group. Its endpoints differ only in their paths, by which the sink distinguishes the copies of a
 * message.
 */
async function makeGroup(
  server: Server,
  { size, sinkPort }: { size: number; sinkPort: number },
): Promise<void> {
  const endpoints = Array.from({ length: size }, (_, copy) => ({
    name: `endpoint-${copy}`,
    url: sinkUrl(sinkPort, copy),
  }));
  await ask(server, {
    method: "POST",
    path: `/v2/topics/${makeGroupName(size)}/endpoints`,
    json: { endpoints },
  });
}

function report(measured: readonly Measured[]): string {
  const rates = (of: readonly TurnResult[] = []): number[] => of.map(({ perSecond }) => perSecond);
  const costs = (of: readonly TurnResult[] = []): number[] => of.map(({ cpuPerMessage }) => cpuPerMessage);
  const singles = measured[0]?.turns;
  const rows = measured.map(({ name, turns }) => [
    name,
    formatSummary(summarize(rates(turns)), 0),
    formatSummary(ratio(rates(turns), rates(singles)), 2),
    formatSummary(summarize(costs(turns)), 1),
    formatSummary(ratio(costs(turns), costs(singles)), 2),
    formatSummary(summarize(turns.map(({ load }) => load.latency.p99)), 1),
  ]);
  const heads = [
    "deliveries/s",
    "÷ single",
    "CPU µs per delivery",
    "÷ single",
    "publish p99 ms under this load",
  ];
  const note = formatFootnote(measured.flatMap(({ turns }) => turns));
  return `${formatTable([["median (lowest to highest)", ...heads], ...rows])}\n\n${note}`;
}
