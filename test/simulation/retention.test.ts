import { beforeEach, describe, expect, test } from "vitest";
import { deleteAccountData } from "../../src/server/accountDeletion.ts";
import { createIdGenerator } from "../../src/engine/core/values/ids.ts";
import type { Retention } from "../../src/engine/core/accounts/retention.ts";
import type { MaintenanceTask } from "../../src/engine/upkeep/scheduler.ts";
import {
  MaintenanceScheduler,
  createPromptRetentionTask,
  createRetentionTask,
} from "../../src/engine/upkeep/scheduler.ts";
import { Memory, memoryStore } from "../model/memoryStore.ts";
import { withAuditActor } from "../../src/engine/store/auditActor.ts";
import type { Store } from "../../src/engine/store/store.ts";
import { makeInput } from "../engine/core/commandRunner.ts";
import { serverAccount } from "../../src/engine/core/values/basics.ts";
import { RandomSource } from "./randomSource.ts";
import { NodeClock, VirtualTime, settled } from "./virtualTime.ts";

// When history is removed, in virtual time.

const minute = 60_000;
const hour = 60 * minute;
const day = 24 * hour;
const retention: Retention = { log: 3 * day, deadLetters: 7 * day };

let world: VirtualTime;
let memory: Memory;
let store: Store;
let timers: MaintenanceScheduler;
/** How often the task asked when the next row of an account expires. */
let looks: number;

beforeEach(async () => {
  world = new VirtualTime(new RandomSource(1));
  memory = new Memory();
  looks = 0;
  const random = (): number => world.random.next();
  store = memoryStore(
    { node: "node", now: () => world.now, random, newId: createIdGenerator(random) },
    memory,
  );
  await store.execute("createAccount", {
    id: "acme",
    name: "",
    password: "",
    token: "",
    tokenHash: "",
    signingKeys: { current: "", next: "" },
  });
  const counted: Store = {
    ...store,
    read: {
      ...store.read,
      nextExpiryAt: (account, ...of) => {
        if (account !== serverAccount) looks++;
        return store.read.nextExpiryAt(account, ...of);
      },
    },
  };
  const clock = new NodeClock(world, "node");
  const logFailure = (what: string): void => expect.fail(what);
  const parts = { store: counted, clock, retention };
  timers = new MaintenanceScheduler({
    tasks: [createRetentionTask(parts), createPromptRetentionTask(parts)],
    clock,
    logFailure,
  });
  timers.start();
  await run(minute);
});

async function run(time: number): Promise<void> {
  const until = world.now + time;
  await settled();
  while (await world.step(until));
  world.now = until;
}

const publish = (deduplication: string) =>
  store.execute("publish", { account: "acme", inputs: [makeInput({ deduplication, delay: day })] });

test("a deduplication id is removed in little more than an hour, even if nothing else is", async () => {
  await run(5 * hour);
  await publish("one");
  await run(hour - 2 * minute);
  await publish("two");
  await run(2 * hour);
  expect(memory.tables.deduplications.size).toBe(0);
  const before = looks;
  await run(2 * day);
  // Once more for what was used during these minutes.
  expect(looks).toBe(before + 1);
});

test("retention looks only a few times an hour, regardless of the number of messages", async () => {
  for (let count = 0; count < 1_000; count++) {
    await publish(`key ${count}`);
    await run(36_000);
    expect(memory.tables.deduplications.size).toBeLessThanOrEqual(130);
  }
  expect(looks).toBeLessThanOrEqual(130);
});

describe("history kept for less than an hour", () => {
  const cancelled = async (account: string): Promise<void> => {
    const [result] = await store.execute("publish", { account, inputs: [makeInput({ delay: day })] });
    if (result && "messageId" in result)
      await store.execute("cancel", { account, messageIds: [result.messageId] });
  };
  const ages = (account: string): number[] =>
    [...memory.tables.log.values()]
      .filter((row) => row.account === account)
      .map(({ time }) => world.now - time);

  beforeEach(async () => {
    const secrets = {
      name: "",
      password: "",
      token: "other",
      tokenHash: "other",
      signingKeys: { current: "", next: "" },
    };
    await store.execute("createAccount", { id: "other", ...secrets });
  });

  test.each([1, 10, 59])("is removed at most a minute after its retention: %d minutes", async (minutes) => {
    await store.execute("changeAccount", {
      account: "acme",
      change: { limits: { logRetention: minutes * minute } },
    });
    await run(5 * hour);
    for (let count = 0; count < 200; count++) {
      await cancelled("acme");
      if (count % 20 === 0) await cancelled("other");
      await run(count % 50 === 0 ? 20 * minute : 37_000);
      expect(Math.max(0, ...ages("acme"))).toBeLessThanOrEqual((minutes + 1) * minute);
    }
    expect(ages("other")).toHaveLength(10);
    await run((minutes + 1) * minute);
    expect(ages("acme"), "even if nothing else happens").toEqual([]);
  });

  test("is looked for only while an account has such a short retention", async () => {
    await cancelled("acme");
    await run(2 * hour);
    const before = looks;
    await run(5 * hour);
    expect(looks).toBe(before);
    await store.execute("changeAccount", {
      account: "acme",
      change: { limits: { logRetention: 10 * minute } },
    });
    await run(minute);
    expect(ages("acme")).toEqual([]);
  });
});

test("retention sleeps while the store is empty, and ends when it is stopped", async () => {
  const before = looks;
  await run(30 * day);
  expect(looks).toBe(before);
  expect(world.pending()).toEqual([]);
  await timers.stop();
  await publish("late");
  expect(world.pending()).toEqual([]);
});

