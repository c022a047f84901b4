import { Client } from "pg";
import { expect, onTestFinished, test, vi } from "vitest";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import { postgresStore } from "../../../../src/engine/store/postgres/database.ts";
import { freshDatabase } from "../../../postgres.ts";
import { createRandom } from "../createRandom.ts";
import { openNode } from "./postgresDatabase.ts";
import type { Cost } from "./counting.ts";
import { counting } from "./counting.ts";
import { makeStartInput } from "../contract/failedRuns.ts";
import {
  makeAccount,
  closeAfterTest,
  makeInput,
  createSteppedClock,
  TestClock,
  StoreFixture,
} from "../storeFixture.ts";

// The number of statements and round trips of a batch does not depend on its size. A statement that need not
// wait for an earlier answer does not wait.

const original = Client.prototype.query;

type Putting = Client & { connectionParameters?: { application_name?: string } };

/**
 * Returns the costs of the life of messages: published, settled while others wait behind them, claimed and
 * settled.
 */
async function statementsFor(
  count: number,
  over: (index: number) => Partial<MessageInput>,
): Promise<Record<string, Cost>> {
  const clock = new TestClock();
  const world = new StoreFixture(
    closeAfterTest(await openNode(await freshDatabase(), clock)),
    clock,
    "nod_a",
  );
  await world.account();
  world.capacity = { total: 1_000, perHost: 1 };
  const inputs = Array.from({ length: count }, (_, index) =>
    makeInput({ url: `https://host-${index}.example/`, ...over(index) }),
  );
  const { during } = counting();
  // The first batch finds or creates a partition of the log.
  await world.store.execute("claim", { limit: 1 });
  const published = await during(() => world.publish(inputs));
  const sent = world.delivered();
  expect(sent).toHaveLength(count);
  await world.publish(inputs);
  const settled = await during(() => Promise.all(sent.map((delivery) => world.settle(delivery))));
  const next = world.delivered();
  for (const { message } of next) world.forgetDelivery(message.id);
  clock.now += 3_600_000;
  const claimed = await during(() => world.claim(count));
  return { published, settled, claimed };
}

test("a batch for many hosts takes no more statements and round trips than a batch for a few", async () => {
  const few = await statementsFor(2, () => ({}));
  expect(few).toEqual({
    // One statement writes the time index, which has no row for these five seconds yet. This is also the
    // first batch of an hour.
    published: { statements: 9, trips: 3 },
    settled: { statements: 9, trips: 3 },
    // Expired leases are read by separate statements. One statement adds to the counts of the whole store.
    claimed: { statements: 17, trips: 6 },
  });
  expect(await statementsFor(60, () => ({}))).toEqual(few);
});

test("a batch with many keys and queues takes no more statements than a batch with a few", async () => {
  const over = (index: number): Partial<MessageInput> => ({
    queue: `q${index}`,
    flowControl: { key: `k${index}`, parallelism: 1, rate: null, period: null },
  });
  const few = await statementsFor(2, over);
  expect(few).toEqual({
    // The queues are new, so the number of queues is counted.
    published: { statements: 16, trips: 5 },
    // One statement adds to the counts of the whole store, because messages that waited are now sent.
    settled: { statements: 20, trips: 6 },
    // The messages whose leases have expired are sent again by the same claim.
    claimed: { statements: 20, trips: 6 },
  });
  expect(await statementsFor(60, over)).toEqual(few);
});

test("a batch for many workflow runs reads their histories together", async () => {
  const statements = async (count: number): Promise<Cost[]> => {
    const clock = new TestClock();
    const world = new StoreFixture(
      closeAfterTest(await openNode(await freshDatabase(), clock)),
      clock,
      "nod_a",
    );
    await world.account();
    world.capacity = { total: 1_000, perHost: 1_000 };
    const { during } = counting();
    await world.store.execute("claim", { limit: 1 });
    const started = await during(() =>
      world.publish(Array.from({ length: count }, (_, index) => makeStartInput(`wfr_${index}`))),
    );
    const sent = world.delivered();
    expect(sent).toHaveLength(count);
    const settled = await during(() => Promise.all(sent.map((delivery) => world.settle(delivery))));
    return [started, settled];
  };
  const few = await statements(2);
  // The history sent with a step is read after the writes, without waiting for their answers.
  expect(few.map(({ trips }) => trips)).toEqual([3, 3]);
  expect(await statements(50)).toEqual(few);
});

/**
 * Records the statements sent on a connection without `pipeline` that has unanswered statements. The driver
 * refuses these from version 9 on.
 */
function overlapping(): string[] {
  const noted: string[] = [];
  const unanswered = new Map<Client, number>();
  const watched = function (this: Putting, ...given: unknown[]) {
    const count = unanswered.get(this) ?? 0;
    if (count > 0 && !this.pipeline)
      noted.push(`${this.connectionParameters?.application_name}: ${JSON.stringify(given[0])}`);
    unanswered.set(this, count + 1);
    const answer: unknown = Reflect.apply(original, this, given);
    const answered = (): unknown => unanswered.set(this, (unanswered.get(this) ?? 1) - 1);
    void Promise.resolve(answer).then(answered, answered);
    return answer;
  } as typeof original;
  const spy = vi.spyOn(Client.prototype, "query").mockImplementation(watched);
  onTestFinished(() => spy.mockRestore());
  return noted;
}

test.each(["session", "transaction"] as const)(
  "no statement is sent before earlier answers unless the connection allows it (pooling %s)",
  async (pooling) => {
    const url = await freshDatabase();
    const clock = new TestClock();
    const noted = overlapping();
    const options = { url, pooling, now: () => clock.now, clock: createSteppedClock(clock) };
    const worlds = await Promise.all(
      ["nod_a", "nod_b"].map(
        async (node, index) =>
          new StoreFixture(
            closeAfterTest(await postgresStore({ ...options, node, random: createRandom(index + 1) })),
            clock,
            node,
          ),
      ),
    );
    await worlds[0]?.account();
    const work = async (world: StoreFixture, index: number): Promise<void> => {
      await Promise.all([
        ...[1, 2, 3, 4].map((turn) =>
          world.store.execute("createAccount", makeAccount(`${world.node}_${index}_${turn}`)),
        ),
        ...[500, 400, 300].map((delay) => world.publish([makeInput({ delay: delay - index })])),
        ...Array.from({ length: 10 }, () => world.store.read.accounts()),
        world.sent().then((delivery) => world.settle(delivery)),
        world.store.forgetBefore(clock.now - 30 * 24 * 3_600_000),
      ]);
    };
    for (let round = 0; round < 5; round++) {
      await Promise.all(worlds.map((world) => work(world, round)));
      clock.now += 24 * 3_600_000;
    }
    expect(noted).toEqual([]);
  },
);
