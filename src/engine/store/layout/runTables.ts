import type { ActiveRun, Notification, Run, RunProgress, Step, Waiter } from "../../core/model/run.ts";
import { readRunKey } from "../../core/model/stepId.ts";
import type { Tables } from "./table.ts";
import { readText, readNumber, readBytes, readOrNull, parseDetail, toBodyColumn } from "./columns.ts";

/** The columns of the tables of workflow runs. */
export const runTables = {
  runs: {
    name: "runs",
    columns: {
      account: "text",
      id: "text",
      failed: "integer",
      ended_at: "bigint",
      detail: "text",
      body: "bytea",
    },
    key: ["account", "id"],
    write: ({ account, id, endedAt, body, ...detail }) => ({
      account,
      id,
      failed: detail.state === "RUN_FAILED" ? 1 : 0,
      ended_at: endedAt,
      detail: JSON.stringify(detail),
      body: toBodyColumn(body),
    }),
    read: (row) => ({
      ...parseDetail<Run>(row),
      account: readText(row.account),
      id: readText(row.id),
      endedAt: readOrNull(row.ended_at, readNumber),
      body: readBytes(row.body),
    }),
  },
  activeRuns: {
    name: "active_runs",
    columns: {
      account: "text",
      run_id: "text",
      run: "text",
      steps: "integer",
      size: "bigint",
      first_message: "text",
      waiting: "integer",
      last_call: "text",
      last_call_from: "bigint",
      last_call_to: "bigint",
      progress: "text",
    },
    key: ["account", "run_id"],
    contested: true,
    write: (active) => ({
      account: active.account,
      run_id: active.runId,
      run: active.run,
      steps: active.steps,
      size: active.size,
      first_message: active.firstMessage,
      waiting: active.waiting,
      last_call: active.lastCall?.messageId ?? null,
      last_call_from: active.lastCall?.fromStep ?? null,
      last_call_to: active.lastCall?.toStep ?? null,
      progress: formatProgress(active),
    }),
    read: (row) => {
      const steps = readNumber(row.steps);
      const { openPlans, progress } = readProgress(row.progress, steps);
      return {
        account: readText(row.account),
        runId: readText(row.run_id),
        run: readText(row.run),
        steps,
        size: readNumber(row.size),
        firstMessage: readText(row.first_message),
        waiting: readNumber(row.waiting),
        lastCall:
          row.last_call === null
            ? null
            : {
                messageId: readText(row.last_call),
                fromStep: readNumber(row.last_call_from),
                toStep: readNumber(row.last_call_to),
                ...(progress ? { progress } : {}),
              },
        ...(openPlans === undefined ? {} : { openPlans }),
      };
    },
  },
  steps: {
    name: "steps",
    columns: {
      account: "text",
      id: "text",
      position: "integer",
      message_id: "text",
      call_type: "text",
      created_at: "bigint",
      detail: "text",
      body: "bytea",
    },
    key: ["account", "id"],
    write: ({ account, id, position, messageId, callType, createdAt, head, url, headers, body, waited }) => ({
      account,
      id,
      position,
      message_id: messageId,
      call_type: callType,
      created_at: createdAt,
      detail: JSON.stringify({ head, url, headers, ...(waited && { waited }) }),
      body: toBodyColumn(body),
    }),
    read: (row) => ({
      ...parseDetail<Pick<Step, "head" | "url" | "headers" | "waited">>(row),
      account: readText(row.account),
      id: readText(row.id),
      run: readRunKey(readText(row.id)),
      position: readNumber(row.position),
      body: readBytes(row.body),
      messageId: readText(row.message_id),
      callType: readText(row.call_type) as Step["callType"],
      createdAt: readNumber(row.created_at),
    }),
  },
  waiters: {
    name: "waiters",
    columns: { account: "text", id: "text", kind: "text", event: "text", due_at: "bigint", detail: "text" },
    key: ["account", "id"],
    write: ({ account, id, kind, event, dueAt, run: _run, ...detail }) => ({
      account,
      id,
      kind,
      event,
      due_at: dueAt,
      detail: JSON.stringify(detail),
    }),
    read: (row) => ({
      ...parseDetail<Waiter>(row),
      account: readText(row.account),
      id: readText(row.id),
      run: readRunKey(readText(row.id)),
      kind: readText(row.kind) as Waiter["kind"],
      event: readText(row.event),
      dueAt: readOrNull(row.due_at, readNumber),
    }),
  },
  notifications: {
    name: "notifications",
    columns: {
      account: "text",
      id: "text",
      kind: "text",
      event: "text",
      created_at: "bigint",
      body: "bytea",
    },
    key: ["account", "id"],
    write: ({ account, id, kind, event, createdAt, body }) => ({
      account,
      id,
      kind,
      event,
      created_at: createdAt,
      body: toBodyColumn(body),
    }),
    read: (row) => ({
      account: readText(row.account),
      id: readText(row.id),
      run: readRunKey(readText(row.id)),
      kind: readText(row.kind) as Notification["kind"],
      event: readText(row.event),
      createdAt: readNumber(row.created_at),
      body: readBytes(row.body),
      size: typeof row.size === "number" ? row.size : readBytes(row.body).byteLength,
    }),
  },
} satisfies Pick<Tables, "runs" | "activeRuns" | "steps" | "waiters" | "notifications">;

/**
 * Returns the column `progress` of an active run: the number of steps with which it was written, and what the
 * run has done since its last call. A node of an older version keeps the column when it adds a step. The
 * column then has another number of steps, and counts for nothing.
 */
function formatProgress({ steps, openPlans, lastCall }: ActiveRun): string | null {
  if (openPlans !== undefined) return `${steps} open ${openPlans}`;
  if (!lastCall?.progress) return null;
  const { attempt, retried, lost, call } = lastCall.progress;
  return `${steps} on ${attempt} ${retried} ${lost} ${call}`;
}

function readProgress(column: unknown, steps: number): { openPlans?: number; progress?: RunProgress } {
  if (typeof column !== "string") return {};
  const [writtenAt, kind, ...rest] = column.split(" ");
  if (Number(writtenAt) !== steps) return {};
  if (kind === "open") return { openPlans: Number(rest[0]) };
  const [attempt, retried, lost] = rest.map(Number);
  if (kind !== "on" || attempt === undefined || retried === undefined || lost === undefined) return {};
  return { progress: { attempt, retried, lost, call: rest[3] ?? "" } };
}
