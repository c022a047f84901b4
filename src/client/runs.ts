import type { Command } from "commander";
import type { Api, ClientContext, OutputFlags, Shown } from "./api.ts";
import { apiPath, requireId } from "./apiPath.ts";
import { connectToApi, showResult, withOutput } from "./api.ts";
import { addBulkCommand } from "./bulkCommand.ts";
import { runEntryFields } from "../api/fields/run.ts";
import { columnsOf, labels } from "./columns.ts";
import { CommandFailed } from "./terminal/commandFailed.ts";
import type { Fields } from "./terminal/fields.ts";
import { readLine, readNumber, readObject, readObjects, readRaw } from "./terminal/fields.ts";
import { cancelledRunFilters, failedRunFilters, runFilters, runStates } from "./filterFlags.ts";
import { addListCommand } from "./listCommand.ts";
import { describeBody } from "./messages.ts";
import { addNotifyCommand } from "./notify.ts";
import { toSafeLine } from "./terminal/safeText.ts";
import { formatPairs, formatTable } from "./terminal/table.ts";
import { columnsOfOutput, styled } from "./terminal/terminal.ts";
import { formatSpan, formatTime } from "./terminal/times.ts";

/** Adds the commands `waypost runs …`. */
export function addRunCommands(program: Command, context: ClientContext): void {
  const runs = program
    .command("runs")
    .description("list, explain, notify, resume, restart and cancel workflow runs");
  addListCommand(
    runs,
    {
      path: "/v2/workflows/runs",
      rows: "runs",
      pageSize: 100,
      filters: runFilters,
      none: "no runs",
      columns: [
        ...columnsOf(runEntryFields, ["workflowRunId"]),
        {
          title: "STATE",
          show: ({ row }) => toStateWord(row),
          style: ({ row }) => stateStyles[toStateWord(row)] ?? null,
        },
        ...columnsOf(runEntryFields, ["workflowUrl"]),
        labels,
        ...columnsOf(runEntryFields, ["workflowRunCreatedAt"]),
        { title: "TOOK", show: ({ row }) => formatTook(row) },
      ],
    },
    { context, about: "list runs, the newest first" },
  );
  const withId = (name: string, about: string): Command =>
    withOutput(runs.command(name).description(about).argument("<id>", "id of the run"));
  withId("get", "show a run and its steps").action((id: string, flags: OutputFlags) => {
    const api = connectToApi(context);
    return showResult(flags, async () => {
      const run = await readRun(api, id);
      return { value: run, describe: () => describeRun(run) };
    });
  });
  withId("why", "say what a run waits for, or why it failed").action((id: string, flags: OutputFlags) => {
    const api = connectToApi(context);
    return showResult(flags, async () => {
      const path = apiPath`/v2/workflows/runs/${id}/status`;
      const status = await api.read({ path, needs: { one: { text: "string" } } });
      return { value: status, describe: () => explainRun(status) };
    });
  });
  addRunActions(runs, context);
  addNotifyCommand(runs, context);
}

function addRunActions(runs: Command, context: ClientContext): void {
  for (const verb of ["resume", "restart"] as const)
    addBulkCommand(runs, context, {
      name: verb,
      about:
        verb === "resume"
          ? "continue failed runs from the step that failed"
          : "start failed runs again from the beginning",
      job: `runs.${verb}`,
      verb,
      entries: "failed runs",
      filters: failedRunFilters,
      hasCanary: true,
      toFilter: toFailedRunFilter,
      one: (api, id) => continueRun(api, verb, id),
    });
  addBulkCommand(runs, context, {
    name: "cancel",
    about: "cancel active runs",
    job: "runs.cancel",
    verb: "cancel",
    entries: "runs",
    filters: cancelledRunFilters,
    hasCanary: false,
    toFilter: (_, ids) => ({ workflowRunIds: ids }),
    one: async (api, id): Promise<Shown> => {
      const result = await api.read({
        method: "DELETE",
        path: apiPath`/v2/workflows/runs/${id}`,
        query: { cancel: "true" },
        needs: { one: { cancelled: "number" } },
      });
      const line = readNumber(result, "cancelled") === 0 ? "had ended already" : "cancelled";
      return { value: result, describe: () => [`${toSafeLine(id)} ${line}`] };
    },
  });
}

/** Reports whether an id is that of a dead letter. All other ids are those of runs. */
const isDeadLetterId = (id: string): boolean => /^\d{10,}-\d+$/.test(id);

/**
 * Returns the filter of a job. The API also takes the ids of runs, but selects all runs whose ids begin with
 * one of them.
 */
async function toFailedRunFilter(api: Api, ids: readonly string[]): Promise<Fields> {
  const dlqIds: string[] = [];
  for (const id of ids) dlqIds.push(await toDeadLetterId(api, id));
  return { dlqIds };
}

