import { expect, test } from "vitest";
import { commands, hasCaller } from "../../../../src/engine/store/catalog/commands.ts";
import type { CommandName, CommandInput } from "../../../../src/engine/store/catalog/commands.ts";
import { formatGate, keyGate, queueGate } from "../../../../src/engine/core/admission/gate.ts";
import { makeDeletion } from "../../../makeDeletion.ts";
import { CommandRunner, makeInput } from "../commandRunner.ts";

const by = { kind: "account", ip: null } as never;
const url = "https://shop.example/";

/** Runs a command for a caller, and returns its entries in the audit log. */
async function entriesOf<N extends CommandName>(
  broker: CommandRunner,
  name: N,
  input: Omit<CommandInput<N>, "account">,
): Promise<unknown[]> {
  const before = broker.memory.tables.audit.size;
  await broker.run(name, { account: "acme", by, ...input } as unknown as CommandInput<N>);
  const entries: unknown[] = [];
  for (const { account: _account, id: _id, time: _time, by: _by, ...note } of [
    ...broker.memory.tables.audit.values(),
  ].slice(before))
    entries.push(note);
  return entries;
}

test("changes of groups, queues and keys are audited", async () => {
  const broker = await CommandRunner.open();
  const endpoints = [
    { name: null, url },
    { name: null, url: `${url}2` },
  ] as never;
  const group = { name: "g" };
  const queue = { name: "q" };
  const key = { key: "k" };
  expect(await entriesOf(broker, "addEndpoints", { ...group, endpoints })).toEqual([
    { what: "group.addEndpoints", object: "g", count: 2 },
  ]);
  expect(await entriesOf(broker, "removeEndpoints", { ...group, endpoints: [{ name: null, url }] })).toEqual([
    { what: "group.removeEndpoints", object: "g", count: 1 },
  ]);
  expect(await entriesOf(broker, "removeEndpoints", { ...group, endpoints: [{ name: null, url }] })).toEqual(
    [],
  );
  expect(await entriesOf(broker, "deleteGroup", group)).toEqual([{ what: "group.delete", object: "g" }]);
  expect(await entriesOf(broker, "upsertQueue", { ...queue, parallelism: 2 })).toEqual([
    { what: "queue.set", object: "q" },
  ]);
  expect(await entriesOf(broker, "pauseLimiter", { id: formatGate(queueGate("q")) })).toEqual([
    { what: "queue.pause", object: "q" },
  ]);
  expect(await entriesOf(broker, "resumeLimiter", { id: formatGate(queueGate("q")) })).toEqual([
    { what: "queue.resume", object: "q" },
  ]);
  expect(await entriesOf(broker, "pauseLimiter", { id: formatGate(keyGate("k")) })).toEqual([
    { what: "flowControl.pause", object: "k" },
  ]);
  expect(await entriesOf(broker, "pinFlowControl", { ...key, parallelism: 1 })).toEqual([
    { what: "flowControl.pin", object: "k" },
  ]);
  expect(await entriesOf(broker, "deleteQueue", { ...queue, slots: [] })).toEqual([
    { what: "queue.delete", object: "q" },
  ]);
});

test("changes of messages and dead letters are audited with their number", async () => {
  const broker = await CommandRunner.open();
  const messageId = await broker.publish({ delay: 1_000 });
  expect(await entriesOf(broker, "cancel", { messageIds: [messageId] })).toEqual([
    { what: "message.cancel", object: messageId, count: 1 },
  ]);
  for (const input of [makeInput({ retries: 0 }), makeInput({ retries: 0 })])
    await broker.settle(await broker.publish(input));
  const [one = "", other = ""] = broker.deadLetters.map(({ id }) => id);
  const days = { logRetention: 1 };
  expect(await entriesOf(broker, "retryDeadLetters", { dlqIds: [one], overrides: {}, ...days })).toEqual([
    { what: "dlq.retry", object: one, count: 1 },
  ]);
  const changes = { change: { url: "https://other.example/" }, overrides: { retries: 1 } };
  expect(await entriesOf(broker, "replayDeadLetter", { dlqId: other, ...changes })).toEqual([
    { what: "dlq.replay", object: other, fields: ["url", "retries"] },
  ]);
  expect(
    await entriesOf(broker, "bulk", makeDeletion({ account: "acme", dlqIds: [other], ...days })),
  ).toEqual([{ what: "dlq.delete", object: other, count: 1 }]);
});

test("changes of tokens and of the account itself are audited", async () => {
  const broker = await CommandRunner.open();
  const asked = { hash: "h", scope: null, name: "ci", verbs: ["read"], destinations: [], expiresAt: null };
  const [made] = await entriesOf(broker, "createToken", asked as never);
  const [id = ""] = [...broker.memory.tables.tokens.values()].map((token) => token.id);
  expect(made).toEqual({ what: "token.create", object: id });
  expect(await entriesOf(broker, "revokeToken", { id })).toEqual([{ what: "token.revoke", object: id }]);
  expect(await entriesOf(broker, "revokeToken", { id })).toEqual([]);
  expect(await entriesOf(broker, "changeAccount", { change: { plan: "paid" } } as never)).toEqual([
    { what: "account.change", object: null, fields: ["plan"] },
  ]);
});

test("commands of the server itself have no caller", () => {
  const own = (Object.keys(commands) as CommandName[]).filter((name) => !hasCaller(name)).toSorted();
  expect(own).toEqual([
    "addToAllSeries",
    "claim",
    "continueJob",
    "expire",
    "listDue",
    "noteAcceptance",
    "noteAlertOutcome",
    "noteAlerts",
    "noteJob",
    "noteOutbox",
    "noteTokenUse",
    "publishRows",
    "quarantine",
    "reclaim",
    "recordSpending",
    "recordStorage",
    "removeAccount",
    "removeAlerts",
    "removeJobs",
    "removeKeptCalls",
    "removeSeries",
    "renew",
    "repair",
    "returnLeases",
    "rewrite",
    "servePullers",
    "settle",
    "tagCauses",
    "takeAlert",
    "takeOutbox",
    "takeOver",
    "trim",
    "wakeHostWaitlists",
  ]);
});
