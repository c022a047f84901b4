import { expect, test } from "vitest";
import type { RunRowsNeed } from "../../../../src/engine/core/decision/command.ts";
import { getLoader } from "../../../../src/engine/store/sql/loader.ts";
import { runSqlBatch } from "../../../../src/engine/store/sql/transaction.ts";
import { openSqlite } from "../../../../src/engine/store/sqlite/database.ts";
import type { CommandCall } from "../../../../src/engine/store/store.ts";
import { ampleCapacity, bytes, makeEventWait } from "../../core/commandRunner.ts";
import { createSource, makeAccount, makeInput, TestClock } from "../storeFixture.ts";

const url = "https://app.example/order";
const features = { lazyFetch: true, initialBody: true, detect: true, captured: true };
const account = "acc";

const start = (runId: string): CommandCall => ({
  name: "publish",
  input: {
    account,
    inputs: [makeInput({ url, post: { kind: "start", runId, url, features, origin: "sdk", invoker: null } })],
  },
});
const wait = (runId: string, event: string, stepId: number): CommandCall => ({
  name: "wait",
  input: { account, runId, waiter: makeEventWait(event, stepId) },
});
const notify = (runId: string, event: string): CommandCall => ({
  name: "notify",
  input: { account, event, body: bytes("x"), runId, kind: "event" },
});

test("SQLite reads the same rows of a run at once and in a round", async () => {
  const database = openSqlite(":memory:");
  await database.createTables();
  const momentSource = createSource(new TestClock(), "nod_a");
  const run = (...calls: CommandCall[]) => runSqlBatch({ database, momentSource }, calls, ampleCapacity);
  await run({ name: "createAccount", input: makeAccount(account) });
  for (const runId of ["wfr_1", "wfr_2"])
    await run(
      start(runId),
      wait(runId, "paid", 1),
      wait(runId, "sent", 2),
      notify(runId, "early"),
      notify(runId, "other"),
    );
  const { runRows, now } = getLoader(database.connection);
  const [{ run: key } = { run: "" }] = await database.connection.query(
    "select run from active_runs where run_id = 'wfr_1'",
    [],
  );
  const need = (table: RunRowsNeed["table"], event?: string): RunRowsNeed => ({
    account,
    run: String(key),
    table,
    ...(event !== undefined && { event }),
  });
  for (const [one, count] of [
    [need("messages"), 1],
    [need("waiters"), 2],
    [need("waiters", "paid"), 1],
    [need("notifications"), 2],
    [need("notifications", "early"), 1],
    [need("steps"), 1],
  ] as const) {
    const found = now?.runRows(one);
    expect(found).toEqual(await runRows([one]));
    expect(found?.[one.table].map((row) => row.run)).toEqual(Array.from({ length: count }, () => key));
  }
});
