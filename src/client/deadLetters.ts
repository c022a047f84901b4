import type { Command } from "commander";
import type { Api, ClientContext, OutputFlags } from "./api.ts";
import { apiPath } from "./apiPath.ts";
import { connectToApi, printShown, showResult, withJson, withOutput } from "./api.ts";
import { addBulkCommand } from "./bulkCommand.ts";
import { deadLetterFields } from "../api/fields/deadLetter.ts";
import { failureGroupFields } from "../api/fields/failureGroup.ts";
import { columnsOf, failure, labels } from "./columns.ts";
import { CommandFailed } from "./terminal/commandFailed.ts";
import type { Fields } from "./terminal/fields.ts";
import { readLine, readLines, readNumber } from "./terminal/fields.ts";
import { deadLetterFilters } from "./filterFlags.ts";
import { addListCommand } from "./listCommand.ts";
import { describeBody, describeSettings } from "./messages.ts";
import { collectValues, readBody, toRequestHeaders } from "./requestFlags.ts";
import { toSafeLine } from "./terminal/safeText.ts";
import { formatPairs } from "./terminal/table.ts";

/** Adds the commands `waypost dlq …`. */
export function addDeadLetterCommands(program: Command, context: ClientContext): void {
  const dlq = program.command("dlq").description("list, retry, replay and delete dead letters of messages");
  addListCommand(
    dlq,
    {
      path: "/v2/dlq",
      rows: "messages",
      pageSize: 100,
      filters: deadLetterFilters,
      none: "no dead letters",
      query: { order: "latestFirst" },
      columns: [
        ...columnsOf(deadLetterFields, ["dlqId", "url"]),
        failure,
        ...columnsOf(deadLetterFields, ["queueName"]),
        labels,
        ...columnsOf(deadLetterFields, ["createdAt", "messageId"]),
      ],
    },
    { context, about: "list dead letters, the newest first" },
  );
  addListCommand(
    dlq,
    {
      path: "/v2/dlq/groups",
      rows: "groups",
      pageSize: null,
      filters: deadLetterFilters,
      none: "no dead letters",
      unite: uniteGroups,
      describeRest: (page, rows) => {
        const left = (readNumber(page, "causes") ?? 0) - rows.length;
        return left > 0 ? `and ${left} more causes` : null;
      },
      columns: [
        {
          title: "COUNT",
          isNumber: true,
          show: ({ row }) => readLine(row, "count") + (row["countIsMinimum"] === true ? "+" : ""),
        },
        ...columnsOf(failureGroupFields, ["url"]),
        failure,
        ...columnsOf(failureGroupFields, ["firstFailedAt", "lastFailedAt", "cause"]),
      ],
    },
    { context, name: "groups", about: "group all dead letters by cause" },
  );
  withOutput(
    dlq.command("get").description("show a dead letter").argument("<id>", "id of the dead letter"),
  ).action((id: string, flags: OutputFlags) => {
    const api = connectToApi(context);
    return showResult(flags, async () => {
      const letter = await api.read({ path: apiPath`/v2/dlq/${id}`, needs: { one: { dlqId: "string" } } });
      return { value: letter, describe: () => describeDeadLetter(letter) };
    });
  });
  addDeadLetterActions(dlq, context);
  addReplayCommand(dlq, context);
}

/** Unites the groups of several pages that have the same cause. The largest group comes first. */
function uniteGroups(rows: readonly Fields[]): Fields[] {
  const groups = new Map<string, Fields>();
  for (const row of rows) {
    const cause = readLine(row, "cause");
    const known = groups.get(cause);
    groups.set(cause, known ? uniteTwo(known, row) : row);
  }
  return [...groups.values()].sort((a, b) => numberOf(b, "count") - numberOf(a, "count"));
}

const numberOf = (row: Fields, name: string): number => readNumber(row, name) ?? 0;

const uniteTwo = (a: Fields, b: Fields): Fields => ({
  ...a,
  count: numberOf(a, "count") + numberOf(b, "count"),
  firstFailedAt: Math.min(numberOf(a, "firstFailedAt"), numberOf(b, "firstFailedAt")),
  lastFailedAt: Math.max(numberOf(a, "lastFailedAt"), numberOf(b, "lastFailedAt")),
});

const published = { one: { messageId: "string" } } as const;

