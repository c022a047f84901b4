import type { Client } from "pg";
import { expect, onTestFinished, test } from "vitest";
import type { TableName } from "../../../../src/engine/core/decision/command.ts";
import { dueTables } from "../../../../src/engine/core/node/turns.ts";
import { makeTurnStatements } from "../../../../src/engine/store/sql/dueRows.ts";
import type { Loader } from "../../../../src/engine/store/batch/loader.ts";
import { day } from "../../../../src/engine/core/values/time.ts";
import { createPartitions } from "../../../../src/engine/store/postgres/partitions.ts";
import { connect } from "../../../../src/engine/store/postgres/connect.ts";
import { createConnection, runPlain } from "../../../../src/engine/store/postgres/connection.ts";
import { getLoader } from "../../../../src/engine/store/sql/loader.ts";
import { createSqlReads } from "../../../../src/engine/store/sql/reads.ts";
import { getStatements } from "../../../../src/engine/store/sql/statements.ts";
import { tableNames } from "../../../../src/engine/store/catalog/order.ts";
import type { ColumnType } from "../../../../src/engine/store/catalog/tables.ts";
import { tables } from "../../../../src/engine/store/catalog/tables.ts";
import { freshDatabase } from "../../../postgres.ts";
import { openNode } from "./postgresDatabase.ts";
import { closeAfterTest, TestClock } from "../storeFixture.ts";

// How PostgreSQL plans the statements of batches, whatever its statistics of the tables: docs/decisions/0041.

/** A statement, and the indexes it may use with the columns by which each must be searched. */
type Asked = { what: string; text: string; parameters: number; ways: Record<string, readonly string[]> };

/**
 * All tables except the log. Log entries are hardly ever read by their keys, and a partition of the log is
 * never emptied while it is in use.
 */
const names = tableNames.filter((one) => one !== "log");

function byKeys(): Asked[] {
  const { dialect } = createConnection(async () => ({ rows: [] }));
  return names.flatMap((name) => {
    const { whole, withoutBody, update, remove, keyTypes } = getStatements(dialect, name);
    const { key, columns, unlocked } = tables[name];
    // Some tables have rows that never change. In unlocked tables, an update compares all columns that were
    // read, and may find the row by any unique one.
    const isUpdated = !unlocked && Object.keys(columns).length > key.length;
    const ways = { [`${tables[name].name}_pkey`]: key };
    return [
      { what: `${name} take`, text: whole.locking, parameters: keyTypes.length, ways },
      { what: `${name} outline`, text: withoutBody.locking, parameters: keyTypes.length, ways },
      ...(isUpdated
        ? [{ what: `${name} update`, text: update.sql, parameters: update.types.length, ways }]
        : []),
      { what: `${name} remove`, text: remove, parameters: keyTypes.length, ways },
    ];
  });
}

/** Returns the statements by which accounts with due rows take turns. */
function inTurns(): Asked[] {
  const { dialect } = createConnection(async () => ({ rows: [] }));
  return dueTables.flatMap((name) => {
    const { accounts, rows } = makeTurnStatements(dialect, name);
    const index = `${tables[name].name}_turn`;
    return [
      {
        what: `${name}: accounts in turn`,
        text: accounts.replace("?", "$1"),
        parameters: 1,
        ways: { [index]: ["account"] },
      },
      {
        what: `${name}: rows of a turn`,
        text: rows,
        parameters: 3,
        ways: { [index]: ["account", "due_at"] },
      },
    ];
  });
}

