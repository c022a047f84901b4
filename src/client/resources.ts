import type { Command } from "commander";
import type { Api, ClientContext, OutputFlags, Shown } from "./api.ts";
import { apiPath } from "./apiPath.ts";
import { groupFields } from "../api/fields/urlGroup.ts";
import { holderFields } from "../api/fields/holder.ts";
import { keyFields } from "../api/fields/flowControlKey.ts";
import { queueFields } from "../api/fields/queue.ts";
import { scheduleFields } from "../api/fields/schedule.ts";
import { alerts } from "../operations/alerts/verbs.ts";
import { hosts } from "../operations/overview/verbs.ts";
import { sources } from "../operations/sources/verbs.ts";
import { unpublished } from "../operations/unpublished/verbs.ts";
import { connectToApi, printShown, showResult, withJson, withOutput } from "./api.ts";
import { columnsOf } from "./columns.ts";
import type { Fields } from "./terminal/fields.ts";
import { readLine, readNumber, readObjects } from "./terminal/fields.ts";
import type { Listed, Pausing, Resource } from "./listCommand.ts";
import { addListCommand } from "./listCommand.ts";
import { addPinCommands, addQueueChangeCommand } from "./limits.ts";
import { CommandFailed, exitCodes } from "./terminal/commandFailed.ts";
import { toSafeLine } from "./terminal/safeText.ts";
import type { Column } from "./terminal/table.ts";
import { formatTable } from "./terminal/table.ts";
import { columnsOfOutput } from "./terminal/terminal.ts";
import { formatSpan } from "./terminal/times.ts";

const whole = { rows: "items", pageSize: null, filters: [] } as const;

const inRed = (column: Column<Listed>): Column<Listed> => ({ ...column, style: () => "red" });

const toQueuePath = (name: string): string => apiPath`/v2/queues/${name}`;
const toKeyPath = (key: string): string => apiPath`/v2/flowControl/${key}`;

/** The lists of what an account has, by the name of their command. */
const resources: Readonly<Record<string, Resource>> = {
  queues: {
    ...whole,
    about: "queues",
    path: "/v2/queues",
    none: "no queues",
    pausing: { toPath: toQueuePath, isPaused: "paused", isMade: true },
    addMore: (group, context) => {
      addHoldersCommand(group, context, toQueuePath);
      addQueueChangeCommand(group, context);
    },
    columns: columnsOf(queueFields, ["name", "lag", "parallelism", "paused", "updatedAt"]),
  },
  "flow-control": {
    ...whole,
    about: "flow-control keys",
    path: "/v2/flowControl",
    none: "no flow-control keys",
    pausing: { toPath: toKeyPath, isPaused: "isPaused", isMade: true },
    addMore: (group, context) => {
      addHoldersCommand(group, context, toKeyPath);
      addPinCommands(group, context);
    },
    columns: [
      ...columnsOf(keyFields, ["flowControlKey", "waitlistSize"]),
      {
        title: "IN FLIGHT",
        isNumber: true,
        show: ({ row }) => ofLimit(readNumber(row, "parallelismCount"), readNumber(row, "parallelismMax")),
      },
      {
        title: "RATE",
        isNumber: true,
        show: ({ row }) => ofLimit(readNumber(row, "rateCount"), readNumber(row, "rateMax")),
      },
      {
        title: "PERIOD",
        show: ({ row }) => {
          const period = readNumber(row, "ratePeriod") ?? 0;
          return (readNumber(row, "rateMax") ?? 0) > 0 && period > 0 ? formatSpan(period * 1000) : "";
        },
      },
      {
        title: "PINNED",
        show: ({ row }) =>
          [
            ...(row["isPinnedParallelism"] === true ? ["parallelism"] : []),
            ...(row["isPinnedRate"] === true ? ["rate"] : []),
          ].join(", "),
      },
      ...columnsOf(keyFields, ["isPaused"]),
    ],
  },
  hosts,
  schedules: {
    ...whole,
    addMore: addRunNowCommand,
    about: "schedules",
    path: "/v2/schedules",
    none: "no schedules",
    pausing: { toPath: (id) => apiPath`/v2/schedules/${id}`, isPaused: "isPaused", isMade: false },
    columns: [
      ...columnsOf(scheduleFields, ["scheduleId", "cron", "destination"]),
      ...columnsOf(scheduleFields, ["lastScheduleTime", "nextScheduleTime", "isPaused"]),
      ...columnsOf(scheduleFields, ["lastScheduleError"]).map(inRed),
    ],
  },
  alerts,
  groups: {
    ...whole,
    about: "URL groups",
    path: "/v2/topics",
    none: "no URL groups",
    columns: [
      ...columnsOf(groupFields, ["name"]),
      {
        title: "ENDPOINTS",
        shrinks: true,
        show: ({ row }) =>
          readObjects(row, "endpoints")
            .map((endpoint) => readLine(endpoint, "name") || readLine(endpoint, "url"))
            .join(", "),
      },
      ...columnsOf(groupFields, ["updatedAt"]),
    ],
  },
  sources,
  unpublished,
};

