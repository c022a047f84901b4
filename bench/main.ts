/**
 * `node bench/main.ts <question> [options]` measures, prints a table and keeps the result. Without a question
 * it lists all questions.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { accounts } from "./accounts.ts";
import { backlog } from "./backlog.ts";
import { consolePages } from "./console.ts";
import { fanout } from "./fanout.ts";
import { flow } from "./flow.ts";
import { idle } from "./idle.ts";
import { lists } from "./lists.ts";
import { describeMachine, requireDisk } from "./machine.ts";
import { messages } from "./messages.ts";
import { neighbours } from "./neighbours.ts";
import { describeOptions, readOptions } from "./options.ts";
import { outbox } from "./outbox.ts";
import { parts } from "./parts.ts";
import { postgres } from "./postgres.ts";
import type { Question } from "./question.ts";
import { schedules } from "./schedules.ts";
import { soak } from "./soak.ts";
import { pull } from "./pull.ts";
import { replica } from "./replica.ts";
import { root, BenchResources } from "./benchResources.ts";
import { versions } from "./versions.ts";
import { workflows } from "./workflows.ts";

const questions: Record<string, Question> = {
  messages,
  accounts,
  backlog,
  idle,
  flow,
  fanout,
  schedules,
  workflows,
  neighbours,
  postgres,
  outbox,
  pull,
  soak,
  lists,
  console: consolePages,
  parts,
  versions,
  replica,
};

async function answer(name: string, asked: Question, args: readonly string[]): Promise<void> {
  const given = readOptions(asked.options, args);
  const resources = new BenchResources({
    dataRoot: String(given["data-root"]),
    pinned: given["pin"] === true,
  });
  const folder = resources.folder("probe");
  requireDisk(folder);
  const machine = describeMachine(folder);
  const date = new Date().toISOString();
  const { figures, text } = await asked.find(given, resources);
  const result = { question: name, date, machine, options: given, figures };
  console.log(`${describe(name, date, machine)}\n\n${text}\n`);
  if (given["json"] === true) console.log(JSON.stringify(result, null, 2));
  // In CI, the log has the table.
  if (process.env["CI"] === undefined) keep(`${date.slice(0, 19).replaceAll(":", "")}-${name}.json`, result);
}

function describe(
  name: string,
  date: string,
  { cpu, cores, kernel, node, revision, diskSync }: ReturnType<typeof describeMachine>,
): string {
  const disk = `disk sync ${diskSync.p50.toFixed(2)} ms (p99 ${diskSync.p99.toFixed(2)})`;
  const system = `Node ${node}, ${cpu} with ${cores} cores, Linux ${kernel}, ${disk}`;
  return `${name}, ${date.slice(0, 16)}: ${revision}, ${system}`;
}

function keep(file: string, result: unknown): void {
  const folder = join(root, "bench", "results");
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, file), `${JSON.stringify(result, null, 2)}\n`);
  console.log(`Kept as bench/results/${file}`);
}

function list(): string {
  const entries = Object.entries(questions).map(
    ([name, { asks, options }]) => `  ${name}: ${asks}\n${describeOptions(options)}`,
  );
  return `Usage: npm run bench -- <question> [options]\n\n${entries.join("\n\n")}`;
}

const [name = "", ...args] = process.argv.slice(2);
const asked = questions[name];
if (asked === undefined || args.includes("--help")) {
  console.log(list());
  process.exit(name === "" || args.includes("--help") ? 0 : 2);
}
try {
  await answer(name, asked, args);
  process.exit(0);
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exit(1);
}