/** Returns the id of the dead letter of a failed run. `id` is that id or the id of the run. */
const toDeadLetterId = async (api: Api, id: string): Promise<string> =>
  isDeadLetterId(id) ? id : findFailedRun(api, id);

async function continueRun(api: Api, verb: "resume" | "restart", id: string): Promise<Shown> {
  const failed = await toDeadLetterId(api, id);
  const path = apiPath`/v2/workflows/dlq/${verb}/${failed}`;
  const result = await api.read({ method: "POST", path, needs: { one: { workflowRunId: "string" } } });
  return {
    value: result,
    describe: () => [`${toSafeLine(id)} became ${readLine(result, "workflowRunId")}`],
  };
}

async function findFailedRun(api: Api, runId: string): Promise<string> {
  const query = { workflowRunId: requireId(runId), order: "latestFirst", count: 1 };
  const page = await api.read({ path: "/v2/workflows/dlq", query, needs: { one: { messages: "objects" } } });
  const id = readRaw(readObjects(page, "messages")[0] ?? {}, "dlqId");
  if (id !== "") return id;
  const run = toSafeLine(runId);
  throw new CommandFailed(
    "notFound",
    `${run}: no failed run has this id; "waypost runs why ${run}" shows its state`,
  );
}

async function readRun(api: Api, id: string): Promise<Fields> {
  const page = await api.read({
    path: "/v2/workflows/logs",
    needs: { one: { runs: "objects" } },
    query: { workflowRunId: requireId(id), count: 1 },
  });
  const run = readObjects(page, "runs")[0];
  if (run) return run;
  throw new CommandFailed(
    "notFound",
    `${toSafeLine(id)}: there is no run with this id; its log may have been removed`,
  );
}

const stateStyles: Readonly<Record<string, "green" | "red" | "yellow" | "cyan">> = {
  running: "cyan",
  success: "green",
  failed: "red",
  cancelled: "yellow",
};

function toStateWord(run: Fields): string {
  const state = readLine(run, "workflowState");
  return runStates[state] ?? state;
}

function formatTook(run: Fields): string {
  const createdAt = readNumber(run, "workflowRunCreatedAt");
  const completedAt = readNumber(run, "workflowRunCompletedAt");
  return createdAt === null || completedAt === null ? "" : formatSpan(completedAt - createdAt);
}

function describeRun(run: Fields): string[] {
  const steps = readObjects(run, "steps").flatMap((group) => readObjects(group, "steps"));
  const columns = [
    { title: "STEP", show: (step: Fields) => readLine(step, "stepName"), shrinks: true },
    { title: "TYPE", show: (step: Fields) => readLine(step, "stepType") },
    {
      title: "STATE",
      show: (step: Fields) =>
        readLine(step, "state")
          .replace(/^STEP_/, "")
          .toLowerCase(),
    },
    { title: "STARTED", show: (step: Fields) => formatTime(step, "createdAt") },
    { title: "MESSAGE", show: (step: Fields) => readLine(step, "messageId") },
    {
      title: "ERROR",
      show: (step: Fields) => readLine(readObjects(step, "errors").at(-1) ?? {}, "error"),
      shrinks: true,
    },
  ] as const;
  return [
    ...formatPairs([
      ["run", readLine(run, "workflowRunId")],
      ["workflow", readLine(run, "workflowUrl")],
      ["state", toStateWord(run)],
      ["created", formatTime(run, "workflowRunCreatedAt")],
      ["ended", formatTime(run, "workflowRunCompletedAt")],
      ["key", readLine(run, "flowControlKey")],
      ["dead letter", readLine(run, "dlqId")],
      ["resumed as", readLine(readObject(run, "resumedAs"), "workflowRunId")],
      ["resumed from", readLine(readObject(run, "resumedFrom"), "workflowRunId")],
      ["invoked by", readLine(readObject(run, "invoker"), "workflowRunId")],
    ]),
    ...(steps.length > 0 ? ["", ...formatTable(columns, steps, columnsOfOutput())] : []),
    ...describeBody("result", run, "workflowRunResponse"),
  ];
}

function explainRun(status: Fields): string[] {
  const failure = readObject(status, "failure");
  const reasons = readObjects(status, "waitingOn").flatMap((reason) =>
    [readLine(reason, "text")].concat(
      readObjects(reason, "waitingOn").map((inner) => `  ${readLine(inner, "text")}`),
    ),
  );
  return [
    readLine(status, "text"),
    ...reasons,
    ...formatPairs([
      ["step", readLine(failure, "stepName")],
      ["after step", readLine(failure, "afterStep")],
      ["error", styled("red", readLine(failure, "error"))],
      ["dead letter", readLine(failure, "dlqId")],
    ]).filter(() => readLine(failure, "error") !== ""),
  ].filter((line, at, lines) => line !== "" && lines.indexOf(line) === at);
}