const ofLimit = (count: number | null, max: number | null): string =>
  count === null ? "" : max === null || max <= 0 ? String(count) : `${count}/${max}`;

/** Adds the commands that list what an account has, and pause and resume it. */
export function addResourceCommands(program: Command, context: ClientContext): void {
  for (const [name, { about, pausing, addMore, ...list }] of Object.entries(resources)) {
    const group = program
      .command(name)
      .description(pausing ? `list, pause and resume ${about}` : `list ${about}`);
    addListCommand(group, list, { context, about: `list ${about}` });
    addMore?.(group, context);
    if (!pausing) continue;
    for (const action of ["pause", "resume"] as const)
      withJson(
        group.command(action).description(`${action} one of the ${about}`).argument("<name>", "name or id"),
      ).action(async (id: string, flags: OutputFlags) => {
        printShown(flags, await pauseOrResume(connectToApi(context), pausing, { action, id }));
      });
  }
}

type PauseRequest = { action: "pause" | "resume"; id: string };

/**
 * Pauses or resumes something. A pause creates a queue or a key, so that it can be paused before its first
 * message. This is reported, because the name may be a mistake.
 */
async function pauseOrResume(
  api: Api,
  { toPath, isPaused, isMade }: Pausing,
  { action, id }: PauseRequest,
): Promise<Shown> {
  const path = toPath(id);
  const needs = { one: { [isPaused]: "boolean" } } as const;
  const existed = !isMade || (await isThere(() => api.read({ path, needs }), action));
  const result = await api.read({ method: "POST", path: `${path}/${action}`, needs });
  const state = result[isPaused] === true ? "paused" : "resumed";
  const made = existed ? "" : "; it did not exist, and was created";
  return { value: result, describe: () => [`${toSafeLine(id)} ${state}${made}`] };
}

/** Reports whether something exists. Only a pause continues if it does not, or if the token may not look. */
async function isThere(read: () => Promise<unknown>, action: PauseRequest["action"]): Promise<boolean> {
  try {
    await read();
    return true;
  } catch (error) {
    if (!(error instanceof CommandFailed)) throw error;
    if (error.exitCode === exitCodes.forbidden) return true;
    if (error.exitCode === exitCodes.notFound && action === "pause") return false;
    throw error;
  }
}

function addRunNowCommand(schedules: Command, context: ClientContext): void {
  const command = schedules
    .command("run")
    .description("publish the message of a schedule now")
    .argument("<id>", "id of the schedule");
  withJson(command).action(async (id: string, flags: OutputFlags) => {
    const path = apiPath`/v2/schedules/${id}/run`;
    const result = await connectToApi(context).read({
      method: "POST",
      path,
      needs: { one: { messages: "objects" } },
    });
    const describe = (): string[] =>
      readObjects(result, "messages").map(
        (message) => `${readLine(message, "messageId")}  ${readLine(message, "url")}`,
      );
    printShown(flags, { value: result, describe });
  });
}

function addHoldersCommand(group: Command, context: ClientContext, toPath: (name: string) => string): void {
  const command = group
    .command("holders")
    .description("list the messages that hold the slots, the oldest first")
    .argument("<name>", "name of the queue or key");
  withOutput(command).action((name: string, flags: OutputFlags) => {
    const api = connectToApi(context);
    return showResult(flags, async () => {
      const page = await api.read({
        path: `${toPath(name)}/holders`,
        needs: { one: { used: "number", waiting: "number", holders: "objects" } },
      });
      return { value: page, describe: () => describeHolders(page) };
    });
  });
}

function describeHolders(page: Fields): string[] {
  const holders = readObjects(page, "holders");
  const slots = ofLimit(readNumber(page, "used"), readNumber(page, "limit"));
  const paused = page["paused"] === true ? ", paused" : "";
  const columns = columnsOf(holderFields, ["messageId", "url", "attempts", "text"]);
  const listed = holders.map((row) => ({ row, now: 0 }));
  return [
    `${slots} slots held, ${readNumber(page, "waiting") ?? 0} waiting${paused}`,
    ...(holders.length > 0 ? formatTable(columns, listed, columnsOfOutput()) : []),
  ];
}
