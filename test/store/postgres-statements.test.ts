import { Client } from "pg";
import { expect, onTestFinished, test, vi } from "vitest";
import type { Letter } from "../../src/core/message.ts";
import { freshDatabase } from "../postgres.ts";
import { openNode } from "./postgresDatabase.ts";
import { startOf } from "./contractFailedRuns.ts";
import { closedAfterwards, letterTo, TestClock, World } from "./world.ts";

// What a batch costs on the wire does not depend on how much is in it.

const original = Client.prototype.query;

/** Counts what is put to databases by those connections that write. */
function counting(): { during(work: () => Promise<unknown>): Promise<number> } {
  let count = 0;
  const counted = function (this: Client & { connectionParameters?: { application_name?: string } }, ...given: unknown[]) {
    if (this.connectionParameters?.application_name === "waypost writer") count++;
    return Reflect.apply(original, this, given);
  } as typeof original;
  const spy = vi.spyOn(Client.prototype, "query").mockImplementation(counted);
  onTestFinished(() => spy.mockRestore());
  return {
    during: async (work) => {
      const before = count;
      await work();
      return count - before;
    },
  };
}

/** What messages go through: published, and settled while others stand in line behind them, claimed, and settled. */
async function statementsFor(count: number, over: (index: number) => Partial<Letter>): Promise<Record<string, number>> {
  const clock = new TestClock();
  const world = new World(closedAfterwards(await openNode(await freshDatabase(), clock)), clock, "nod_a");
  await world.account();
  world.hands = { total: 1_000, perHost: 1 };
  const letters = Array.from({ length: count }, (_, index) => letterTo({ url: `https://host-${index}.example/`, ...over(index) }));
  const { during } = counting();
  // The first batch finds a part of the log, or makes it.
  await world.store.execute("claim", { limit: 1 });
  const published = await during(() => world.publish(letters));
  const sent = world.delivered();
  expect(sent).toHaveLength(count);
  await world.publish(letters);
  const settled = await during(() => Promise.all(sent.map((delivery) => world.settle(delivery))));
  const next = world.delivered();
  for (const { message } of next) world.putDown(message.id);
  clock.now += 3_600_000;
  const claimed = await during(() => world.claim(count));
  return { published, settled, claimed };
}

test("messages to many hosts take as many statements as those to a few, usage and all", async () => {
  const few = await statementsFor(2, () => ({}));
  expect(few).toEqual({ published: 7, settled: 8, claimed: 13 });
  expect(await statementsFor(60, () => ({}))).toEqual(few);
});

test("the same with keys and queues", async () => {
  const over = (index: number): Partial<Letter> => ({
    queue: `q${index}`,
    flowControl: { key: `k${index}`, parallelism: 1, rate: null, period: null },
  });
  const few = await statementsFor(2, over);
  expect(few).toEqual({ published: 11, settled: 18, claimed: 16 });
  expect(await statementsFor(60, over)).toEqual(few);
});

test("the same for workflow runs: their histories are read together", async () => {
  const statements = async (count: number): Promise<number[]> => {
    const clock = new TestClock();
    const world = new World(closedAfterwards(await openNode(await freshDatabase(), clock)), clock, "nod_a");
    await world.account();
    world.hands = { total: 1_000, perHost: 1_000 };
    const { during } = counting();
    await world.store.execute("claim", { limit: 1 });
    const started = await during(() => world.publish(Array.from({ length: count }, (_, index) => startOf(`wfr_${index}`))));
    const sent = world.delivered();
    expect(sent).toHaveLength(count);
    const settled = await during(() => Promise.all(sent.map((delivery) => world.settle(delivery))));
    return [started, settled];
  };
  expect(await statements(50)).toEqual(await statements(2));
});
