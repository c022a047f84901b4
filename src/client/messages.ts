import type { Command } from "commander";
import type { Api, ClientContext, OutputFlags, Shown } from "./api.ts";
import { apiPath } from "./apiPath.ts";
import { connectToApi, printShown, showResult, withJson, withOutput } from "./api.ts";
import { addBulkCommand } from "./bulkCommand.ts";
import { unfinishedFields } from "../api/fields/unfinished.ts";
import { columnsOf, labels } from "./columns.ts";
import type { Fields } from "./terminal/fields.ts";
import { readLine, readLines, readNumber, readObject, readObjects, readText } from "./terminal/fields.ts";
import { cancelledMessageFilters, messageFilters } from "./filterFlags.ts";
import { addListCommand } from "./listCommand.ts";
import { formatPairs } from "./terminal/table.ts";
import { styled } from "./terminal/terminal.ts";
import { formatSpan, formatTime } from "./terminal/times.ts";
import { toSafeLine } from "./terminal/safeText.ts";

/** Ends the running attempt of a message. The attempt is the one that runs now. */
async function endAttempt(api: Api, id: string): Promise<Shown> {
  const message = await readMessage(api, id);
  const [reason = {}] = readObjects(message, "waitingOn");
  const attempt = readNumber(reason, "attempt");
  const isRunning = ["sending", "acknowledging"].includes(readText(reason, "reason") ?? "");
  if (!isRunning || attempt === null)
    return {
      value: { messageId: id, ended: false },
      describe: () => [`${toSafeLine(id)} is not being sent`],
    };
  const result = await api.read({
    method: "POST",
    path: apiPath`/v2/messages/${id}/end-attempt`,
    query: { attempt: String(attempt) },
    needs: { one: { ended: "boolean" } },
  });
  const isEnded = result["ended"] === true;
  const line = isEnded ? "ends this attempt and is sent again" : "has ended this attempt before";
  return { value: result, describe: () => [`${toSafeLine(id)} ${line}`] };
}

/** Adds the commands `waypost messages …`. */
export function addMessageCommands(program: Command, context: ClientContext): void {
  const messages = program
    .command("messages")
    .description("list, explain, cancel, retry and speed up messages");
  addListCommand(
    messages,
    {
      path: "/v2/messages",
      rows: "messages",
      pageSize: 100,
      filters: messageFilters,
      none: "no unfinished messages",
      columns: [
        ...columnsOf(unfinishedFields, ["messageId", "state", "url", "queueName", "flowControlKey"]),
        labels,
        ...columnsOf(unfinishedFields, ["createdAt", "attempts"]),
        {
          title: "WAITING FOR",
          show: ({ row }) => readLine(readObject(row, "waitingOn"), "text"),
          shrinks: true,
        },
      ],
    },
    { context, about: "list unfinished messages" },
  );
  addMessageViews(messages, context);
  addBulkCommand(messages, context, {
    name: "cancel",
    about: "cancel messages",
    job: "messages.cancel",
    verb: "cancel",
    entries: "messages",
    filters: cancelledMessageFilters,
    hasCanary: false,
    toFilter: (_, ids) => ({ messageIds: ids }),
    one: async (api, id): Promise<Shown> => {
      const path = apiPath`/v2/messages/${id}`;
      const result = await api.read({ method: "DELETE", path, needs: { one: { cancelled: "number" } } });
      const line = readNumber(result, "cancelled") === 0 ? "had ended already" : "cancelled";
      return { value: result, describe: () => [`${toSafeLine(id)} ${line}`] };
    },
  });
}

function addMessageViews(messages: Command, context: ClientContext): void {
  const withId = (name: string, about: string): Command =>
    messages.command(name).description(about).argument("<id>", "id of the message");
  withOutput(withId("get", "show a message, its attempts and its body")).action(
    (id: string, flags: OutputFlags) => {
      const api = connectToApi(context);
      return showResult(flags, async () => {
        const message = await readMessage(api, id);
        return { value: message, describe: () => describeMessage(message) };
      });
    },
  );
  withOutput(withId("why", "say what a message waits for, or how it ended")).action(
    (id: string, flags: OutputFlags) => {
      const api = connectToApi(context);
      return showResult(flags, async () => {
        const message = await readMessage(api, id);
        return { value: message, describe: () => explainMessage(message) };
      });
    },
  );
  withJson(withId("end-attempt", "end the running attempt of a message, and retry")).action(
    async (id: string, flags: OutputFlags) => printShown(flags, await endAttempt(connectToApi(context), id)),
  );
  withJson(withId("send-now", "send a message now, before its delay or its next retry is due")).action(
    async (id: string, flags: OutputFlags) => {
      const result = await connectToApi(context).read({
        method: "POST",
        path: apiPath`/v2/messages/${id}/send-now`,
        needs: { one: { changed: "boolean" } },
      });
      const line = result["changed"] === true ? "is due now" : "was due already; nothing changed";
      printShown(flags, { value: result, describe: () => [`${toSafeLine(id)} ${line}`] });
    },
  );
}

