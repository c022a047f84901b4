import { expect, test } from "vitest";
import { noCapacity } from "../../../../src/engine/core/admission/capacity.ts";
import type { DatabaseConnection, Database } from "../../../../src/engine/store/sql/database.ts";
import { RecentHistories } from "../../../../src/engine/store/histories/recentHistories.ts";
import { RecentTimeIndex } from "../../../../src/engine/store/batch/recentTimeIndex.ts";
import { runSqlBatch } from "../../../../src/engine/store/sql/transaction.ts";
import { makeAccount, createSource, TestClock } from "../storeFixture.ts";

/** Returns a database whose writing statements complete when the test decides. */
function slowDatabase(answerTo: (sql: string) => Promise<void>) {
  let open = 0;
  let openAtEnd: number | null = null;
  const connection: DatabaseConnection = {
    dialect: {
      givenRows: () => ({ values: "values", from: "", also: "", using: "", column: () => "?" }),
      lock: () => "",
      isRow: () => "",
      useIndex: () => "",
    },
    query: async () => [],
    each: async (sql) => {
      if (sql.startsWith("select")) return [];
      open++;
      await answerTo(sql).finally(() => open--);
      return [];
    },
  };
  const database: Database = {
    transaction: async (run) =>
      await run(connection, Promise.resolve(null)).finally(() => (openAtEnd = open)),
    isConflict: () => false,
    recentTimeIndex: new RecentTimeIndex(),
    recentHistories: new RecentHistories(),
  };
  return { database, connection, openAtEnd: () => openAtEnd };
}

const later = (turns: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, turns * 5));

/** Creates an account with its entry in the audit log. */
const create = (database: Database) => {
  const by = { kind: "commandLine", address: null } as const;
  const calls = [{ name: "createAccount", input: { ...makeAccount("acc"), by } }] as const;
  return runSqlBatch({ database, momentSource: createSource(new TestClock(), "nod_a") }, calls, noCapacity);
};

test("a transaction ends after all its statements have completed, even if one fails", async () => {
  const { database, openAtEnd } = slowDatabase(async (sql) => {
    if (sql.includes("into accounts")) throw new Error("the first");
    await later(2);
  });
  await expect(create(database)).rejects.toThrow("the first");
  expect(openAtEnd()).toBe(0);
});

test("the first of several errors is thrown, regardless of its table", async () => {
  const first = Promise.withResolvers<void>();
  const { database } = slowDatabase(async (sql) => {
    await (sql.includes("into accounts") ? first.promise.then(() => later(1)) : later(1));
    first.resolve();
    throw new Error(sql.includes("into accounts") ? "refused because of that" : "the first");
  });
  await expect(create(database)).rejects.toThrow("the first");
});

test("a transaction whose beginning fails ends after its first statements have completed", async () => {
  let asked = 0;
  let open = 0;
  let openAtEnd = -1;
  const { connection } = slowDatabase(async () => undefined);
  const slow: DatabaseConnection = {
    ...connection,
    each: async () => {
      asked = asked + 1;
      open = open + 1;
      await later(2);
      open--;
      return [];
    },
  };
  const database: Database = {
    transaction: async (run) =>
      run(slow, Promise.reject(new Error("not begun"))).finally(() => (openAtEnd = open)),
    isConflict: () => false,
    recentTimeIndex: new RecentTimeIndex(),
    recentHistories: new RecentHistories(),
  };
  const momentSource = createSource(new TestClock(), "nod_a");
  const input = { account: "acc", runId: "r", body: new Uint8Array() };
  const running = runSqlBatch({ database, momentSource }, [{ name: "finishRun", input }], noCapacity);
  await expect(running).rejects.toThrow("not begun");
  expect([asked > 0, openAtEnd]).toEqual([true, 0]);
});
