import type { Client } from "pg";
import { expect, onTestFinished, test } from "vitest";
import { firstIdAt } from "../../../../src/engine/core/values/ids.ts";
import { day } from "../../../../src/engine/core/values/time.ts";
import { createConnection, runPlain } from "../../../../src/engine/store/postgres/connection.ts";
import { createPartitions } from "../../../../src/engine/store/postgres/partitions.ts";
import { connect } from "../../../../src/engine/store/postgres/connect.ts";
import type { Range, StorageReads } from "../../../../src/engine/store/layout/storageReads.ts";
import { createSqlReads } from "../../../../src/engine/store/sql/reads.ts";
import { freshDatabase } from "../../../postgres.ts";
import { openNode } from "./postgresDatabase.ts";
import { closeAfterTest, TestClock } from "../storeFixture.ts";

// How PostgreSQL executes the reads of lists on a connection for reading.

/** The number of rows of each table. */
const count = 20_000;

/** Fills the tables that lists read with rows of two accounts, one for each second from `start` on. */
async function fill(client: Client, start: number): Promise<void> {
  const account = "case when i % 2 = 0 then 'acc' else 'other' end";
  const id = (prefix: string): string => `'${prefix}' || lpad(i::text, 12, '0')`;
  const from = `from generate_series(1, ${count}) as i`;
  const statements = [
    `insert into messages (account, id, state, due_at, attempts, lost_attempts, host, endpoint, size,
        reports_outcome, time_keys)
      select ${account}, ${id("msg_")}, 'pending', i, i % 7, 0, 'h', 'e', 0, 0, '' ${from}`,
    `insert into stored_messages (account, id, detail) select ${account}, ${id("msg_")}, '{}' ${from}`,
    `insert into dead_letters (account, id, message_id, detail)
      select ${account}, ${id("")}, ${id("msg_")}, '{}' ${from}`,
    `insert into runs (account, id, failed, detail) select ${account}, ${id("run_")}, 0, '{}' ${from}`,
    `insert into tags (account, id) select ${account}, ${id("dlq label:a ")} ${from}`,
    `insert into time_index (account, id) select ${account}, ${id("020000 path:a ")} ${from}`,
    `insert into log (account, id, message_id, time, states)
      select ${account}, (${start} + i * 1000)::text || '-000000001', ${id("msg_")}, 0, 'ERROR' ${from}`,
  ];
  for (const statement of statements) await runPlain(client, statement);
}

type Plan = {
  "Node Type": string;
  "Index Name"?: string;
  "Actual Rows": number;
  "Actual Loops": number;
  Plans?: Plan[];
};

const listNodes = (plan: Plan): Plan[] => [plan, ...(plan.Plans ?? []).flatMap(listNodes)];

/** Returns the plans of the statements of a read, after their execution. */
async function explain(client: Client, read: (reads: StorageReads) => Promise<unknown>): Promise<Plan[]> {
  const plans: Plan[] = [];
  const connection = createConnection(async ({ text, values = [] }) => {
    // The plan must not depend on the values, so the statement is prepared as a reader prepares it.
    const types = values.map((value) => (typeof value === "number" ? "bigint" : "text")).join(", ");
    const given = values.map((value) => (typeof value === "number" ? String(value) : `'${String(value)}'`));
    await runPlain(client, `prepare explained (${types}) as ${text}`);
    const [row] = await runPlain(
      client,
      `explain (analyze, format json) execute explained (${given.join(", ")})`,
    );
    await runPlain(client, "deallocate explained");
    const explained = row?.["QUERY PLAN"] as unknown as { Plan: Plan }[] | undefined;
    plans.push(...(explained ?? []).map((one) => one.Plan));
    return { rows: [] };
  });
  await read(createSqlReads(connection));
  return plans;
}

test("a page of a list reads only its rows, in order, whatever the statistics of the tables", async () => {
  const url = await freshDatabase();
  closeAfterTest(await openNode(url, new TestClock()));
  const client = await connect({ url }, { kind: "reader" });
  onTestFinished(() => client.end());
  const start = Math.floor(Date.now() / day) * day + 5 * day;
  await createPartitions(client, [start, start + day]);
  const at = (n: number, prefix = ""): string => `${prefix}${String(n).padStart(12, "0")}`;
  const between = (prefix: string): Pick<Range, "after" | "before"> => ({
    after: at(100, prefix),
    before: at(19_900, prefix),
  });
  const limit = 50;
  const account = "acc";
  const ranges = [
    ["messages", between("msg_")],
    ["storedMessages", between("msg_")],
    ["deadLetters", between("")],
    ["runs", between("run_")],
    ["tags", between("dlq label:a ")],
    ["timeIndex", between("020000 path:a ")],
    ["log", { after: firstIdAt("log", start), before: firstIdAt("log", start + 2 * day) }],
  ] as const;
  const byDue = { account, after: { dueAt: 0, id: "" }, before: { dueAt: 1e12, id: "~" }, limit };
  const reads: [string, (reads: StorageReads) => Promise<unknown>][] = [];
  for (const descending of [false, true]) {
    const page = { account, descending, limit };
    for (const [table, range] of ranges) {
      reads.push([`${table} ${descending}`, (one) => one.range(table, { ...page, ...range })]);
      reads.push([`all of ${table} ${descending}`, (one) => one.range(table, page)]);
    }
    reads.push([`attempted ${descending}`, (one) => one.attemptedMessages(page)]);
    reads.push([`due ${descending}`, (one) => one.messagesByDue({ ...byDue, descending })]);
  }
  const expectFewRows = async (situation: string): Promise<void> => {
    for (const [what, read] of reads) {
      const nodes = (await explain(client, read)).flatMap(listNodes);
      const types = nodes.map((node) => node["Node Type"]);
      expect([situation, what, types.filter((type) => /Sort|Seq Scan|Bitmap/.test(type))]).toEqual([
        situation,
        what,
        [],
      ]);
      const rows = nodes
        .filter((node) => node["Node Type"].includes("Index"))
        .reduce((sum, node) => sum + node["Actual Rows"] * node["Actual Loops"], 0);
      expect([situation, what, rows]).toEqual([situation, what, limit]);
    }
  };
  await runPlain(client, "analyze");
  await fill(client, start);
  await expectFewRows("the statistics say that the tables are empty");
  await runPlain(client, "analyze");
  await expectFewRows("the statistics are right");
});
