import { describe, expect, test } from "vitest";
import type { AccountChange } from "../../../../src/engine/core/model/account.ts";
import { parseAccountChange, isDurationLimit } from "../../../../src/engine/core/accounts/accountRequest.ts";
import { limitNames, serverLimit } from "../../../../src/engine/core/accounts/plans.ts";
import type { LimitName } from "../../../../src/engine/core/model/accountTerms.ts";
import { noCounts } from "../../../../src/engine/core/model/counts.ts";
import { carriedBalancesId } from "../../../../src/engine/core/accounts/usage.ts";
import { CommandRunner } from "../commandRunner.ts";

const change = async (broker: CommandRunner, given: AccountChange) => {
  await broker.run("changeAccount", { account: "acme", change: given });
  return broker.memory.tables.accounts.get("acme");
};

test("changing an account changes only the given limits, and null removes an override", async () => {
  const broker = await CommandRunner.open();
  expect(await change(broker, { limits: { retries: 5, delay: 10 } })).toMatchObject({
    limits: { retries: 5, delay: 10 },
  });
  expect((await change(broker, { limits: { delay: null, queues: 2 } }))?.limits).toEqual({
    retries: 5,
    queues: 2,
  });
  expect((await change(broker, { limits: { delay: null } }))?.limits).toEqual({ retries: 5, queues: 2 });
  expect((await change(broker, { limits: {} }))?.limits).toEqual({ retries: 5, queues: 2 });
  expect(await change(broker, { state: "passive" })).toMatchObject({
    state: "passive",
    limits: { retries: 5, queues: 2 },
  });
  expect((await change(broker, { limits: { retries: null, queues: null } }))?.limits).toEqual({});
});

test("only the operator changes a plan that the operator has set, even right after it was set", async () => {
  const broker = await CommandRunner.open();
  await change(broker, { plan: "fixed_1m" });
  await change(broker, { plan: "free", isPlanHeld: true });
  await expect(change(broker, { plan: "paid" })).rejects.toThrow(
    "plan_name: the operator has set the plan of this account; ask the operator to change it",
  );
  expect(await change(broker, { budget: 20 })).toMatchObject({ plan: "free", isPlanHeld: true, budget: 20 });
  expect(await change(broker, { plan: "paid", isPlanHeld: true })).toMatchObject({ plan: "paid" });
});

test("an account request changes only the fields it names, and the word plan removes an override", () => {
  const asked = (given: Parameters<typeof parseAccountChange>[0]) =>
    parseAccountChange(given, (field) => field);
  expect(asked({})).toEqual({});
  expect(asked({ retries: "5", delay: "plan", timeout: "30s" })).toEqual({
    limits: { retries: 5, delay: null, timeout: 30_000 },
  });
  expect(asked({ plan: "paid" })).toEqual({ plan: "paid", isPlanHeld: true });
});

test.each([
  ["timeout", "0s", "1s"],
  ["deadLetterRetention", "59s", "60s"],
  ["logRetention", "0s", "60s"],
  ["auditRetention", "5s", "60s"],
] as const)("a duration limit that is too short is refused: %s of %s", (name, written, least) => {
  const asked = (text: string) => parseAccountChange({ [name]: text }, (field) => field);
  expect(() => asked(written)).toThrow(`${name}: ${written} is too short; use ${least} or more`);
  expect(asked(least).limits?.[name]).toBe(Number.parseInt(least, 10) * 1000);
  expect(parseAccountChange({ reservedPrice: "9.5" }, (field) => field)).toEqual({ reservedPrice: 9.5 });
  expect(parseAccountChange({ delay: "0s", retries: "0" }, (field) => field)).toEqual({
    limits: { delay: 0, retries: 0 },
  });
});

test("credentials are replaced only for a caller who proves the current ones", async () => {
  const broker = await CommandRunner.open();
  const rotate = (tokenHash: string, replaces?: string) =>
    broker.run("rotateToken", {
      account: "acme",
      password: tokenHash,
      token: tokenHash,
      tokenHash,
      ...(replaces && { replaces }),
    });
  await rotate("first");
  await rotate("second", "first");
  await expect(rotate("third", "first")).rejects.toThrow(
    "account: this password was just replaced; use the new one",
  );
  expect(broker.memory.tables.accounts.get("acme")).toMatchObject({
    password: "second",
    token: "second",
    tokenHash: "second",
  });
  expect(broker.memory.tables.accounts.get("acme")).not.toHaveProperty("replaces");
});

