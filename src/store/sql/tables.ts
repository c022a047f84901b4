import { compareForLocking } from "../../core/admission/gate.ts";
import type { Deduplication } from "../../core/model/deduplication.ts";
import type { AuditEntry } from "../../core/model/auditEntry.ts";
import type {
  Bytes,
  DeadLetter,
  StoredMessage,
  Limiter,
  UrlGroup,
  LogRow,
  LogState,
  Tag,
  MessageState,
  Rejection,
  Schedule,
} from "../../core/model/message.ts";
import { noBytes } from "../../core/model/message.ts";
import type { Notification, Run, Step, Waiter } from "../../core/model/run.ts";
import { readRunKey } from "../../core/model/stepId.ts";
import type { CountName, Counts } from "../../core/model/counts.ts";
import { countNames } from "../../core/model/counts.ts";
import type { Token } from "../../core/model/rights.ts";
import { plaintextCipher } from "./keyRing.ts";
import { withChecksums } from "./checksums.ts";
import type { LogDetail } from "./detail.ts";
import { formatStoredMessage, hasDetail, formatLogDetail, emptyFields } from "./detail.ts";
import type { Columns, ColumnType, Table, Tables, Value } from "./table.ts";
import { readAccount, readSource, writeAccount, writeSource } from "./encryptedColumns.ts";

export type { Columns, ColumnType, TableSchema as Shape, Table, Value } from "./table.ts";

const text = (value: Value | undefined): string => (typeof value === "string" ? value : "");
const number = (value: Value | undefined): number => (typeof value === "number" ? value : 0);
const bytes = (value: Value | undefined): Bytes => (value instanceof Uint8Array ? value : noBytes);
const orNull = <T extends Value>(value: Value | undefined, read: (value: Value | undefined) => T): T | null =>
  value === null || value === undefined ? null : read(value);
/** What was written as JSON, by `write` of the same table. */
const parseDetail = <Row>(row: Columns): Row => JSON.parse(text(row.detail)) as Row;
const toBodyColumn = (body: Bytes): Bytes | null => (body.byteLength === 0 ? null : body);

/** `workflowRuns` is the column `workflow_runs`. */
export const toCountColumn = (name: CountName): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const countColumns = countNames.map((name) => [name, toCountColumn(name)] as const);
const readCounts = (row: Columns): Counts =>
  Object.fromEntries(countColumns.map(([name, column]) => [name, number(row[column])])) as Counts;

/** A table of rows that are nothing but their keys. */
const keyOnlyTable: Omit<Table<Tag>, "name"> = {
  columns: { account: "text", id: "text" },
  key: ["account", "id"],
  write: ({ account, id }) => ({ account, id }),
  read: (row) => ({ account: text(row.account), id: text(row.id) }),
};

/** A table of entries of the log. */
const logTable: Omit<Table<LogRow>, "name"> = {
  columns: {
    ...{ account: "text", id: "text", message_id: "text", time: "bigint" },
    ...{ states: "text", status: "integer", detail: "text", body: "bytea" },
  },
  key: ["account", "id"],
  write: (row) => ({
    account: row.account,
    id: row.id,
    message_id: row.messageId,
    time: row.time,
    states: row.states.join(" "),
    status: row.status,
    // A plain success has nothing to add, and is by far the most frequent row.
    detail: hasDetail(row) ? formatLogDetail(row) : null,
    body: toBodyColumn(row.body),
  }),
  read: (row) => ({
    ...{ account: text(row.account), id: text(row.id), messageId: text(row.message_id), time: number(row.time) },
    ...{ states: text(row.states).split(" ") as LogState[], status: orNull(row.status, number), body: bytes(row.body) },
    ...{ error: null, nextDueAt: null, headers: [], dlqId: null, tags: [] },
    ...(row.detail === null ? {} : parseDetail<Partial<LogDetail>>(row)),
  }),
};

