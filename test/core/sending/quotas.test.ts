import { expect, test } from "vitest";
import type { Draft } from "../../../src/core/decision/command.ts";
import type { Account } from "../../../src/core/model/message.ts";
import { formatGate, keyGate, queueGate } from "../../../src/core/admission/gate.ts";
import { needsOfPlace, needsOfQueues, placeOf, placeRefusal, placesOf, takePlace, takeQueue } from "../../../src/core/sending/quotas.ts";

const account = { id: "acme", limits: { queues: 5, tokens: 3 } } as unknown as Account;
/** A draft of an account with this many of everything, and the queue `old`. */
const draftWith = (count: number, owner: Account | undefined = account): Draft =>
  ({
    countOf: () => count,
    get: (table: string, ...key: string[]) => (table === "accounts" ? owner : key[1] === formatGate(queueGate("old")) ? {} : undefined),
  }) as unknown as Draft;

test("rows of groups, schedules, sources, tokens and queues are counted", () => {
  for (const table of ["groups", "schedules", "sources", "tokens"] as const) {
    expect(placeOf(table, "x")).toBe(table);
    expect(placesOf(table)).toEqual({ table, within: ["", "\uffff"] });
  }
  expect([placeOf("flows", formatGate(queueGate("q"))), placeOf("flows", formatGate(keyGate("k"))), placeOf("messages", "msg_1")]).toEqual(["queues", null, null]);
  expect(placesOf("queues")).toEqual({ table: "flows", within: ["queue:", "queue;"] });
});

test("an account has as many as its limit says", () => {
  expect(placeRefusal(draftWith(2), account, { name: "tokens" })).toBeNull();
  const refusal = placeRefusal(draftWith(3), account, { name: "tokens" });
  expect(refusal).toMatchObject({
    refused: "limit-exceeded",
    message: expect.stringMatching(
      /^tokens: there are 3, and the limit is 3; delete some that are not needed; it is the limit of this account/,
    ),
  });
  expect(() => takePlace(draftWith(3), account, { name: "tokens" })).toThrow(refusal?.message);
  expect(() => takePlace(draftWith(2), account, { name: "tokens" })).not.toThrow();
});

test("of queues it has no more than the server allows either", () => {
  const house = "or start the server with a higher WAYPOST_MAX_QUEUES";
  expect(placeRefusal(draftWith(4), account, { name: "queues", mostQueues: 4 })?.message).toContain(
    `the limit is 4; delete some that are not needed, ${house}`,
  );
  expect(placeRefusal(draftWith(4), account, { name: "queues", mostQueues: 9 })).toBeNull();
  for (const mostQueues of [5, 9])
    expect(placeRefusal(draftWith(5), account, { name: "queues", mostQueues })?.message).toMatch(
      /the limit is 5; .* limit of this account/,
    );
  expect(placeRefusal(draftWith(3), account, { name: "tokens", mostQueues: 1 })?.message).toContain("the limit is 3");
});

test("a queue that is there takes no place", () => {
  expect(() => takeQueue(draftWith(5), account, { name: "old" })).not.toThrow();
  expect(() => takeQueue(draftWith(5), account, { name: "new" })).toThrow("queues: there are 5");
});

test("what must be counted is counted up to the limit, once the account is there", () => {
  expect(needsOfPlace(draftWith(0), "acme", { name: "tokens" })).toEqual({ counts: [{ account: "acme", name: "tokens", most: 3 }] });
  expect(needsOfPlace({ get: () => undefined } as unknown as Draft, "acme", { name: "tokens" })).toEqual({});
  const counts = [{ account: "acme", name: "queues", most: 2 }];
  expect(needsOfQueues(draftWith(0), "acme", [{ queue: "old" }, { queue: "new" }], { mostQueues: 2 })).toEqual({ counts });
  expect(needsOfQueues(draftWith(0), "acme", [{ queue: null }, { queue: "old" }], { mostQueues: 2 })).toEqual({});
});