describe("a deleted account", () => {
  const day = 86_400_000;
  const row = (broker: CommandRunner) => broker.memory.tables.accounts.get("acme");
  const remove = (broker: CommandRunner) =>
    broker.run("removeAccount", { account: "acme", remaining: "other" });
  const beside = (broker: CommandRunner) =>
    broker.run("createAccount", {
      id: "other",
      name: "other",
      password: "p",
      token: "t",
      tokenHash: "h",
      signingKeys: { current: "", next: "" },
    });
  const deleted = async (): Promise<CommandRunner> => {
    const broker = await CommandRunner.open();
    await beside(broker);
    await change(broker, { state: "passive" });
    await broker.run("deleteAccount", { account: "acme" });
    return broker;
  };

  test("is not removed while its deliveries may still report, and other accounts stay", async () => {
    const broker = await CommandRunner.open();
    await beside(broker);
    for (const state of ["active", "passive"] as const) {
      await change(broker, { state });
      broker.now += 100 * day;
      expect(await remove(broker), state).toEqual({ removed: false });
    }
    await broker.run("deleteAccount", { account: "acme" });
    broker.now += 7 * day - 1;
    expect(await remove(broker)).toEqual({ removed: false });
    expect(row(broker)).toMatchObject({ name: "" });
    broker.now += 1;
    expect(await remove(broker)).toEqual({ removed: true });
    expect(row(broker)).toBeUndefined();
    expect(await remove(broker)).toEqual({ removed: false });
  });

  test("is removed with its count of requests and its balance of dead letters", async () => {
    const broker = await deleted();
    const { usage, dayCounts, secondCounts } = broker.memory.tables;
    usage.set(`acme\n${carriedBalancesId}`, {
      ...noCounts,
      account: "acme",
      id: carriedBalancesId,
      deadLetters: 1,
    });
    dayCounts.set("acme", { account: "acme", day: 0, requests: 1 });
    secondCounts.set("acme", { account: "acme", second: 0, requests: 1 });
    broker.now += 7 * day;
    await remove(broker);
    expect([usage.size, dayCounts.size, secondCounts.size]).toEqual([0, 0, 0]);
  });

  test("is not removed while it is the last account, so the store does not look new", async () => {
    const broker = await deleted();
    await broker.run("changeAccount", { account: "other", change: { state: "passive" } });
    await broker.run("deleteAccount", { account: "other" });
    broker.now += 100 * day;
    expect(await remove(broker)).toEqual({ removed: false });
    for (const other of ["acme", "none"])
      expect(await broker.run("removeAccount", { account: "acme", remaining: other })).toEqual({
        removed: false,
      });
    expect([...broker.memory.tables.accounts.keys()]).toEqual(["acme", "other"]);
  });

  test("keeps its id reserved until it is removed", async () => {
    const broker = await deleted();
    const again = {
      id: "acme",
      name: "other",
      password: "p",
      token: "t",
      tokenHash: "h",
      signingKeys: { current: "a", next: "b" },
    };
    await expect(broker.run("createAccount", again)).rejects.toThrow(
      "acme: an account with this id was deleted",
    );
    expect(row(broker)).toMatchObject({ name: "" });
    broker.now += 7 * day;
    await remove(broker);
    expect(await broker.run("createAccount", again)).toMatchObject({ name: "other" });
  });
});

describe("a limit in an operator's request", () => {
  const asked = (name: LimitName, written: string) =>
    parseAccountChange({ [name]: written }, (field) => `--${field}`);

  test.each(["parallelism", "globalParallelism", "requestsPerSecond", "requestsPerDayHard"] as const)(
    "%s: 0 is refused, because it would stop all deliveries or requests",
    (name) => {
      expect(() => asked(name, "0")).toThrow(
        `--${name}: 0 would stop everything; use 1 or more, or disable the account`,
      );
      expect(asked(name, "1")).toEqual({ limits: { [name]: 1 } });
    },
  );

  test.each(limitNames)("%s is refused, not reduced, if it exceeds the limit of the server", (name) => {
    const most = serverLimit(name);
    const [written, more, told] = isDurationLimit(name)
      ? [`${most / 1000}s`, `${most / 1000 + 1}s`, `${most / 1000}s`]
      : [`${most}`, `${most + 1}`, `${most}`];
    expect(asked(name, written)).toEqual({ limits: { [name]: most } });
    expect(() => asked(name, more)).toThrow(`--${name}: ${more} exceeds this server's limit of ${told}`);
  });

  test("0 is accepted for every other count, and allows none", () => {
    const counts = limitNames.filter(
      (name) => !isDurationLimit(name) && !/arallelism|requestsPerSecond|requestsPerDayHard/.test(name),
    );
    expect(counts.map((name) => asked(name, "0"))).toEqual(counts.map((name) => ({ limits: { [name]: 0 } })));
  });

  test("a daily warning above the hard daily limit is refused, and one below it is accepted", async () => {
    const broker = await CommandRunner.open();
    await change(broker, { plan: "free" });
    const said = "requestsPerDay: 1001 exceeds requestsPerDayHard (1000); raise requestsPerDayHard as well";
    await expect(change(broker, { limits: { requestsPerDay: 1_001 } })).rejects.toThrow(said);
    expect(
      await change(broker, { limits: { requestsPerDay: 1_001, requestsPerDayHard: 1_001 } }),
    ).toMatchObject({ plan: "free" });
    expect(await change(broker, { limits: { requestsPerDay: 5 } })).toMatchObject({
      limits: { requestsPerDay: 5 },
    });
  });
});
