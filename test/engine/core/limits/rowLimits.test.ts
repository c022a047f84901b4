import { expect, test } from "vitest";
import type { Draft } from "../../../../src/engine/core/decision/command.ts";
import type { Account } from "../../../../src/engine/core/model/account.ts";
import { formatGate, keyGate, queueGate } from "../../../../src/engine/core/admission/gate.ts";
import {
  toCountName,
  findQuotaRefusal,
  readCountedRows,
  takeQuota,
  takeQueueQuota,
} from "../../../../src/engine/core/limits/rowLimits.ts";

const account = { id: "acme", limits: { queues: 5, tokens: 3 } } as unknown as Account;
/** Returns a draft of an account with this number of rows of every kind, and the queue `old`. */
const draftWith = (count: number, owner: Account | undefined = account): Draft =>
  ({
    readQuotaCount: () => count,
    get: (table: string, ...key: string[]) =>
      table === "accounts" ? owner : key[1] === formatGate(queueGate("old")) ? {} : undefined,
  }) as unknown as Draft;

test("rows are counted by the name of their table, except those of URL groups and queues", () => {
  for (const table of ["urlGroups", "schedules", "sources", "tokens"] as const) {
    const name = table === "urlGroups" ? "groups" : table;
    expect(toCountName(table, "x")).toBe(name);
    expect(readCountedRows(name)).toEqual({ table, range: ["", "\uffff"] });
  }
  expect([
    toCountName("limiters", formatGate(queueGate("q"))),
    toCountName("limiters", formatGate(keyGate("k"))),
    toCountName("messages", "msg_1"),
  ]).toEqual(["queues", null, "messages"]);
  expect(readCountedRows("queues")).toEqual({ table: "limiters", range: ["queue:", "queue;"] });
});

test("an account may have as many rows as its limit says", () => {
  expect(findQuotaRefusal(draftWith(2), account, { name: "tokens" })).toBeNull();
  const refusal = findQuotaRefusal(draftWith(3), account, { name: "tokens" });
  expect(refusal).toMatchObject({
    refused: "limit-exceeded",
    message: "tokens: there are 3, and the limit is 3; delete some that are not needed",
    remedy: { remedy: "raise-limit", account: "acme", plan: "selfHosted", limit: "tokens", isLast: true },
  });
  expect(() => takeQuota(draftWith(3), account, { name: "tokens" })).toThrow(refusal?.message);
  expect(() => takeQuota(draftWith(2), account, { name: "tokens" })).not.toThrow();
});

test("the server limits the queues of an account as well", () => {
  expect(findQuotaRefusal(draftWith(4), account, { name: "queues", maxQueues: 4 })).toMatchObject({
    message: expect.stringContaining("the limit is 4"),
    remedy: { remedy: "raise-server-queues" },
  });
  expect(findQuotaRefusal(draftWith(4), account, { name: "queues", maxQueues: 9 })).toBeNull();
  for (const maxQueues of [5, 9])
    expect(findQuotaRefusal(draftWith(5), account, { name: "queues", maxQueues })).toMatchObject({
      message: expect.stringContaining("the limit is 5"),
      remedy: { remedy: "raise-limit", limit: "queues" },
    });
  expect(findQuotaRefusal(draftWith(3), account, { name: "tokens", maxQueues: 1 })?.message).toContain(
    "the limit is 3",
  );
});

test("an existing queue is not counted again", () => {
  expect(() => takeQueueQuota(draftWith(5), account, { name: "old" })).not.toThrow();
  expect(() => takeQueueQuota(draftWith(5), account, { name: "new" })).toThrow("queues: there are 5");
});

test("rows are counted up to the limit", () => {
  const needs: unknown[] = [];
  const draft = {
    ...draftWith(0),
    readQuotaCount: (need: unknown) => {
      needs.push(need);
      return 0;
    },
  } as unknown as Draft;
  takeQuota(draft, account, { name: "tokens" });
  takeQueueQuota(draft, account, { name: "new", maxQueues: 2 });
  expect(needs).toEqual([
    { account: "acme", name: "tokens", limit: 3 },
    { account: "acme", name: "queues", limit: 2 },
  ]);
});