test("the audit log is kept for the retention of its account, even if that changes", async () => {
  const named = withAuditActor(store, { kind: "commandLine", address: null });
  const queues = () =>
    [...memory.tables.audit.values()].filter(({ what }) => what === "queue.set").map(({ object }) => object);
  await named.execute("upsertQueue", { account: "acme", name: "first" });
  // From here on nothing else happens, except changes of the account.
  await named.execute("changeAccount", { account: "acme", change: { limits: { auditRetention: 20 * day } } });
  await run(20 * day - minute);
  expect(queues()).toEqual(["first"]);
  await run(hour);
  expect(queues()).toEqual([]);
  await named.execute("upsertQueue", { account: "acme", name: "second" });
  await named.execute("changeAccount", {
    account: "acme",
    change: { limits: { auditRetention: 400 * day } },
  });
  await run(90 * day - hour);
  expect(queues(), "at most as long as the server keeps it").toEqual(["second"]);
  await run(2 * hour);
  expect(queues()).toEqual([]);
});

test("the audit log of the server is kept for the retention of the server", async () => {
  const operator = withAuditActor(store, { kind: "operator", address: null });
  const alerts = { url: "https://ops.example/", events: ["disk.low"], secret: "whsec_s" } as const;
  await operator.execute("setServerAlerts", { alerts });
  await run(90 * day - hour);
  expect([...memory.tables.audit.values()]).toMatchObject([{ account: serverAccount, what: "alerts.set" }]);
  await run(2 * hour);
  expect(memory.tables.audit.size).toBe(0);
});

test("the row of a deleted account is removed when nothing else is left of it, and others stay", async () => {
  await store.execute("createAccount", {
    id: "shop",
    name: "shop",
    password: "",
    token: "",
    tokenHash: "shop",
    signingKeys: { current: "", next: "" },
  });
  await store.execute("publish", {
    account: "shop",
    inputs: [makeInput({ deduplication: "one", delay: day })],
  });
  await store.execute("addEndpoints", {
    account: "shop",
    name: "all",
    endpoints: [{ name: null, url: "https://shop.example/" }],
  });
  await store.execute("changeAccount", { account: "shop", change: { state: "passive" } });
  await deleteAccountData(store, "shop", {
    logRetention: retention.log,
    actor: { kind: "commandLine", address: null },
  });
  const start = world.now;
  const has = (table: "accounts" | "log" | "usage" | "audit"): boolean =>
    [...memory.tables[table].values()].some((row) => ("account" in row ? row.account : row.id) === "shop");
  await run(8 * day);
  expect([has("accounts"), has("log"), has("usage"), has("audit")], "its usage is still available").toEqual([
    true,
    false,
    true,
    true,
  ]);
  await run(40 * day);
  expect([has("accounts"), has("usage"), has("audit")]).toEqual([true, false, true]);
  while (has("accounts")) expect(await world.step(start + 91 * day)).toBe(true);
  expect(world.now - start).toBeGreaterThan(90 * day);
  expect(
    Object.values(memory.tables).flatMap((rows) => [...rows.keys()].filter((key) => key.startsWith("shop"))),
  ).toEqual([]);
  expect([...memory.tables.accounts.keys()]).toEqual(["acme"]);
  await run(day);
  expect(world.pending()).toEqual([]);
});

test("the row of the last account stays, without work, until there is another account", async () => {
  await store.execute("changeAccount", { account: "acme", change: { state: "passive" } });
  await deleteAccountData(store, "acme", {
    logRetention: retention.log,
    actor: { kind: "commandLine", address: null },
  });
  await run(100 * day);
  expect([memory.tables.audit.size, [...memory.tables.accounts.keys()]]).toEqual([0, ["acme"]]);
  expect(world.pending()).toEqual([]);
  await store.execute("createAccount", {
    id: "shop",
    name: "shop",
    password: "",
    token: "",
    tokenHash: "shop",
    signingKeys: { current: "", next: "" },
  });
  await run(hour);
  expect([...memory.tables.accounts.keys()]).toEqual(["shop"]);
});

test("a deleted account's row stays for at least a week, and while anything else remains", async () => {
  await store.execute("pauseLimiter", { account: "acme", id: "queue:all" });
  await store.execute("changeAccount", { account: "acme", change: { state: "passive" } });
  await store.execute("deleteAccount", { account: "acme" });
  await store.execute("createAccount", {
    id: "shop",
    name: "shop",
    password: "",
    token: "",
    tokenHash: "shop",
    signingKeys: { current: "", next: "" },
  });
  const wake = () => store.execute("publish", { account: "shop", inputs: [makeInput({ delay: hour })] });
  await wake();
  await run(8 * day);
  await wake();
  await run(2 * hour);
  expect(memory.tables.accounts.has("acme")).toBe(true);
  await store.execute("deleteQueue", { account: "acme", name: "all", slots: [] });
  await wake();
  await run(2 * hour);
  expect(memory.tables.accounts.has("acme")).toBe(false);
});

test("a task that is woken early sleeps no longer than it should if the clock is set back", async () => {
  const clock = new NodeClock(world, "other");
  let turns = 0;
  let tell = (): void => undefined;
  const duty: MaintenanceTask = {
    name: "counting",
    pause: minute,
    nextAt: async () => clock.now(),
    run: async () => void turns++,
    onWork: (listener) => {
      tell = listener;
      return () => undefined;
    },
  };
  const other = new MaintenanceScheduler({ tasks: [duty], clock, logFailure: (what) => expect.fail(what) });
  other.start();
  await run(10_000);
  expect(turns).toBe(1);
  clock.clockOffset = -day;
  tell();
  await run(2 * minute);
  expect(turns).toBeGreaterThan(1);
});