/** Returns each read of the loader with the statement that it runs. */
async function loaded(): Promise<Asked[]> {
  const put: { text: string; parameters: number }[] = [];
  const loader = getLoader(
    createConnection(async ({ text, values = [] }) => {
      put.push({ text, parameters: values.length });
      return { rows: [] };
    }),
  );
  const account = "a";
  const run = "r";
  const event = "e";
  const ofSteps = { steps_pkey: ["account", "id"] };
  const asks: [string, () => Promise<unknown>, Asked["ways"]][] = [
    [
      "heads of a waitlist",
      () => loader.waitlistHeads([{ account, waitlist: "l", limit: 3 }]),
      { messages_waitlist: ["account", "waitlist"] },
    ],
    [
      "messages of a run",
      () => loader.runRows([{ account, run, table: "messages" }]),
      { messages_run: ["account", "run"], messages_pkey: ["account", "id"] },
    ],
    [
      "waiters of a run",
      () => loader.runRows([{ account, run, table: "waiters" }]),
      { waiters_pkey: ["account", "id"] },
    ],
    [
      "notifications of a run",
      () => loader.runRows([{ account, run, table: "notifications" }]),
      { notifications_pkey: ["account", "id"] },
    ],
    ["steps of a run", () => loader.runRows([{ account, run, table: "steps" }]), ofSteps],
    [
      "waiters of an event",
      () => loader.runRows([{ account, run, table: "waiters", event }]),
      { waiters_event: ["account", "event", "id"], waiters_pkey: ["account", "id"] },
    ],
    ["history", () => loader.steps([{ account, run }]), ofSteps],
    ["size of a history", () => loader.stepSizes([{ account, run }]), ofSteps],
  ];
  const asked: Asked[] = [];
  for (const [what, ask, ways] of asks) {
    put.length = 0;
    await ask();
    const [one] = put;
    if (!one || put.length > 1) throw new Error(`${what}: ${put.length} statements`);
    asked.push({ what, text: one.text, parameters: one.parameters, ways });
  }
  return asked;
}

/** Returns the reads that list unfinished messages with the statements that they run. */
async function listed(): Promise<Asked[]> {
  const put: { text: string; parameters: number }[] = [];
  const reads = createSqlReads(
    createConnection(async ({ text, values = [] }) => {
      put.push({ text, parameters: values.length });
      return { rows: [] };
    }),
  );
  const range = { account: "a", limit: 3 };
  const due = { account: "a", limit: 3, after: { dueAt: 0, id: "" }, before: { dueAt: 9, id: "~" } };
  const byDue = { messages_turn: ["account", "due_at"] };
  const asks: [string, () => Promise<unknown>, Asked["ways"]][] = [
    [
      "messages to a host",
      () => reads.messagesToHost("h", range),
      { messages_host: ["account", "host"], messages_leased: [] },
    ],
    ["messages with attempts", () => reads.attemptedMessages(range), { messages_attempted: ["account"] }],
    ["messages by due time", () => reads.messagesByDue({ ...due, descending: false }), byDue],
    ["messages by due time, latest first", () => reads.messagesByDue({ ...due, descending: true }), byDue],
    [
      "messages in waitlists",
      () => reads.heldMessages({ ...range, from: "key:", to: "key;" }),
      { messages_waitlist: ["account", "waitlist"] },
    ],
    ["messages in flight", () => reads.leasedMessages({ account: "a", scan: 10 }), { messages_leased: [] }],
    [
      "counts of waitlists",
      () => reads.countHeld({ ...range, from: "key:", to: "key;" }),
      { messages_waitlist: ["account", "waitlist"] },
    ],
    ["failed runs", () => reads.countFailedRuns(range), { runs_end: ["account", "failed"] }],
    ["paused schedules", () => reads.pausedSchedules(range), { schedules_paused: ["account"] }],
    ["paused limiters", () => reads.pausedLimiters(range), { limiters_paused: ["account", "paused"] }],
  ];
  const asked: Asked[] = [];
  for (const [what, ask, ways] of asks) {
    put.length = 0;
    await ask();
    asked.push(...put.map(({ text, parameters }) => ({ what, text, parameters, ways })));
  }
  return asked;
}

type PlanNode = {
  "Node Type"?: string;
  "Index Name"?: string;
  "Index Cond"?: string;
  "Relation Name"?: string;
  "Actual Loops"?: number;
};
/** `loops` is how often the lookup was executed, if the plan was executed. */
type Way = { index: string; condition: string; loops: number };

/** Returns the indexes and tables that a plan reads. */
function waysOf(plan: unknown): Way[] {
  if (typeof plan !== "object" || plan === null) return [];
  const {
    "Node Type": type = "",
    "Index Name": index,
    "Index Cond": condition = "",
    "Relation Name": relation,
    "Actual Loops": loops = 0,
  } = plan as PlanNode;
  const isRead = index !== undefined || (relation !== undefined && type === "Seq Scan");
  const own = isRead ? [{ index: index ?? `all of ${relation}`, condition, loops }] : [];
  return [
    ...own,
    ...Object.values(plan).flatMap((part) => (Array.isArray(part) ? part.flatMap(waysOf) : waysOf(part))),
  ];
}

