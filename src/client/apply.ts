import { dirname } from "node:path";
import type { Command } from "commander";
import type { Api, ClientContext, OutputFlags } from "./api.ts";
import { connectToApi, printShown, withJson } from "./api.ts";
import { Problems, readApplyFile } from "./applyFile.ts";
import { planGroup, planKey, planPulled, planQueue, planSchedule } from "./applyPlan.ts";
import type { GivenResources } from "./applySchema.ts";
import { readResources } from "./applySchema.ts";
import { planSource, planToken, readAll } from "./applySecrets.ts";
import type { ApplyStep } from "./applySteps.ts";
import { describeStep } from "./applySteps.ts";
import { CommandFailed, exitCodes } from "./terminal/commandFailed.ts";
import type { Fields } from "./terminal/fields.ts";
import { toSafeLine } from "./terminal/safeText.ts";
import { note, print } from "./terminal/terminal.ts";

type ApplyFlags = OutputFlags & { dryRun?: true; secrets?: true };

/** Adds the command `waypost apply`. */
export function addApplyCommand(program: Command, context: ClientContext): void {
  const command = program
    .command("apply")
    .description(
      "make queues, keys, URL groups, schedules, sources, tokens and pulled origins as a file says",
    )
    .argument("<file>", "file in YAML or JSON; - reads the input")
    .option("--dry-run", "only show the difference")
    .option("--secrets", "also send the secrets of sources that exist");
  withJson(command).action((file: string, flags: ApplyFlags) => apply(context, file, flags));
}

async function apply(context: ClientContext, file: string, flags: ApplyFlags): Promise<void> {
  const folder = file === "-" ? "." : dirname(file);
  const problems = new Problems();
  const given = await readApplyFile(file);
  const resources = readResources(given, { environment: context.environment, folder }, problems);
  if (problems.all.length > 0) throw toUnusable(file, problems.all);
  const api = connectToApi(context);
  const sendsSecrets = flags.secrets === true;
  const { steps, unchanged } = await plan(api, resources, { folder, sendsSecrets });
  if (flags.dryRun) return showPlan(flags, steps, unchanged);
  await runSteps(steps, flags, unchanged);
}

/** The maximum number of problems of a file that are printed. */
const maxProblems = 50;

function toUnusable(file: string, problems: readonly string[]): CommandFailed {
  for (const problem of problems.slice(0, maxProblems)) note(`waypost: ${toSafeLine(file)}: ${problem}`);
  const count = problems.length === 1 ? "1 problem" : `${problems.length} problems`;
  return new CommandFailed("usage", `${toSafeLine(file)}: has ${count}; nothing was changed`);
}

type Planning = { folder: string; sendsSecrets: boolean };
type Plan = { steps: ApplyStep[]; unchanged: number };

/** Returns the requests that make everything as the file says. Reads, and changes nothing. */
async function plan(api: Api, resources: GivenResources, { folder, sendsSecrets }: Planning): Promise<Plan> {
  const steps: ApplyStep[] = [];
  let unchanged = 0;
  const add = (found: readonly ApplyStep[]): void => {
    steps.push(...found);
    if (found.length === 0) unchanged++;
  };
  if (resources.pulled.length > 0) {
    const existing = await readAll(api, "/v2/pulled", "origins");
    for (const origin of resources.pulled) add(planPulled(api, origin, existing));
  }
  for (const [name, queue] of resources.queues) add(await planQueue(api, name, queue));
  for (const [key, limits] of resources.flowControl) add(await planKey(api, key, limits));
  for (const [name, group] of resources.urlGroups) add(await planGroup(api, name, group));
  for (const [id, schedule] of resources.schedules) add(await planSchedule(api, id, schedule));
  if (resources.sources.size > 0) {
    const existing = await readAll(api, "/v2/sources", "sources");
    for (const [name, given] of resources.sources)
      add(planSource({ api, existing, folder }, name, { given, sendsSecrets }));
  }
  if (resources.tokens.size > 0) {
    const existing = await readAll(api, "/v2/tokens", "tokens");
    for (const [name, token] of resources.tokens) add(planToken({ api, existing, folder }, name, token));
  }
  return { steps, unchanged };
}

const toRow = ({ resource, action, differences }: ApplyStep, done: boolean): Fields => ({
  resource,
  action,
  fields: differences.map(({ field }) => field),
  done,
});

function showPlan(flags: ApplyFlags, steps: readonly ApplyStep[], unchanged: number): void {
  const value = { changes: steps.map((step) => toRow(step, false)), unchanged };
  const end = `${count(steps.length)} would be made; ${unchanged} unchanged`;
  printShown(flags, { value, describe: () => [...steps.flatMap(describeStep), end] });
}

const count = (changes: number): string => (changes === 1 ? "1 change" : `${changes} changes`);

/** Runs the steps in turn. If one fails, the error names those that were made. */
async function runSteps(steps: readonly ApplyStep[], flags: ApplyFlags, unchanged: number): Promise<void> {
  const done: ApplyStep[] = [];
  const report = (): void => {
    const rows = steps.map((step) => toRow(step, done.includes(step)));
    if (flags.json) printShown(flags, { value: { changes: rows, unchanged }, describe: () => [] });
  };
  for (const step of steps) {
    try {
      await step.run();
    } catch (error) {
      report();
      throw error instanceof CommandFailed ? toInterrupted(error, step, { done, steps }) : error;
    }
    done.push(step);
    if (!flags.json) describeStep(step).forEach(print);
  }
  report();
  if (!flags.json) print(`${count(steps.length)} made; ${unchanged} unchanged`);
}

type Progress = { done: readonly ApplyStep[]; steps: readonly ApplyStep[] };

/** Returns the failure of a step, with what was done before it. It keeps the exit code. */
function toInterrupted(
  error: CommandFailed,
  { resource, action }: ApplyStep,
  { done, steps }: Progress,
): CommandFailed {
  const made =
    done.length === 0
      ? "nothing was changed before"
      : `${done.length} of ${count(steps.length)} were made (${done.map(describeShortly).join(", ")})`;
  const unknown = error.exitCode === exitCodes.unavailable ? "; this change may have been made as well" : "";
  const kind = kinds.find((one) => exitCodes[one] === error.exitCode) ?? "failed";
  return new CommandFailed(
    kind,
    `${action} ${toSafeLine(resource)}: ${error.message}; ${made}${unknown}; ` +
      "correct the cause and apply again",
  );
}

const describeShortly = ({ resource, action }: ApplyStep): string => `${action} ${toSafeLine(resource)}`;

const kinds = Object.keys(exitCodes) as (keyof typeof exitCodes)[];