function addDeadLetterActions(dlq: Command, context: ClientContext): void {
  const shared = {
    entries: "dead letters",
    filters: deadLetterFilters,
    toFilter: (_: Api, ids: readonly string[]) => ({ dlqIds: ids }),
  };
  addBulkCommand(dlq, context, {
    ...shared,
    name: "retry",
    about: "publish dead letters again",
    job: "dlq.retry",
    verb: "retry",
    hasCanary: true,
    changes: { addFlags: addChangeFlags, readChange },
    one: async (api, id) => {
      const path = apiPath`/v2/dlq/retry/${id}`;
      const result = await api.read({ method: "POST", path, needs: published });
      const line = `${toSafeLine(id)} became ${readLine(result, "messageId")}`;
      return { value: result, describe: () => [line] };
    },
  });
  addBulkCommand(dlq, context, {
    ...shared,
    name: "delete",
    about: "delete dead letters",
    job: "dlq.delete",
    verb: "delete",
    hasCanary: false,
    one: async (api, id) => {
      const path = apiPath`/v2/dlq/${id}`;
      const result = await api.read({ method: "DELETE", path, needs: { one: { deleted: "number" } } });
      const line = readNumber(result, "deleted") === 0 ? "was deleted already" : "deleted";
      return { value: result, describe: () => [`${toSafeLine(id)} ${line}`] };
    },
  });
}

function addChangeFlags(command: Command): void {
  command
    .option("--to <url>", "destination URL instead of the old one")
    .option("-H, --header <header>", "header of the delivery; may be repeated", collectValues)
    .option("--patch <json>", 'JSON patch of the body, such as \'[{"op": "remove", "path": "/a"}]\'');
}

/** Returns what a retry changes in each message, or null. */
function readChange({ to, header, patch }: Readonly<Record<string, unknown>>): Fields | null {
  const headers: Record<string, string[]> = {};
  for (const [name, value] of Object.entries(toRequestHeaders(Array.isArray(header) ? header : [], {})))
    headers[toDeliveryName(name)] = value;
  const change = {
    ...(typeof to === "string" && { url: to }),
    ...(Array.isArray(header) && { headers }),
    ...(typeof patch === "string" && { jsonPatch: parsePatch(patch) }),
  };
  return Object.keys(change).length > 0 ? change : null;
}

/** Returns the name of a header of the delivery. Throws for a setting, which a retry of many keeps. */
function toDeliveryName(name: string): string {
  const [, own] = /^svc-forward-(.+)$/i.exec(name) ?? [];
  if (own === undefined)
    throw new CommandFailed("usage", `--header: "${name}" is not a header of the delivery`);
  return own;
}

function parsePatch(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new CommandFailed("usage", "--patch: not valid JSON");
  }
}

type ReplayFlags = OutputFlags & { url?: string; header?: string[]; body?: string; bodyFile?: string };

function addReplayCommand(dlq: Command, context: ClientContext): void {
  const command = dlq
    .command("replay")
    .description("publish a dead letter again with changes")
    .argument("<id>", "id of the dead letter")
    .option("--url <url>", "destination URL instead of the old one")
    .option(
      "-H, --header <header>",
      "header or setting, such as 'Svc-Retries: 5'; may be repeated",
      collectValues,
    )
    .option("--body <text>", "body instead of the old one")
    .option("--body-file <file>", "file with the body");
  withJson(command).action(async (id: string, flags: ReplayFlags) => {
    const body = readBody(flags.body, flags.bodyFile);
    const request = {
      ...(flags.url !== undefined && { url: flags.url }),
      ...(typeof body === "string" && { body }),
      ...(typeof body === "object" && { bodyBase64: body.toString("base64") }),
    };
    const result = await connectToApi(context).read({
      method: "POST",
      path: apiPath`/v2/dlq/${id}/replay`,
      headers: toRequestHeaders(flags.header ?? [], { "content-type": "application/json" }),
      body: JSON.stringify(request),
      needs: published,
    });
    const line = `${toSafeLine(id)} became ${readLine(result, "messageId")}`;
    printShown(flags, { value: result, describe: () => [line] });
  });
}

/** Returns the lines that describe a dead letter. */
const describeDeadLetter = (letter: Fields): string[] => [
  ...formatPairs([
    ["dead letter", readLine(letter, "dlqId")],
    ...describeSettings(letter),
    ["run", readLine(letter, "workflowRunId")],
    ["error", readLine(letter, "error")],
    ["status", readLine(letter, "responseStatus")],
    ["replayed as", readLines(letter, "replays").join(", ")],
  ]),
  ...describeBody("body", letter, "body"),
  ...describeBody("response", letter, "responseBody"),
];