const readMessage = (api: Api, id: string): Promise<Fields> =>
  api.read({ path: apiPath`/v2/messages/${id}`, needs: { one: { messageId: "string", url: "string" } } });

/** Returns the fields that a message and a dead letter have in common. */
export const describeSettings = (message: Fields): (readonly [string, string])[] => [
  ["message", readLine(message, "messageId")],
  ["url", [readLine(message, "method"), readLine(message, "url")].join(" ")],
  ["group", readLine(message, "topicName")],
  ["queue", readLine(message, "queueName")],
  ["key", readLine(message, "flowControlKey")],
  ["schedule", readLine(message, "scheduleId")],
  ["labels", readLines(message, "labels").join(", ")],
  ["caller", readLine(message, "callerIP")],
  ["created", formatTime(message, "createdAt")],
  ["retries", readLine(message, "maxRetries")],
];

/** Returns the lines of a body, or of its beginning. */
export function describeBody(title: string, fields: Fields, name: string): string[] {
  const text = readText(fields, name);
  const binary = readLine(fields, `${name}Base64`);
  if (text === "" && binary === "") return [];
  return ["", styled("dim", title), ...(text === "" ? [`${binary} (base64)`] : text.split("\n"))];
}

function describeMessage(message: Fields): string[] {
  const headers = Object.entries(readObject(message, "header")).map(([name, values]) => {
    return `${toSafeLine(name)}: ${Array.isArray(values) ? toSafeLine(values.join(", ")) : ""}`;
  });
  return [
    ...formatPairs([
      ...describeSettings(message),
      ["state", readLine(message, "state")],
      ["due", formatTime(message, "dueAt")],
      ["ended", formatTime(message, "finishedAt")],
      ["dead letter", readLine(message, "dlqId")],
      ["deduplication", describeDeduplication(readObject(message, "deduplication"))],
      ["waits for", readObjects(message, "waitingOn").map((reason) => readLine(reason, "text"))[0] ?? ""],
    ]),
    ...readObjects(message, "outcomes").map(describeOutcome),
    ...(headers.length > 0 ? ["", styled("dim", "headers"), ...headers] : []),
    ...describeBody("body", message, "body"),
  ];
}

function describeDeduplication(of: Fields): string {
  const by = readLine(of, "by");
  if (by === "") return "";
  const other = readLine(of, "messageId");
  return [
    readLine(of, "id") || `by ${by}`,
    ...(readNumber(of, "until") === null ? [] : [`repeats are dropped until ${formatTime(of, "until")}`]),
    ...(other === "" ? [] : [`repeats are dropped for ${other}`]),
  ].join("; ");
}

function describeOutcome(outcome: Fields): string {
  const attempt = readObject(outcome, "attempt");
  const duration = readNumber(attempt, "duration");
  const status = readLine(outcome, "responseStatus");
  const error = readLine(outcome, "error");
  return [
    styled("dim", "attempt"),
    formatTime(outcome, "time"),
    ...(status === "" ? [] : [status]),
    ...(error === "" ? [] : [styled("red", error)]),
    ...(duration === null ? [] : [`after ${formatSpan(duration)}`]),
    readLine(attempt, "node"),
  ]
    .filter(Boolean)
    .join("  ");
}

function explainMessage(message: Fields): string[] {
  const reasons = readObjects(message, "waitingOn").map((reason) => readLine(reason, "text"));
  const last = readObjects(message, "outcomes").at(-1);
  const ended = [
    `${readLine(message, "state")} ${formatTime(message, "finishedAt")}`.trim(),
    ...(last ? [describeOutcome(last)] : []),
  ];
  return reasons.length > 0 ? reasons : ended;
}
