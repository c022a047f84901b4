import { beforeEach, expect, test } from "vitest";
import { CommandRunner, makeOutcome } from "../commandRunner.ts";
import { makeDeletion } from "../../../makeDeletion.ts";

let broker: CommandRunner;
beforeEach(async () => {
  broker = await CommandRunner.open();
});

const limits = (change: object) =>
  broker.run("changeAccount", { account: "acme", change: { limits: change } });
const none = { log: null, keptLog: null, deadLetters: null, audit: null };
const trim = (tooMany: object, limit = 100) =>
  broker.run("trim", { account: "acme", tooMany: { ...none, ...tooMany }, limit });
const dropped = () => broker.memory.tables.accounts.get("acme")?.dropped;
const idsIn = (table: "log" | "deadLetters" | "audit"): string[] =>
  [...broker.memory.tables[table].values()].map(({ id }) => id).toSorted();

async function deliver(count: number): Promise<void> {
  for (let n = 0; n < count; n++) {
    broker.now += 1;
    await broker.settle(await broker.publish(), { status: 200 });
  }
}

test("the log is trimmed up to the newest entry over the limit, and the account counts it", async () => {
  await deliver(4);
  await limits({ logEntries: 2 });
  const ids = idsIn("log");
  expect(await trim({ log: { id: ids[1], limit: 2 } })).toEqual({ removed: 2, more: false });
  expect(idsIn("log")).toEqual(ids.slice(2));
  expect(dropped()).toEqual({ log: 2, deadLetters: 0 });
  expect(await trim({ log: { id: ids[2], limit: 2 } })).toEqual({ removed: 1, more: false });
  expect(dropped()).toEqual({ log: 3, deadLetters: 0 });
});

async function fail(count: number): Promise<void> {
  for (let n = 0; n < count; n++) {
    broker.now += 1;
    await broker.settle(await broker.publish({ retries: 0 }));
  }
}

test("dead letters are trimmed up to the newest one over the limit", async () => {
  await fail(3);
  await limits({ deadLetters: 1 });
  const ids = idsIn("deadLetters");
  expect(await trim({ deadLetters: { id: ids[1], limit: 1 } })).toMatchObject({ more: false });
  expect(idsIn("deadLetters")).toEqual(ids.slice(2));
  expect(dropped()).toEqual({ log: 0, deadLetters: 2 });
});

test("a dead letter stays if others were removed since it was found over the limit", async () => {
  await fail(5);
  await limits({ deadLetters: 3 });
  const ids = idsIn("deadLetters");
  const named = { account: "acme", logRetention: 1e9 };
  await broker.run("retryDeadLetters", { ...named, dlqIds: [ids[4] ?? ""], overrides: {} });
  // When the trimmer looked, two were over the limit. Now one is.
  const tooMany = { deadLetters: { id: ids[1], limit: 3 } };
  expect(await trim(tooMany)).toEqual({ removed: 1, more: false });
  expect(idsIn("deadLetters")).toEqual(ids.slice(1, 4));
  expect(await trim(tooMany)).toEqual({ removed: 0, more: false });
  expect(dropped()).toEqual({ log: 0, deadLetters: 1 });
});

test("a dead letter stays if another is removed in the same batch, and goes if one is added", async () => {
  await fail(3);
  await limits({ deadLetters: 2 });
  const ids = idsIn("deadLetters");
  const trimming = {
    name: "trim" as const,
    input: { account: "acme", tooMany: { ...none, deadLetters: { id: ids[0] ?? "", limit: 2 } }, limit: 10 },
  };
  const deletion = { account: "acme", dlqIds: [ids[2] ?? ""], logRetention: 1e9 };
  await broker.runAll([{ name: "bulk", input: makeDeletion(deletion) }, trimming]);
  expect(idsIn("deadLetters")).toEqual(ids.slice(0, 2));
  broker.now += 1;
  const messageId = await broker.publish({ retries: 0 });
  const outcome = makeOutcome({ messageId, attempt: 0, host: "shop.example" });
  await broker.runAll([{ name: "settle", input: outcome }, trimming]);
  expect(idsIn("deadLetters").slice(0, -1)).toEqual(ids.slice(1, 2));
  expect(idsIn("deadLetters")).toHaveLength(2);
});

test("the audit log is trimmed up to the newest entry over the limit, and is not counted", async () => {
  const by = { kind: "account", ip: null } as never;
  for (const queues of [1, 2, 3]) {
    broker.now += 1;
    await broker.run("changeAccount", { account: "acme", change: { limits: { queues } }, by });
  }
  await limits({ auditEntries: 1 });
  const ids = idsIn("audit");
  expect(await trim({ audit: { id: ids[1], limit: 1 } })).toEqual({ removed: 2, more: false });
  expect(idsIn("audit")).toEqual(ids.slice(2));
  expect(dropped()).toBeUndefined();
});

test("nothing is trimmed if the account may have more by now, or if no entry is over the limit", async () => {
  await deliver(2);
  const [id] = idsIn("log");
  await limits({ logEntries: 2 });
  expect(await trim({ log: { id, limit: 1 } })).toEqual({ removed: 0, more: false });
  expect(await trim({})).toEqual({ removed: 0, more: false });
  expect(idsIn("log")).toHaveLength(2);
});

test("at most the limit is removed at once", async () => {
  await deliver(4);
  await limits({ logEntries: 1 });
  const ids = idsIn("log");
  expect(await trim({ log: { id: ids[2], limit: 1 } }, 2)).toEqual({ removed: 2, more: true });
  expect(idsIn("log")).toEqual(ids.slice(2));
});
