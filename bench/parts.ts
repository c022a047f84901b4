/**
 * What is the limit of the bench itself? It sends the load straight to the sink, so no server can be faster.
 */
import { type Workload, openBenchSetup, runTurns } from "./benchSetup.ts";
import { summarize, formatSummary, formatTable } from "./figures.ts";
import { question } from "./question.ts";
import type { Server } from "./server.ts";

/** The benchmark of the load and the sink, without a server. */
export const parts = question({
  asks: "speed of the load and the sink without a server, which limits all other figures",
  options: {
    rounds: { default: 5, help: "turns" },
    messages: { default: 100_000, help: "messages of a turn" },
  },
  async find(given, resources) {
    const setup = await openBenchSetup(resources);
    const sink: Server = {
      name: "sink",
      pid: setup.sink.process.pid ?? Number.NaN,
      port: setup.sinkPort,
      token: "none",
      unsettled: async () => null,
      stop: async () => undefined,
    };
    const workload: Workload = {
      connections: given.connections,
      messages: given.messages,
      seconds: null,
      rate: null,
    };
    const [turns = []] = await runTurns(
      setup,
      [{ server: sink, warmUp: workload, drive: workload }],
      given.rounds,
    );
    const rows = [
      ["median (lowest to highest)", ""],
      ["messages/s", formatSummary(summarize(turns.map((turn) => turn.perSecond)), 0)],
      [
        "load's µs per message",
        formatSummary(summarize(turns.map((turn) => (turn.load.cpu * 1e6) / turn.perSecond)), 1),
      ],
      ["sink's µs per message", formatSummary(summarize(turns.map((turn) => turn.cpuPerMessage)), 1)],
    ];
    return { figures: { turns }, text: formatTable(rows) };
  },
});
