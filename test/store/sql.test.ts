import { expect, test } from "vitest";
import { noHands } from "../../src/core/hands.ts";
import type { Connection, Database } from "../../src/store/database.ts";
import { runSqlBatch } from "../../src/store/sql.ts";
import { accountNamed, sourceOf, TestClock } from "./world.ts";

/** A database whose statements that write answer when they are told to, each by itself. */
function slowDatabase(answerTo: (sql: string) => Promise<void>) {
  let open = 0;
  let openAtEnd: number | null = null;
  const connection: Connection = {
    dialect: {
      given: () => ({ values: "values", from: "", also: "", using: "", column: () => "?" }),
      ...{ lock: () => "", lockInOrder: () => "", by: () => "" },
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
    transaction: async (run) => await run(connection, Promise.resolve(null)).finally(() => (openAtEnd = open)),
    isConflict: () => false,
  };
  return { database, openAtEnd: () => openAtEnd };
}

const later = (turns: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, turns * 5));

/** Makes an account, with its entry in the audit log. */
const create = (database: Database) => {
  const by = { kind: "commandLine", address: null } as const;
  const calls = [{ name: "createAccount", input: { ...accountNamed("acc"), by } }] as const;
  return runSqlBatch(database, sourceOf(new TestClock(), "nod_a"), calls, noHands);
};

test("a transaction ends when all that belongs to it was answered, also where something has failed", async () => {
  const { database, openAtEnd } = slowDatabase(async (sql) => {
    if (sql.includes("into accounts")) throw new Error("the first");
    await later(2);
  });
  await expect(create(database)).rejects.toThrow("the first");
  expect(openAtEnd()).toBe(0);
});

test("of what fails together the first tells why, whichever table it is of", async () => {
  const { database } = slowDatabase(async (sql) => {
    await later(sql.includes("into accounts") ? 2 : 1);
    throw new Error(sql.includes("into accounts") ? "refused because of that" : "the first");
  });
  await expect(create(database)).rejects.toThrow("the first");
});