/** The columns of every table, as `schema.sql` names them. What is never searched for is kept as JSON in `detail`. */
export const tables: Tables = withChecksums({
  accounts: {
    name: "accounts",
    columns: { id: "text", token_hash: "text", detail: "text" },
    key: ["id"],
    unlocked: true,
    write: (account, cipher = plaintextCipher) => writeAccount(account, cipher),
    read: (row, cipher = plaintextCipher) => readAccount(row, cipher),
  },
  storedMessages: {
    name: "stored_messages",
    columns: { account: "text", id: "text", detail: "text", body: "bytea" },
    key: ["account", "id"],
    unlocked: true,
    write: (row) => ({ account: row.account, id: row.id, detail: formatStoredMessage(row), body: toBodyColumn(row.body) }),
    read: (row) => ({
      ...emptyFields,
      ...parseDetail<StoredMessage>(row),
      account: text(row.account),
      id: text(row.id),
      body: bytes(row.body),
    }),
  },
  messages: {
    name: "messages",
    columns: {
      ...{ account: "text", id: "text", state: "text", due_at: "bigint", attempts: "integer" },
      ...{ lost_attempts: "integer", leased_by: "text", host: "text", size: "integer", reports_outcome: "integer" },
      ...{ queue: "text", flow_control_key: "text", queue_slot: "text", waitlist: "text", tags: "text", run: "text" },
      ...{ counted_to_account: "integer", counted_to_endpoint: "integer", time_keys: "text", endpoint: "text" },
    },
    key: ["account", "id"],
    constant: ["host", "size", "reports_outcome", "queue", "flow_control_key", "tags", "run", "time_keys", "endpoint"],
    // Not put together of parts, as others are: it is written for every message, and that would take half a microsecond.
    write: (row) => ({
      account: row.account,
      id: row.id,
      state: row.state,
      due_at: row.dueAt,
      attempts: row.attempts,
      lost_attempts: row.lostAttempts,
      leased_by: row.leasedBy,
      host: row.host,
      size: row.size,
      reports_outcome: row.reportsOutcome ? 1 : 0,
      queue: row.queue,
      flow_control_key: row.flowControlKey,
      queue_slot: row.slot,
      waitlist: row.waitlist,
      tags: row.tags.length > 0 ? row.tags.join(" ") : null,
      run: row.run,
      counted_to_account: row.counted ? 1 : null,
      counted_to_endpoint: row.countedToEndpoint ? 1 : null,
      time_keys: row.timeKeys,
      endpoint: row.endpoint,
    }),
    read: (row) => ({
      ...{ account: text(row.account), id: text(row.id), state: text(row.state) as MessageState["state"], host: text(row.host) },
      ...{ dueAt: orNull(row.due_at, number), attempts: number(row.attempts), lostAttempts: number(row.lost_attempts) },
      ...{ leasedBy: orNull(row.leased_by, text), size: number(row.size), reportsOutcome: number(row.reports_outcome) === 1 },
      ...{ queue: orNull(row.queue, text), flowControlKey: orNull(row.flow_control_key, text) },
      ...{ slot: orNull(row.queue_slot, text), waitlist: orNull(row.waitlist, text), tags: row.tags ? text(row.tags).split(" ") : [] },
      ...{ run: orNull(row.run, text), timeKeys: text(row.time_keys), endpoint: text(row.endpoint) },
      ...(row.counted_to_account === null ? {} : { counted: true }),
      ...(row.counted_to_endpoint === null ? {} : { countedToEndpoint: true }),
    }),
  },
  deduplications: {
    name: "deduplications",
    columns: { account: "text", key: "text", message_id: "text", expires_at: "bigint", detail: "text" },
    key: ["account", "key"],
    contested: true,
    write: ({ account, key, messageId, expiresAt, made }) => ({
      ...{ account, key, message_id: messageId, expires_at: expiresAt },
      detail: JSON.stringify(made),
    }),
    read: (row) => ({
      ...{ account: text(row.account), key: text(row.key), messageId: text(row.message_id), expiresAt: number(row.expires_at) },
      made: parseDetail<Deduplication["made"]>(row),
    }),
  },
  deadLetters: {
    name: "dead_letters",
    columns: { account: "text", id: "text", message_id: "text", detail: "text", body: "bytea" },
    key: ["account", "id"],
    write: ({ account, id, messageId, body, ...detail }) => ({
      ...{ account, id, message_id: messageId, detail: JSON.stringify(detail), body: toBodyColumn(body) },
    }),
    read: (row) => ({
      ...parseDetail<DeadLetter>(row),
      ...{ account: text(row.account), id: text(row.id), messageId: text(row.message_id), body: bytes(row.body) },
    }),
  },
  hostWaitlists: {
    name: "host_waitlists",
    columns: { account: "text", host: "text", due_at: "bigint" },
    key: ["account", "host"],
    contested: true,
    write: ({ account, host, dueAt }) => ({ account, host, due_at: dueAt }),
    read: (row) => ({ account: text(row.account), host: text(row.host), dueAt: number(row.due_at) }),
  },
  limiters: {
    name: "limiters",
    compareIds: compareForLocking,
    columns: {
      ...{ account: "text", id: "text", due_at: "bigint", running: "integer", waiting: "integer" },
      ...{ window_start: "bigint", window_used: "integer", updated_at: "bigint", detail: "text" },
    },
    key: ["account", "id"],
    contested: true,
    write: ({ account, id, dueAt, running, waiting, windowStart, windowUsed, updatedAt, ...detail }) => ({
      ...{ account, id, due_at: dueAt, running, waiting, window_start: windowStart, window_used: windowUsed, updated_at: updatedAt },
      detail: JSON.stringify(detail),
    }),
    read: (row) => ({
      ...parseDetail<Limiter>(row),
      ...{ account: text(row.account), id: text(row.id), dueAt: orNull(row.due_at, number) },
      ...{ running: number(row.running), waiting: number(row.waiting), updatedAt: number(row.updated_at) },
      ...{ windowStart: number(row.window_start), windowUsed: number(row.window_used) },
    }),
  },
  queueSlots: {
    name: "queue_slots",
    columns: { account: "text", id: "text", queue: "text", holders: "integer" },
    key: ["account", "id"],
    write: ({ account, id, queue, holders }) => ({ account, id, queue, holders }),
    read: (row) => ({ account: text(row.account), id: text(row.id), queue: text(row.queue), holders: number(row.holders) }),
  },
  urlGroups: {
    name: "url_groups",
    columns: { account: "text", name: "text", detail: "text" },
    key: ["account", "name"],
    contested: true,
    write: ({ account, name, ...detail }) => ({ account, name, detail: JSON.stringify(detail) }),
    read: (row) => ({ ...parseDetail<UrlGroup>(row), account: text(row.account), name: text(row.name) }),
  },
  schedules: {
    name: "schedules",
    columns: { account: "text", id: "text", due_at: "bigint", detail: "text", body: "bytea" },
    key: ["account", "id"],
    contested: true,
    write: ({ account, id, dueAt, body, ...detail }) => ({
      ...{ account, id, due_at: dueAt, detail: JSON.stringify(detail), body: toBodyColumn(body) },
    }),
    read: (row) => ({
      ...parseDetail<Schedule>(row),
      ...{ account: text(row.account), id: text(row.id), dueAt: orNull(row.due_at, number), body: bytes(row.body) },
    }),
  },
  sources: {
    name: "sources",
    columns: { account: "text", id: "text", secret_hash: "text", detail: "text" },
    key: ["account", "id"],
    write: (source, cipher = plaintextCipher) => writeSource(source, cipher),
    read: (row, cipher = plaintextCipher) => readSource(row, cipher),
  },
  tokens: {
    name: "tokens",
    columns: { account: "text", id: "text", token_hash: "text", detail: "text" },
    key: ["account", "id"],
    write: ({ account, id, hash, ...detail }) => ({ account, id, token_hash: hash, detail: JSON.stringify(detail) }),
    read: (row) => ({ ...parseDetail<Token>(row), account: text(row.account), id: text(row.id), hash: text(row.token_hash) }),
  },
  rejections: {
    name: "rejections",
    columns: { account: "text", id: "text", time: "bigint", detail: "text", body: "bytea" },
    key: ["account", "id"],
    contested: true,
    write: ({ account, id, time, body, ...detail }) => ({ account, id, time, detail: JSON.stringify(detail), body: toBodyColumn(body) }),
    read: (row) => ({
      ...parseDetail<Rejection>(row),
      ...{ account: text(row.account), id: text(row.id), time: number(row.time), body: bytes(row.body) },
    }),
  },
  log: { name: "log", ...logTable },
  keptLog: { name: "kept_log", ...logTable },
  runs: {
    name: "runs",
    columns: { account: "text", id: "text", failed: "integer", ended_at: "bigint", detail: "text", body: "bytea" },
    key: ["account", "id"],
    write: ({ account, id, endedAt, body, ...detail }) => ({
      ...{ account, id, failed: detail.state === "RUN_FAILED" ? 1 : 0, ended_at: endedAt },
      ...{ detail: JSON.stringify(detail), body: toBodyColumn(body) },
    }),
    read: (row) => ({
      ...parseDetail<Run>(row),
      ...{ account: text(row.account), id: text(row.id), endedAt: orNull(row.ended_at, number), body: bytes(row.body) },
    }),
  },
  activeRuns: {
    name: "active_runs",
    columns: {
      ...{ account: "text", run_id: "text", run: "text", steps: "integer", size: "bigint", first_message: "text", waiting: "integer" },
    },
    key: ["account", "run_id"],
    contested: true,
    write: ({ account, runId, run, steps, size, firstMessage, waiting }) => ({
      account,
      run_id: runId,
      run,
      steps,
      size,
      first_message: firstMessage,
      waiting,
    }),
    read: (row) => ({
      ...{ account: text(row.account), runId: text(row.run_id), run: text(row.run), steps: number(row.steps) },
      ...{ size: number(row.size), firstMessage: text(row.first_message), waiting: number(row.waiting) },
    }),
  },
  steps: {
    name: "steps",
    columns: {
      ...{ account: "text", id: "text", position: "integer", message_id: "text", call_type: "text", created_at: "bigint" },
      ...{ detail: "text", body: "bytea" },
    },
    key: ["account", "id"],
    write: ({ account, id, position, messageId, callType, createdAt, head, url, headers, body, waited }) => ({
      ...{ account, id, position, message_id: messageId, call_type: callType, created_at: createdAt },
      ...{ detail: JSON.stringify({ head, url, headers, ...(waited && { waited }) }), body: toBodyColumn(body) },
    }),
    read: (row) => ({
      ...parseDetail<Pick<Step, "head" | "url" | "headers" | "waited">>(row),
      ...{
        account: text(row.account),
        id: text(row.id),
        run: readRunKey(text(row.id)),
        position: number(row.position),
        body: bytes(row.body),
      },
      ...{ messageId: text(row.message_id), callType: text(row.call_type) as Step["callType"], createdAt: number(row.created_at) },
    }),
  },
  waiters: {
    name: "waiters",
    columns: { account: "text", id: "text", kind: "text", event: "text", due_at: "bigint", detail: "text" },
    key: ["account", "id"],
    write: ({ account, id, kind, event, dueAt, run: _run, ...detail }) => ({
      ...{ account, id, kind, event, due_at: dueAt, detail: JSON.stringify(detail) },
    }),
    read: (row) => ({
      ...parseDetail<Waiter>(row),
      ...{ account: text(row.account), id: text(row.id), run: readRunKey(text(row.id)), kind: text(row.kind) as Waiter["kind"] },
      ...{ event: text(row.event), dueAt: orNull(row.due_at, number) },
    }),
  },
  notifications: {
    name: "notifications",
    columns: { account: "text", id: "text", kind: "text", event: "text", created_at: "bigint", body: "bytea" },
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
      ...{ account: text(row.account), id: text(row.id), run: readRunKey(text(row.id)), kind: text(row.kind) as Notification["kind"] },
      ...{ event: text(row.event), createdAt: number(row.created_at) },
      ...{ body: bytes(row.body), size: typeof row.size === "number" ? row.size : bytes(row.body).byteLength },
    }),
  },
  usage: {
    name: "usage",
    columns: {
      account: "text",
      id: "text",
      ...Object.fromEntries(countColumns.map(([, column]): [string, ColumnType] => [column, "bigint"])),
    },
    key: ["account", "id"],
    write: (row) => ({
      account: row.account,
      id: row.id,
      ...Object.fromEntries(countColumns.map(([name, column]) => [column, row[name]])),
    }),
    read: (row) => ({ account: text(row.account), id: text(row.id), ...readCounts(row) }),
  },
  dayCounts: {
    name: "day_counts",
    columns: { account: "text", day: "bigint", requests: "bigint" },
    key: ["account"],
    contested: true,
    write: ({ account, day, requests }) => ({ account, day, requests }),
    read: (row) => ({ account: text(row.account), day: number(row.day), requests: number(row.requests) }),
  },
  secondCounts: {
    name: "second_counts",
    columns: { account: "text", second: "bigint", requests: "bigint" },
    key: ["account"],
    contested: true,
    write: ({ account, second, requests }) => ({ account, second, requests }),
    read: (row) => ({ account: text(row.account), second: number(row.second), requests: number(row.requests) }),
  },
  audit: {
    name: "audit",
    columns: { account: "text", id: "text", time: "bigint", action: "text", detail: "text" },
    key: ["account", "id"],
    write: ({ account, id, time, what, ...detail }) => ({ account, id, time, action: what, detail: JSON.stringify(detail) }),
    read: (row) => ({
      ...parseDetail<AuditEntry>(row),
      ...{ account: text(row.account), id: text(row.id), time: number(row.time), what: text(row.action) },
    }),
  },
  tags: { name: "tags", ...keyOnlyTable },
  timeIndex: { name: "time_index", ...keyOnlyTable, contested: true, idempotent: true },
});
