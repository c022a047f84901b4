import { expect, test } from "vitest";
import type { DatabaseConnection } from "../../../../src/engine/store/sql/database.ts";
import { createGroupCommitStore } from "../../../../src/engine/store/batch/groupCommit.ts";
import { runSqlBatch } from "../../../../src/engine/store/sql/transaction.ts";
import { openSqlite } from "../../../../src/engine/store/sqlite/database.ts";
import { StorageRefused } from "../../../../src/engine/store/layout/storageErrors.ts";
import type { CommandCall } from "../../../../src/engine/store/store.ts";
import { ampleCapacity } from "../../core/commandRunner.ts";
import { createSource, makeAccount, makeInput, TestClock } from "../storeFixture.ts";

// A decision reads rows at once from SQLite. If such a read fails, the whole batch fails: part of it may have
// been rolled back, and nothing that the decision concludes is true.

const publish: CommandCall = { name: "publish", input: { account: "acc", inputs: [makeInput()] } };
const url = "https://app.example/order";
const features = { lazyFetch: true, initialBody: true, detect: true, captured: true };
const start = makeInput({
  url,
  delay: 3_600_000,
  post: { kind: "start", runId: "wfr_1", url, features, origin: "sdk", invoker: null },
});
const finish: CommandCall = {
  name: "finishRun",
  input: { account: "acc", runId: "wfr_1", body: new Uint8Array() },
};
const claim: CommandCall = { name: "claim", input: { limit: 10 } };

/**
 * Opens a database with a due message. After `fail`, the next read of a stored message or of the
 * notifications of a run first calls the given function, and then throws the given error.
 */
async function openFailing() {
  const clock = new TestClock();
  const database = openSqlite(":memory:");
  await database.createTables();
  const connection = database.connection as DatabaseConnection & Required<Pick<DatabaseConnection, "now">>;
  const momentSource = createSource(clock, "nod_a");
  const runBatch = (calls: readonly CommandCall[]) =>
    runSqlBatch({ database, momentSource }, calls, ampleCapacity);
  await runBatch([{ name: "createAccount", input: makeAccount("acc") }]);
  await runBatch([{ name: "publish", input: { account: "acc", inputs: [makeInput({ delay: 1_000 })] } }]);
  clock.now += 1_000;
  const read = connection.now.bind(connection);
  let failure: { before: () => void; error: Error } | null = null;
  connection.now = (sql, values) => {
    if (failure === null || !/from (stored_messages|notifications)/.test(sql)) return read(sql, values);
    const { before, error } = failure;
    failure = null;
    before();
    throw error;
  };
  return {
    runBatch,
    fail: (error: Error, before = () => undefined) => (failure = { error, before }),
    rollBack: () => void connection.each("rollback", [], [[]]),
    countRuns: async () =>
      Number((await connection.query("select count(*) as n from active_runs", []))[0]?.n),
    count: async () => Number((await connection.query("select count(*) as n from messages", []))[0]?.n),
  };
}

const diskError = (): Error => Object.assign(new Error("disk I/O error"), { errcode: 10 });

test.each([
  ["a disk error", diskError(), "the disk failed to store data"],
  ["a row that cannot be read", new StorageRefused("stored_messages: damaged"), "stored_messages: damaged"],
] as const)("a batch fails as a whole after %s", async (_, error, text) => {
  const { runBatch, fail, count } = await openFailing();
  fail(error);
  await expect(runBatch([publish, claim, publish])).rejects.toThrow(text);
  expect(await count()).toBe(1);
});

test("a batch fails as a whole if the rows of a run cannot be read", async () => {
  const { runBatch, fail, count, countRuns } = await openFailing();
  await runBatch([{ name: "publish", input: { account: "acc", inputs: [start] } }]);
  const before = await count();
  fail(diskError());
  await expect(runBatch([publish, finish, publish])).rejects.toThrow("the disk failed to store data");
  expect([await count(), await countRuns()]).toEqual([before, 1]);
  await runBatch([publish, finish, publish]);
  expect([await count(), await countRuns()]).toEqual([before + 1, 0]);
});

test("nothing is stored if SQLite has rolled back by itself", async () => {
  const { runBatch, fail, rollBack, count } = await openFailing();
  fail(diskError(), rollBack);
  await expect(runBatch([publish, claim, publish])).rejects.toThrow("the disk failed to store data");
  expect(await count()).toBe(1);
});

test("each publish of a failed batch is stored once", async () => {
  const { runBatch, fail, count } = await openFailing();
  const store = createGroupCommitStore({
    runBatch,
    read: {} as never,
    nextDueAt: async () => null,
    close: async () => undefined,
  });
  fail(new StorageRefused("stored_messages: damaged"));
  const published = [publish, claim, publish].map(({ name, input }) => store.execute(name, input as never));
  const [first, , last] = await Promise.allSettled(published);
  expect([first?.status, last?.status]).toEqual(["fulfilled", "fulfilled"]);
  expect(await count()).toBe(3);
});
