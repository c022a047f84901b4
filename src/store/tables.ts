import type { Rows, TableName } from "../core/command.ts";
import type { Account, Bytes, DeadLetter, Envelope, LogRow, LogState, MessageState } from "../core/message.ts";
import { noBytes } from "../core/message.ts";

export type ColumnType = "text" | "bigint" | "integer" | "bytea";
export type Value = string | number | Uint8Array | null;
export type Columns = Record<string, Value>;

/** What a table looks like in the database. */
export type Shape = {
  name: string;
  columns: Record<string, ColumnType>;
  key: readonly string[];
  /** Read without a lock: rows that never change, or are changed only by comparing with what was read. */
  unlocked?: true;
  /** Several nodes may make the same row at once. They make them in the order of the key, so as not to wait in a circle. */
  contested?: true;
};

/** How a row becomes columns, and back. */
export type Table<Row> = Shape & {
  /** All columns, in the order of `columns`. */
  write(row: Row): Columns;
  read(columns: Columns): Row;
};

const text = (value: Value | undefined): string => (typeof value === "string" ? value : "");
const number = (value: Value | undefined): number => (typeof value === "number" ? value : 0);
const bytes = (value: Value | undefined): Bytes => (value instanceof Uint8Array ? value : noBytes);
const orNull = <T extends Value>(value: Value | undefined, read: (value: Value | undefined) => T): T | null =>
  value === null || value === undefined ? null : read(value);
/** What was written as JSON, by `write` of the same table. */
const detailOf = <Row>(row: Columns): Row => JSON.parse(text(row.detail)) as Row;
const bodyOf = (body: Bytes): Bytes | null => (body.byteLength === 0 ? null : body);

/** What most envelopes have none of. It is left out of their detail, which makes a plain one a third smaller on the disk. */
const rare = {
  ...{ retryDelay: null, callback: null, failureCallback: null, deduplication: null, redaction: null, callerIp: null, tells: null },
  ...{ labels: [], headers: [] },
} as const;

function present(detail: object): object {
  const kept: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(detail)) {
    if (value !== null && !(Array.isArray(value) && value.length === 0)) kept[name] = value;
  }
  return kept;
}

/** The columns of every table, by the names of `migrations`. What is never searched for is kept as JSON in `detail`. */
export const tables: { [T in TableName]: Table<Rows[T]> } = {
  accounts: {
    name: "accounts",
    columns: { id: "text", token_hash: "text", detail: "text" },
    key: ["id"],
    unlocked: true,
    write: ({ id, tokenHash, ...detail }) => ({ id, token_hash: tokenHash, detail: JSON.stringify(detail) }),
    read: (row) => ({ ...detailOf<Account>(row), id: text(row.id), tokenHash: text(row.token_hash) }),
  },
  envelopes: {
    name: "envelopes",
    columns: { account: "text", id: "text", detail: "text", body: "bytea" },
    key: ["account", "id"],
    unlocked: true,
    write: ({ account, id, body, ...detail }) => ({ account, id, detail: JSON.stringify(present(detail)), body: bodyOf(body) }),
    read: (row) => ({ ...rare, ...detailOf<Envelope>(row), account: text(row.account), id: text(row.id), body: bytes(row.body) }),
  },
  messages: {
    name: "messages",
    columns: {
      ...{ account: "text", id: "text", state: "text", due_at: "bigint", attempts: "integer" },
      ...{ lost: "integer", leased_by: "text", host: "text", size: "integer", tells: "integer" },
    },
    key: ["account", "id"],
    write: ({ account, id, state, dueAt, attempts, lost, leasedBy, host, size, tells }) => ({
      ...{ account, id, state, due_at: dueAt, attempts, lost, leased_by: leasedBy, host, size, tells: tells ? 1 : 0 },
    }),
    read: (row) => ({
      ...{ account: text(row.account), id: text(row.id), state: text(row.state) as MessageState["state"], host: text(row.host) },
      ...{ dueAt: orNull(row.due_at, number), attempts: number(row.attempts), lost: number(row.lost) },
      ...{ leasedBy: orNull(row.leased_by, text), size: number(row.size), tells: number(row.tells) === 1 },
    }),
  },
  deduplications: {
    name: "deduplications",
    columns: { account: "text", key: "text", message_id: "text", expires_at: "bigint" },
    key: ["account", "key"],
    contested: true,
    write: ({ account, key, messageId, expiresAt }) => ({ account, key, message_id: messageId, expires_at: expiresAt }),
    read: (row) => ({ account: text(row.account), key: text(row.key), messageId: text(row.message_id), expiresAt: number(row.expires_at) }),
  },
  deadLetters: {
    name: "dead_letters",
    columns: { account: "text", id: "text", message_id: "text", detail: "text", body: "bytea" },
    key: ["account", "id"],
    write: ({ account, id, messageId, body, ...detail }) => ({
      ...{ account, id, message_id: messageId, detail: JSON.stringify(detail), body: bodyOf(body) },
    }),
    read: (row) => ({
      ...detailOf<DeadLetter>(row),
      ...{ account: text(row.account), id: text(row.id), messageId: text(row.message_id), body: bytes(row.body) },
    }),
  },
  lines: {
    name: "lines",
    columns: { account: "text", host: "text", due_at: "bigint" },
    key: ["account", "host"],
    contested: true,
    write: ({ account, host, dueAt }) => ({ account, host, due_at: dueAt }),
    read: (row) => ({ account: text(row.account), host: text(row.host), dueAt: number(row.due_at) }),
  },
  log: {
    name: "log",
    columns: {
      ...{ account: "text", id: "text", message_id: "text", time: "bigint" },
      ...{ states: "text", status: "integer", detail: "text", body: "bytea" },
    },
    key: ["account", "id"],
    write: ({ account, id, messageId, time, states, status, body, error, nextDueAt, headers, dlqId }) => ({
      ...{ account, id, message_id: messageId, time, states: states.join(" "), status },
      // A plain success has nothing to add, and is by far the most frequent row.
      detail: error || nextDueAt || headers.length > 0 || dlqId ? JSON.stringify({ error, nextDueAt, headers, dlqId }) : null,
      body: bodyOf(body),
    }),
    read: (row) => ({
      ...{ account: text(row.account), id: text(row.id), messageId: text(row.message_id), time: number(row.time) },
      ...{ states: text(row.states).split(" ") as LogState[], status: orNull(row.status, number), body: bytes(row.body) },
      ...(row.detail === null
        ? { error: null, nextDueAt: null, headers: [], dlqId: null }
        : detailOf<Pick<LogRow, "error" | "nextDueAt" | "headers" | "dlqId">>(row)),
    }),
  },
};