async function planOf(writer: Client, { text, parameters }: Asked): Promise<unknown> {
  await runPlain(writer, `prepare explained as ${text}`);
  const nulls = Array.from({ length: parameters }, () => "null").join(", ");
  const [row] = await runPlain(writer, `explain (format json) execute explained (${nulls})`);
  await runPlain(writer, "deallocate explained");
  return row?.["QUERY PLAN"];
}

/**
 * Returns the statements that read through another index than the expected one, or with fewer columns, and
 * those that read nothing.
 */
async function strays(writer: Client, asked: readonly Asked[]): Promise<string[]> {
  const found: string[] = [];
  for (const one of asked) {
    const used = waysOf(await planOf(writer, one));
    if (used.length === 0) found.push(`${one.what}: nothing`);
    for (const { index, condition } of used) {
      const columns = one.ways[index];
      if (!columns?.every((column) => condition.includes(column)))
        found.push(`${one.what}: ${index} ${condition}`);
    }
  }
  return found;
}

/**
 * Fills each table with `rows` rows of `accounts` accounts. The waitlists hold many messages each, and the
 * runs a few.
 */
async function fill(writer: Client, rows: number, accounts: number): Promise<void> {
  const value = (column: string, type: ColumnType): string => {
    if (column === "account") return `'acc' || (i % ${accounts})`;
    if (column === "waitlist") return `'key:k' || (i % 50)`;
    if (column === "run") return `'run' || (i / 4)`;
    if (type === "text") return `'${column}' || lpad(i::text, 12, '0')`;
    return type === "bytea" ? `'x'::bytea` : "i";
  };
  for (const name of names) {
    const { name: table, columns } = tables[name as TableName];
    const values = Object.entries(columns).map(([column, type]) => value(column, type));
    const into = `${table} (${Object.keys(columns).join(", ")})`;
    await runPlain(
      writer,
      `insert into ${into} select ${values.join(", ")} from generate_series(1, ${rows}) as i ` +
        "on conflict do nothing",
    );
  }
}

test(
  "every statement finds its rows by the expected index, whatever the statistics of the tables",
  { tags: "long" },
  async () => {
    const url = await freshDatabase();
    closeAfterTest(await openNode(url, new TestClock()));
    const writer = await connect({ url }, { kind: "writer" });
    onTestFinished(() => writer.end());
    // The vacuum of the database itself may be at work in the same table.
    await runPlain(writer, "set lock_timeout = 0");
    const asked = [...byKeys(), ...inTurns(), ...(await loaded()), ...(await listed())];
    const lookAt = async (): Promise<void> => {
      await runPlain(writer, "vacuum");
      await runPlain(writer, "analyze");
    };
    // Like autovacuum, after the tables were emptied.
    await lookAt();
    expect(await strays(writer, asked)).toEqual([]);
    // The statistics do not include the rows that follow.
    await fill(writer, 30_000, 1);
    expect(await strays(writer, asked)).toEqual([]);
    await lookAt();
    expect(await strays(writer, asked)).toEqual([]);
    for (const name of names) await runPlain(writer, `truncate ${tables[name].name}`);
    await fill(writer, 30_000, 1_000);
    await lookAt();
    expect(await strays(writer, asked)).toEqual([]);
  },
);

