import type { Command } from "commander";
import type { ClientContext, OutputFlags } from "./api.ts";
import { connectToApi, printShown, withJson } from "./api.ts";
import { apiPath } from "./apiPath.ts";
import { jsonRequest } from "./applySteps.ts";
import { parseWhole } from "./filterFlags.ts";
import type { Fields } from "./terminal/fields.ts";
import { readLine, readNumber } from "./terminal/fields.ts";
import { toSafeLine } from "./terminal/safeText.ts";
import { formatSpan } from "./terminal/times.ts";

const keyNeeds = { one: { isPinnedParallelism: "boolean", isPinnedRate: "boolean" } } as const;

type PinFlags = OutputFlags & { parallelism?: string; rate?: string; period?: string };
type UnpinFlags = OutputFlags & { parallelism?: true; rate?: true };

/** Adds `waypost flow-control pin` and `unpin`. */
export function addPinCommands(keys: Command, context: ClientContext): void {
  const change = async (key: string, verb: "pin" | "unpin", query: Record<string, string>): Promise<Fields> =>
    connectToApi(context).read({
      method: "POST",
      path: `${apiPath`/v2/flowControl/${key}`}/${verb}`,
      query,
      needs: keyNeeds,
    });
  withJson(
    keys
      .command("pin")
      .description("set limits of a key, which messages then cannot change")
      .argument("<key>", "name of the key")
      .option("--parallelism <n>", "maximum number of deliveries in flight at once")
      .option("--rate <n>", "maximum number of deliveries that start in a period")
      .option("--period <duration>", "length of a period, such as 1m"),
  ).action(async (key: string, { parallelism, rate, period, ...flags }: PinFlags) => {
    const pins = Object.entries({ parallelism, rate, period }).filter(([, value]) => value !== undefined);
    const result = await change(key, "pin", Object.fromEntries(pins) as Record<string, string>);
    printShown(flags, { value: result, describe: () => [describeLimits(key, result)] });
  });
  withJson(
    keys
      .command("unpin")
      .description("let messages change the limits of a key again; without a flag, all limits")
      .argument("<key>", "name of the key")
      .option("--parallelism", "only the parallelism")
      .option("--rate", "only rate and period"),
  ).action(async (key: string, { parallelism, rate, ...flags }: UnpinFlags) => {
    const isAll = parallelism === undefined && rate === undefined;
    const result = await change(key, "unpin", {
      parallelism: String(isAll || parallelism === true),
      rate: String(isAll || rate === true),
    });
    printShown(flags, { value: result, describe: () => [describeLimits(key, result)] });
  });
}

/** Adds `waypost queues set`. */
export function addQueueChangeCommand(queues: Command, context: ClientContext): void {
  const command = queues
    .command("set")
    .description("set how many messages of a queue may be in flight at once")
    .argument("<name>", "name of the queue")
    .requiredOption("--parallelism <n>", "maximum number of messages in flight at once");
  withJson(command).action(async (name: string, flags: OutputFlags & { parallelism: string }) => {
    const api = connectToApi(context);
    const needs = { one: { parallelism: "number", paused: "boolean" } } as const;
    // A queue that does not exist would be created, and its name may be a mistake.
    await api.read({ path: apiPath`/v2/queues/${name}`, needs });
    const parallelism = parseWhole("--parallelism", flags.parallelism);
    const queue = await api.read({
      ...jsonRequest("POST", "/v2/queues", { queueName: name, parallelism }),
      needs,
    });
    const line = `${toSafeLine(name)}: parallelism ${readLine(queue, "parallelism")}`;
    printShown(flags, { value: queue, describe: () => [line] });
  });
}

/** Returns a line such as `crm: parallelism 5 (pinned), rate 100 in 1m`. */
function describeLimits(key: string, limits: Fields): string {
  const max = readNumber(limits, "parallelismMax") ?? 0;
  const rate = readNumber(limits, "rateMax") ?? 0;
  const period = formatSpan((readNumber(limits, "ratePeriod") ?? 0) * 1000);
  const pinned = (field: string): string => (limits[field] === true ? " (pinned)" : "");
  return [
    `${toSafeLine(key)}: parallelism ${max > 0 ? max : "no limit"}${pinned("isPinnedParallelism")}`,
    `rate ${rate > 0 ? `${rate} in ${period}` : "no limit"}${pinned("isPinnedRate")}`,
  ].join(", ");
}
