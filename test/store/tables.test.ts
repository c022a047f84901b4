import { describe, expect, test } from "vitest";
import type { Rows, TableName } from "../../src/core/command.ts";
import { tableNames } from "../../src/store/store.ts";
import { tables } from "../../src/store/tables.ts";
import { accountNamed, bytes, callbackTo, letterTo } from "./world.ts";

const { delay: _, ...letter } = letterTo({ callback: callbackTo("https://two.example/"), labels: ["l"], retryDelay: "1000" });

/** One row of each table with something in every field. */
const full: { [T in TableName]: Rows[T] } = {
  accounts: { ...accountNamed("acc"), createdAt: 5 },
  envelopes: {
    ...{
      ...letter,
      account: "acc",
      id: "msg_1",
      createdAt: 1,
      notBefore: 2,
      retries: 3,
      timeout: 4,
      startedAtOnce: true,
      deduplication: "d",
    },
    ...{ redaction: { body: true, headers: ["X-A"] }, tells: { kind: "callback", messageId: "msg_0", dlqId: null } },
  },
  messages: {
    ...{
      account: "acc",
      id: "msg_1",
      state: "active",
      dueAt: 2 ** 45,
      attempts: 3,
      lost: 1,
      leasedBy: "nod_a",
      host: "one.example",
      size: 5,
      tells: true,
    },
  },
  deduplications: { account: "acc", key: "d", messageId: "msg_1", expiresAt: 2 ** 45 },
  deadLetters: {
    ...{ account: "acc", id: "1-1", messageId: "msg_1", status: 500, headers: [["A", "b"]], body: bytes("b"), error: "e", retried: 2 },
    failureCallback: { state: "CALLBACK_FAIL", responseStatus: 1, responseBody: "x", responseHeaders: [] },
  },
  lines: { account: "acc", host: "one.example", dueAt: 2 ** 45 },
  log: {
    ...{ account: "acc", id: "1-1", messageId: "msg_1", time: 2 ** 45, states: ["ERROR", "RETRY"], error: "e", nextDueAt: 7, status: 500 },
    ...{ headers: [["A", "b"]], body: bytes("b"), dlqId: "1-2" },
  },
};

describe.each(tableNames)("a row of %s", (name) => {
  check(name);
});

function check<T extends TableName>(name: T): void {
  const table = tables[name];
  const row = full[name];

  test("is written in the order of the columns, and the key comes first", () => {
    expect(Object.keys(table.write(row))).toEqual(Object.keys(table.columns));
    expect(Object.keys(table.columns).slice(0, table.key.length)).toEqual(table.key);
  });

  test("is read as it was written", () => {
    expect(table.read(table.write(row))).toEqual(row);
  });
}