test("a log entry is deleted by a lookup in the partition of its day alone", async () => {
  const url = await freshDatabase();
  closeAfterTest(await openNode(url, new TestClock()));
  const writer = await connect({ url }, { kind: "writer" });
  onTestFinished(() => writer.end());
  // Today and earlier days have no separate partitions.
  const today = Math.floor(Date.now() / day);
  const days = Array.from({ length: 10 }, (_, index) => (today + 5 + index) * day);
  await createPartitions(writer, days);
  const idAt = (time: number): string => `${String(time)}-000000001`;
  for (const at of days) {
    await runPlain(
      writer,
      "insert into log (account, id, message_id, time, states) " +
        `values ('acc', '${idAt(at + 1)}', 'msg', ${at + 1}, 'DELIVERED')`,
    );
  }
  const { dialect } = createConnection(async () => ({ rows: [] }));
  await runPlain(writer, `prepare explained as ${getStatements(dialect, "log").remove}`);
  const keys = `array['acc', 'acc'], array['${idAt((days[3] ?? 0) + 1)}', '${idAt((days[7] ?? 0) + 1)}']`;
  const [row] = await runPlain(writer, `explain (analyze, format json) execute explained (${keys})`);
  const lookups = waysOf(row?.["QUERY PLAN"]).reduce((sum, { loops }) => sum + loops, 0);
  expect(lookups).toBe(2);
  expect(await runPlain(writer, "select count(*)::int as count from log")).toEqual([{ count: 8 }]);
});

type Node = { client: Client; loader: Loader };

/**
 * Returns nodes in a transaction without a lock timeout. There are messages m1 and m4 of one run, and m2 and
 * m3 of another.
 */
async function nodesOverRuns(count: number): Promise<Node[]> {
  const url = await freshDatabase();
  closeAfterTest(await openNode(url, new TestClock()));
  const nodes: Node[] = [];
  while (nodes.length < count) {
    const client = await connect({ url }, { kind: "writer" });
    onTestFinished(() => client.end());
    nodes.push({ client, loader: getLoader(createConnection((query) => client.query(query))) });
  }
  const row = (id: string, run: string): string =>
    `('acc', '${id}', 'active', 0, 0, 'h', 'e', 0, 0, '${run}', '')`;
  const rows = [row("m1", "run1"), row("m4", "run1"), row("m2", "run2"), row("m3", "run2")].join(", ");
  const [first] = nodes;
  if (first)
    await runPlain(
      first.client,
      `insert into messages
          (account, id, state, attempts, lost_attempts, host, endpoint, size, reports_outcome, run, time_keys)
        values ${rows}`,
    );
  for (const { client } of nodes)
    await runPlain(client, "begin; set local lock_timeout = 0; set local deadlock_timeout = 100");
  return nodes;
}

const bothRuns = ["run1", "run2"].map((run) => ({ account: "acc", run, table: "messages" as const }));

test("messages of runs are locked in the order in which all transactions lock messages", async () => {
  const [ofRuns, byKey, holding] = await nodesOverRuns(3);
  if (!ofRuns || !byKey || !holding) throw new Error("no nodes");
  await runPlain(holding.client, "select 1 from messages where id = 'm4' for update");
  const first = ofRuns.loader.runRows(bothRuns);
  // It has locked the messages before m4, and waits for m4.
  await waitingFor(holding.client, 1);
  const second = byKey.loader.rows("messages", [
    ["acc", "m2"],
    ["acc", "m4"],
  ]);
  await waitingFor(holding.client, 2);
  await runPlain(holding.client, "rollback");
  expect((await first).messages.map(({ id }) => id)).toEqual(["m1", "m2", "m3", "m4"]);
  await runPlain(ofRuns.client, "rollback");
  expect((await second).length).toBe(2);
});

test("messages of runs that were locked when found are read as others have left them", async () => {
  const [ofRuns, holding] = await nodesOverRuns(2);
  if (!ofRuns || !holding) throw new Error("no nodes");
  await runPlain(holding.client, "update messages set state = 'cancelling', attempts = 7 where id = 'm2'");
  await runPlain(holding.client, "delete from messages where id = 'm4'");
  const found = ofRuns.loader.runRows(bothRuns);
  await waitingFor(holding.client, 1);
  await runPlain(holding.client, "commit");
  const { messages } = await found;
  expect(messages.map(({ id, attempts, state }) => [id, attempts, state])).toEqual([
    ["m1", 0, "active"],
    ["m2", 7, "cancelling"],
    ["m3", 0, "active"],
  ]);
});

/** Waits until exactly `count` connections wait for a lock. */
async function waitingFor(client: Client, count: number): Promise<void> {
  const waiting =
    "select count(*)::int as count from pg_stat_activity " +
    "where wait_event_type = 'Lock' and datname = current_database()";
  await expect.poll(async () => (await runPlain(client, waiting))[0]?.count).toBe(count);
}
