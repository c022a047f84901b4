import { expect, onTestFinished, test, vi } from "vitest";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import { WorkingSet } from "../../../../src/engine/store/batch/workingSet.ts";
import { Memory, memoryStore } from "../../../model/memoryStore.ts";
import { createSource, makeInput, StoreFixture, TestClock } from "../storeFixture.ts";

// A store that cannot read at once loads the rows of a batch in rounds. The number of rounds depends on how
// rows lead to each other, and not on how many messages there are.

const ways = [
  ["with hints", true],
  ["without hints", false],
] as const;
const counts = [4, 16, 64] as const;

async function openFixture(usesHints: boolean): Promise<{ fixture: StoreFixture; memory: Memory }> {
  const clock = new TestClock();
  const memory = new Memory({ readsAtOnce: false, usesHints });
  const fixture = new StoreFixture(memoryStore(createSource(clock, "nod_a"), memory), clock, "nod_a");
  await fixture.account();
  return { fixture, memory };
}

/** Returns the number of rounds that a piece of work takes. */
async function countRounds(work: () => Promise<unknown>): Promise<number> {
  const spy = vi.spyOn(WorkingSet.prototype, "loadMissing");
  onTestFinished(() => spy.mockRestore());
  await work();
  const rounds = spy.mock.calls.length;
  spy.mockRestore();
  return rounds;
}

const expectConstant = (rounds: readonly number[], most: number): void => {
  expect(new Set(rounds).size).toBe(1);
  expect(rounds[0]).toBeLessThanOrEqual(most);
};

const withKey = (key: string, parallelism: number): Partial<MessageInput> => ({
  flowControl: { key, parallelism, rate: null, period: null },
});

test.each(ways)("outcomes of one host, %s", async (_, usesHints) => {
  const rounds = [];
  for (const count of counts) {
    const { fixture } = await openFixture(usesHints);
    fixture.capacity = { total: 1_000, perHost: count };
    const inputs = Array.from({ length: count }, () => makeInput());
    await fixture.publish(inputs);
    const sent = fixture.delivered();
    await fixture.publish(inputs);
    await fixture.claim(1_000);
    rounds.push(await countRounds(() => Promise.all(sent.map((delivery) => fixture.settle(delivery)))));
    expect(fixture.delivered()).toHaveLength(count);
  }
  expectConstant(rounds, 4);
});

test.each(ways)("outcomes of one key whose messages go to many hosts, %s", async (_, usesHints) => {
  const rounds = [];
  for (const count of counts) {
    const { fixture } = await openFixture(usesHints);
    const inputs = Array.from({ length: count }, (__, index) =>
      makeInput({ url: `https://h${index}.example/`, ...withKey("k", count) }),
    );
    await fixture.publish(inputs);
    const sent = fixture.delivered();
    await fixture.publish(inputs);
    rounds.push(await countRounds(() => Promise.all(sent.map((delivery) => fixture.settle(delivery)))));
    expect(fixture.delivered()).toHaveLength(count);
  }
  expectConstant(rounds, 6);
});

test.each(ways)("a claim of one host whose messages have many keys, %s", async (_, usesHints) => {
  const rounds = [];
  for (const count of counts) {
    const { fixture } = await openFixture(usesHints);
    fixture.capacity = { total: 1_000, perHost: 1 };
    const running = await fixture.sent();
    await fixture.publish(Array.from({ length: count }, (__, index) => makeInput(withKey(`k${index}`, 5))));
    await fixture.claim(1_000);
    fixture.forgetDelivery(running.message.id);
    fixture.capacity = { total: 1_000, perHost: 1_000 };
    fixture.clock.now += 20_000;
    let claimed = 0;
    rounds.push(await countRounds(async () => (claimed = (await fixture.claim(1_000)).length)));
    expect(claimed).toBe(count);
  }
  expectConstant(rounds, 5);
});

test.each(ways)("a claim of damaged messages that free each other's slots, %s", async (_, usesHints) => {
  const rounds = [];
  for (const count of counts) {
    const { fixture, memory } = await openFixture(usesHints);
    await fixture.publish(Array.from({ length: count }, () => makeInput({ delay: 10, queue: "q" })));
    memory.tables.storedMessages.clear();
    fixture.clock.now += 1_000;
    rounds.push(await countRounds(() => fixture.claim(1_000)));
    expect(memory.tables.deadLetters.size).toBe(count);
  }
  expectConstant(rounds, 6);
});
