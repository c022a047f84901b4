/**
 * Does an attack of one account affect another? The bench runs each attack alone and all at once, each with a
 * fresh server.
 */
import { request } from "undici";
import { makeToken } from "../src/engine/core/values/tokenText.ts";
import type { AttackerAnswers } from "./attacker.ts";
import { attacks } from "./attacks.ts";
import { mebibytes, type Spread, formatTable } from "./figures.ts";
import type { AttackCount } from "./hostile.ts";
import { parseSize, MemoryLimit } from "./memoryLimit.ts";
import type { NeighbourAnswers, NeighbourReport, NeighbourRun } from "./neighbour.ts";
import type { BenchProcess } from "./benchProcess.ts";
import { question } from "./question.ts";
import { pause, waitUntilQuiet, type Server } from "./server.ts";
import { end, type BenchResources } from "./benchResources.ts";
import { startWaypost } from "./waypost.ts";

const allAttacks = "together";

/** One attack, or all at once, and its effect on the other account. */
type Trial = {
  name: string;
  quiet: NeighbourReport;
  attacked: NeighbourReport;
  /** The counts of each attack, or null if unknown. */
  sent: Record<string, AttackCount | null>;
  /** The peak resident memory of the server, in bytes. */
  highest: number;
  /** `yes`, or the reason why the server does not work. */
  lives: string;
};

type Plan = { memory: number; rate: number; quiet: number; seconds: number; patience: number };

/** The benchmark of attacks by one account while another account publishes. */
export const neighbours = question({
  asks:
    "publish and arrival times of one account while another attacks: each attack alone, and all at once, " +
    "with a memory limit",
  options: {
    attack: {
      default: "",
      help:
        `attacks to run, such as backlog,${allAttacks}; ` +
        `default: all of ${Object.keys(attacks).join(", ")}, ${allAttacks}`,
    },
    memory: { default: "2G", help: "resident memory above which the server is killed" },
    rate: { default: 50, help: "messages per second of the other account" },
    quiet: { default: 5, help: "seconds that it publishes before each attack" },
    seconds: { default: 8, help: "seconds of each attack" },
    patience: { default: 5, help: "seconds to wait for late responses and arrivals after each attack" },
  },
  async find(given, resources) {
    const plan = { ...given, memory: parseSize(given.memory) };
    const known = [...Object.keys(attacks), allAttacks];
    const chosen = given.attack === "" ? known : given.attack.split(",");
    const unknown = chosen.find((name) => !known.includes(name));
    if (unknown !== undefined)
      throw new Error(`--attack: unknown attack "${unknown}"; use ${known.join(", ")}.`);
    const neighbour = resources.part<NeighbourAnswers>("neighbour", "others");
    await neighbour.ask("listen", undefined);
    const trials: Trial[] = [];
    for (const name of chosen) {
      const trial = await tryAttack(resources, neighbour, { name, plan, round: 3 * trials.length + 1 });
      trials.push(trial);
      console.error(`${name}: server lives: ${trial.lives}, ${mebibytes(trial.highest)} MiB`);
    }
    return { figures: { trials }, text: report(trials, plan) };
  },
});

type AttackAttempt = { name: string; plan: Plan; round: number };

async function tryAttack(
  resources: BenchResources,
  neighbour: BenchProcess<NeighbourAnswers>,
  { name, plan, round }: AttackAttempt,
): Promise<Trial> {
  const server = await startWaypost(resources, { folder: resources.folder(name) });
  const limit = new MemoryLimit(
    server.pid,
    plan.memory,
    () => void neighbour.ask("stop", undefined).catch(() => undefined),
  );
  const names = name === allAttacks ? Object.keys(attacks) : [name];
  const attackers = new Map(names.map((one) => [one, resources.part<AttackerAnswers>("attacker", "others")]));
  const { port, token } = server;
  const patience = plan.patience * 1e3;
  const publish = ({
    rate,
    seconds,
    round,
  }: Pick<NeighbourRun, "rate" | "round"> & { seconds: number }): Promise<NeighbourReport> => {
    const messages = Math.max(1, Math.round(rate * seconds));
    return neighbour.ask(
      "run",
      { port, token, round, rate, messages, patience },
      seconds * 1e3 + patience + 60_000,
    );
  };
  try {
    // A fresh server compiles code at its first requests. That must not count as its quiet or attacked time.
    await publish({ rate: 500, seconds: 2, round });
    const takes = Math.max(...names.map((one) => attacks[one]?.prepares ?? 0));
    const startsAt = Date.now() + (takes === 0 ? 0 : takes + 3 + plan.quiet) * 1e3;
    const hostile = { port, token: makeToken("testUser1", "testPassword"), startsAt };
    await Promise.all(
      [...attackers].map(([one, attacker]) => attacker.ask("prepare", { name: one, ...hostile }, 60_000)),
    );
    await waitUntilQuiet(server.pid, 2_000);
    const before = await publish({ rate: plan.rate, seconds: plan.quiet, round: round + 1 });
    await pause(Math.max(0, startsAt - Date.now()));
    await Promise.all([...attackers.values()].map((attacker) => attacker.ask("begin", undefined)));
    const attacked = publish({ rate: plan.rate, seconds: plan.seconds, round: round + 2 });
    await Promise.race([attacked, pause(plan.seconds * 1e3)]);
    const sent = await endAll(attackers);
    return {
      name,
      quiet: before,
      attacked: await attacked,
      sent,
      lives: await checkAlive(server, limit),
      highest: limit.highest,
    };
  } finally {
    limit.stop();
    for (const attacker of attackers.values()) await end(attacker.process, "SIGKILL");
    await server.kill();
  }
}

