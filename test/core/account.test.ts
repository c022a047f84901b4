import { expect, test } from "vitest";
import type { AccountChange } from "../../src/core/account.ts";
import { accountChangeOf } from "../../src/core/accountAsked.ts";
import { Broker } from "./broker.ts";

const change = async (broker: Broker, given: AccountChange) => {
  await broker.run("changeAccount", { account: "acme", change: given });
  return broker.memory.tables.accounts.get("acme");
};

test("of an account what is given is changed, limits one by one, and null takes one back", async () => {
  const broker = await Broker.open();
  expect(await change(broker, { limits: { retries: 5, delay: 10 } })).toMatchObject({ limits: { retries: 5, delay: 10 } });
  expect((await change(broker, { limits: { delay: null, queues: 2 } }))?.limits).toEqual({ retries: 5, queues: 2 });
  expect((await change(broker, { limits: { delay: null } }))?.limits).toEqual({ retries: 5, queues: 2 });
  expect((await change(broker, { limits: {} }))?.limits).toEqual({ retries: 5, queues: 2 });
  expect(await change(broker, { state: "passive" })).toMatchObject({ state: "passive", limits: { retries: 5, queues: 2 } });
  expect((await change(broker, { limits: { retries: null, queues: null } }))?.limits).toEqual({});
});

test("what is asked for an account names what was given alone, and the word plan takes a limit back", () => {
  const asked = (given: Parameters<typeof accountChangeOf>[0]) => accountChangeOf(given, (field) => field);
  expect(asked({})).toEqual({});
  expect(asked({ retries: "5", delay: "plan", timeout: "30s" })).toEqual({ limits: { retries: 5, delay: null, timeout: 30_000 } });
  expect(asked({ plan: "paid" })).toEqual({ plan: "paid", isPlanHeld: true });
});
