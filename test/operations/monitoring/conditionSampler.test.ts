import { expect, test } from "vitest";
import type { Condition } from "../../../src/engine/core/explain/condition.ts";
import { makeCondition } from "../../../src/engine/core/explain/condition.ts";
import { ConditionSampler } from "../../../src/operations/monitoring/conditionSampler.ts";
import { makeAccount } from "../../engine/store/storeFixture.ts";

const paused = (subject: string): Condition =>
  makeCondition({ kind: "queue.paused", level: "warning", subject, text: "" });
const full = makeCondition({ kind: "server.refusing", level: "problem", subject: "server", text: "" });
const makeAccounts = (count: number) =>
  Array.from({ length: count }, (_, at) => ({ ...makeAccount(`acc_${100 + at}`), createdAt: 0 }));

/** Returns a sampler of these accounts, and the accounts that it has looked at. */
function sampleOf(accounts: ReturnType<typeof makeAccounts>, list: (id: string) => Promise<Condition[]>) {
  const clock = { now: 1_000_000 };
  const asked: string[] = [];
  const sampler = new ConditionSampler({
    accounts: async () => accounts,
    listConditions: ({ id }) => {
      asked.push(id);
      return list(id);
    },
    now: () => clock.now,
  });
  return { sampler, clock, asked };
}

test("counts by kind and level, and what concerns the server once", async () => {
  const { sampler } = sampleOf(makeAccounts(3), async () => [full, paused("a"), paused("b")]);
  expect(sampler.read()).toBeNull();
  await expect
    .poll(() => sampler.read()?.counts)
    .toEqual([
      { kind: "server.refusing", level: "problem", count: 1 },
      { kind: "queue.paused", level: "warning", count: 6 },
    ]);
});

test("looks once in ten seconds, at 50 accounts at a time, and forgets accounts that are gone", async () => {
  const accounts = makeAccounts(70);
  const { sampler, clock, asked } = sampleOf(accounts, async (id) => [paused(id)]);
  const countAsked = async (wanted: number) => {
    sampler.read();
    await expect.poll(() => asked.length).toBe(wanted);
  };
  await countAsked(50);
  await countAsked(50);
  clock.now += 10_000;
  await countAsked(100);
  expect(new Set(asked).size).toBe(70);
  expect(sampler.read()).toMatchObject({ counts: [{ count: 70 }], at: 1_000_000 });
  accounts.length = 1;
  clock.now += 10_000;
  await countAsked(101);
  await expect.poll(() => sampler.read()?.counts[0]?.count).toBe(1);
});

test("a store that hangs delays no read, and the sample gets older", async () => {
  let release = (): void => undefined;
  let hangs = false;
  const { sampler, clock, asked } = sampleOf(makeAccounts(1), async () => {
    if (hangs) await new Promise<void>((resolve) => (release = resolve));
    return [paused("a")];
  });
  sampler.read();
  await expect.poll(() => sampler.read()?.at).toBe(1_000_000);
  hangs = true;
  for (let times = 0; times < 3; times++) {
    clock.now += 60_000;
    expect(sampler.read()?.at).toBe(1_000_000);
  }
  await expect.poll(() => asked.length).toBe(2);
  const stopped = sampler.stop();
  release();
  await stopped;
  clock.now += 60_000;
  sampler.read();
  expect(asked).toHaveLength(2);
});