async function endAll(attackers: ReadonlyMap<string, BenchProcess<AttackerAnswers>>): Promise<Trial["sent"]> {
  const ended = [...attackers].map(
    async ([name, attacker]) => [name, await attacker.ask("end", undefined).catch(() => null)] as const,
  );
  return Object.fromEntries(await Promise.all(ended));
}

/** Returns `yes` if the server still responds, or the reason why not. */
async function checkAlive({ port }: Server, limit: MemoryLimit): Promise<string> {
  const responds = await request(`http://127.0.0.1:${port}/v2/health`, {
    signal: AbortSignal.timeout(10_000),
  })
    .then(({ statusCode, body }) => body.dump().then(() => statusCode === 200))
    .catch(() => false);
  const { ended } = limit;
  if (ended !== null) return `no: ${ended}`;
  return responds ? "yes" : "no response within 10 s";
}

function report(trials: readonly Trial[], { memory, rate }: Plan): string {
  const figures = formatTable([
    [
      "p50 / p99 ms",
      "publish, quiet",
      "attacked",
      "p99 ×",
      "arrival, quiet",
      "attacked",
      "p99 ×",
      "failed",
      "late",
      "MiB",
      "server lives",
    ],
    ...trials.map(({ name, quiet, attacked, highest, lives }) => [
      name,
      ...formatLatencies(quiet.publish, attacked.publish, attacked.unanswered),
      ...formatLatencies(quiet.arrival, attacked.arrival, attacked.missing),
      `${attacked.failed} of ${attacked.sent}`,
      String(attacked.missing),
      mebibytes(highest),
      lives,
    ]),
  ]);
  const done = formatTable([
    ["attack", "sent", "refused", "what it does; what limits it"],
    ...trials.flatMap(({ name, sent }) =>
      Object.entries(sent).map(([one, of]) => formatSentRow(name, one, of)),
    ),
  ]);
  const late = Math.max(
    ...trials.map(({ quiet, attacked }) => Math.max(quiet.lateness.p99, attacked.lateness.p99)),
  );
  const notes = [
    `The other account publishes ${rate} messages/s. ` +
      `"failed": publishes that were refused or interrupted, which have no latency.`,
    `"late": messages that had not arrived at the end; they count with the time until then, ` +
      `and ">" marks latencies that include such messages.`,
    `"sent": messages count when their list was accepted; ` +
      "0 means that the server had responded to no list by the end of the attack.",
    `"refused": requests and connections of the attack that the server refused or closed.`,
    `The bench kills the server if its resident memory ever exceeded ${mebibytes(memory)} MiB, ` +
      "as a container would.",
    `The other account was behind its schedule by at most ${late.toFixed(1)} ms (p99); latencies include it.`,
  ];
  return `${figures}\n\n${done}\n\n${notes.join("\n")}`;
}

function formatSentRow(trial: string, name: string, sent: AttackCount | null): string[] {
  const attack = attacks[name];
  const [count, refused] =
    sent === null ? ["not known", "not known"] : [`${sent.count} ${attack?.unit}`, String(sent.refused)];
  if (trial === allAttacks) return [`${allAttacks}: ${name}`, count, refused];
  return [name, count, refused, `${attack?.does} Bound: ${attack?.bound}.`];
}

function formatLatencies(quiet: Spread, attacked: Spread, open: number): string[] {
  const more = open > 0 ? "> " : "";
  const shown = ({ p50, p99 }: Spread): string => `${p50.toFixed(1)} / ${p99.toFixed(1)}`;
  if (attacked.count === 0) return [shown(quiet), "none", ""];
  return [shown(quiet), `${more}${shown(attacked)}`, `${more}${(attacked.p99 / quiet.p99).toFixed(1)}`];
}
