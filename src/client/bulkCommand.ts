import type { Command } from "commander";
import { systemClock } from "../engine/clock/clock.ts";
import type { Api, ClientContext, OutputFlags, Shown } from "./api.ts";
import { requireId } from "./apiPath.ts";
import { connectToApi, printShown, withJson } from "./api.ts";
import { CommandFailed } from "./terminal/commandFailed.ts";
import type { Fields } from "./terminal/fields.ts";
import { readLine, readLines, readNumber, readRaw } from "./terminal/fields.ts";
import type { NeededFields } from "./responseFields.ts";
import type { FilterFlags } from "./filterFlags.ts";
import { parseWhole, readFilters, withFilters } from "./filterFlags.ts";
import { followJob } from "./jobProgress.ts";
import { note, requireConsent } from "./terminal/terminal.ts";

/**
 * An action with one entry, or with several. The latter is a job. `one` does it with one entry, without a
 * job. `toFilter` returns the filter of a job that has the given ids.
 */
export type BulkAction = {
  name: string;
  about: string;
  /** The action of the job. */
  job: string;
  /** The verb of the action and the noun of its entries, such as "retry" and "dead letters". */
  verb: string;
  entries: string;
  filters: FilterFlags;
  hasCanary: boolean;
  /** Flags that change what is sent again. `readChange` returns the change of the job, or null. */
  changes?: { addFlags(command: Command): void; readChange(flags: BulkFlags): Fields | null };
  one(api: Api, id: string, flags: BulkFlags): Promise<Shown>;
  toFilter(api: Api, ids: readonly string[]): Fields | Promise<Fields>;
};

/** The flags of a bulk action. Filters have further ones. */
export type BulkFlags = OutputFlags &
  Readonly<Record<string, unknown>> & {
    all?: true;
    yes?: true;
    dryRun?: true;
    wait: boolean;
    rate?: string;
    canary?: string;
  };

/** Adds the command of an action. */
export function addBulkCommand(group: Command, context: ClientContext, action: BulkAction): Command {
  const command = group
    .command(action.name)
    .description(action.about)
    .argument("[ids...]", `ids of ${action.entries}; without ids, filters or --all select them`);
  withFilters(command, action.filters)
    .option("--all", `all ${action.entries}`)
    .option("--dry-run", "only count the entries")
    .option("--yes", "do not ask")
    .option("--no-wait", "do not wait for the job to end")
    .option("--rate <n>", "maximum number of entries per second");
  if (action.hasCanary)
    command.option("--canary <n>", "number of entries that must succeed before the others are handled");
  action.changes?.addFlags(command);
  return withJson(command).action((ids: string[], flags: BulkFlags) =>
    runAction(connectToApi(context), action, { ids, flags }),
  );
}

type Given = { ids: readonly string[]; flags: BulkFlags };

async function runAction(api: Api, action: BulkAction, { ids, flags }: Given): Promise<void> {
  const [id] = ids.map(requireId);
  const filters = readFilters(action.filters, flags, systemClock.now());
  const filtered = Object.keys(filters).length > 0;
  if ((id === undefined ? 0 : 1) + (filtered ? 1 : 0) + (flags.all ? 1 : 0) !== 1)
    throw new CommandFailed("usage", `name ids of ${action.entries}, or filters, or --all; one of the three`);
  const hasPace = flags.rate !== undefined || flags.canary !== undefined;
  const change = action.changes?.readChange(flags) ?? null;
  const isJob = ids.length !== 1 || flags.dryRun === true || !flags.wait || hasPace || change !== null;
  if (id !== undefined && !isJob) return printShown(flags, await action.one(api, id, flags));
  const filter = id === undefined ? filters : await action.toFilter(api, ids);
  const request = { action: action.job, filter, ...readPace(flags), ...(change && { change }) };
  const counted = await post(api, { ...request, dryRun: true }, { count: "number" });
  if (flags.dryRun)
    return printShown(flags, { value: counted, describe: () => [`would ${describeCount(action, counted)}`] });
  if (readNumber(counted, "count") === 0) {
    const job = { value: counted, describe: () => [`no ${action.entries} match; nothing was changed`] };
    return printShown(flags, job);
  }
  await consent(action, counted, flags);
  const last = readRaw(counted, "last");
  // A server of version 0.1.0 has no bound. It refuses a field that it does not know.
  const bound = "last" in counted ? { last } : {};
  const created = await post(api, { ...request, ...bound }, { jobId: "string" });
  const job = readRaw(created, "jobId");
  if (!flags.wait) return printShown(flags, { value: created, describe: () => [readLine(created, "jobId")] });
  await followJob(api, job, { flags });
}

const post = (api: Api, body: Fields, one: NonNullable<NeededFields["one"]>): Promise<Fields> =>
  api.read({
    method: "POST",
    path: "/v2/jobs",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    needs: { one },
  });

function readPace({ rate, canary }: BulkFlags): Fields {
  return {
    ...(rate !== undefined && { rate: parseWhole("--rate", rate) }),
    ...(canary !== undefined && { canary: parseWhole("--canary", canary) }),
  };
}

/** Returns the action, the number of entries, and some of them. */
function describeCount({ verb, entries }: BulkAction, counted: Fields): string {
  const count = readNumber(counted, "count") ?? 0;
  const noun = count === 1 ? entries.replace(/s$/, "") : entries;
  const sample = readLines(counted, "sample").slice(0, 3);
  const examples = sample.length === 0 ? "" : `, such as ${sample.join(", ")}`;
  return `${verb} ${count}${counted["more"] === true ? " or more" : ""} ${noun}${examples}`;
}

async function consent(action: BulkAction, counted: Fields, flags: BulkFlags): Promise<void> {
  const about = describeCount(action, counted);
  if (flags.yes) note(about);
  await requireConsent(`${about}?`, flags.yes === true);
}
