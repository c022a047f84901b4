import { expect, test } from "vitest";
import { commands } from "../../../../src/engine/store/catalog/commands.ts";
import type { Commands } from "../../../../src/engine/store/catalog/commands.ts";
import type { Draft, Moment } from "../../../../src/engine/core/decision/command.ts";
import type { IdKind } from "../../../../src/engine/core/values/basics.ts";
import type { DeliveryCapacity } from "../../../../src/engine/core/admission/capacity.ts";
import { Memory, memoryParts, memoryStore } from "../../../model/memoryStore.ts";
import { ampleCapacity } from "../../core/commandRunner.ts";
import { createSource, makeAccount, makeInput, StoreFixture, TestClock } from "../storeFixture.ts";

// A store that loads rows in rounds runs decisions that have read too little, and discards what they did. The
// result is the same as if everything had been loaded before.

const ways = [
  ["at once", { readsAtOnce: true }],
  ["in rounds", { readsAtOnce: false }],
  ["in rounds without hints", { readsAtOnce: false, usesHints: false }],
] as const;

async function openFixture(reads: ConstructorParameters<typeof Memory>[0]): Promise<StoreFixture> {
  const clock = new TestClock();
  const fixture = new StoreFixture(
    memoryStore(createSource(clock, "nod_a"), new Memory(reads)),
    clock,
    "nod_a",
  );
  await fixture.account();
  return fixture;
}

test.each(ways)("bodies of discarded runs use up no bytes of the batch, reading %s", async (_, reads) => {
  const fixture = await openFixture(reads);
  fixture.bytes = { total: 2 ** 30, perBatch: 1_000 };
  fixture.capacity = { total: 100, perHost: 1 };
  const inputs = [0, 1, 2].map((index) =>
    makeInput({ url: `https://d${index}.example/`, delay: 10, body: new Uint8Array(200) }),
  );
  const running = await fixture.sent({ url: "https://w.example/" });
  await fixture.publish([makeInput({ url: "https://w.example/", body: new Uint8Array(900) })]);
  await fixture.claim(10);
  await fixture.publish(inputs);
  fixture.clock.now += 500;
  // The outcome would send the large message. The claim before it sends the others, and leaves it no bytes.
  await Promise.all([fixture.store.execute("claim", { limit: 10 }), fixture.settle(running)]);
  expect(fixture.delivered().map(({ message }) => message.url)).toEqual(inputs.map(({ url }) => url));
});

test.each(ways)("a destination without its share is reported once, reading %s", async (_, reads) => {
  const clock = new TestClock();
  const { runBatch } = memoryParts(createSource(clock, "nod_a"), new Memory(reads));
  await runBatch([{ name: "createAccount", input: makeAccount("acc") }], ampleCapacity);
  const denied: string[] = [];
  const capacity: DeliveryCapacity = {
    ...ampleCapacity,
    free: 1,
    heldByAccount: {
      deliveries: { total: 10, byAccount: new Map([["acc", 9]]) },
      bytes: { total: 2 ** 30, byAccount: new Map() },
    },
    denied: (lane) => denied.push(lane),
  };
  const publish = (host: string) =>
    ({
      name: "publish",
      input: { account: "acc", inputs: [makeInput({ url: `https://${host}/` })] },
    }) as const;
  await runBatch([publish("a.example"), publish("b.example"), publish("a.example")], capacity);
  expect(denied).toEqual(["acc a.example", "acc b.example"]);
});

test("every way of reading draws the same ids and random numbers, and stores the same", async () => {
  const results = [];
  for (const [, reads] of ways) {
    const clock = new TestClock(1_800_000_000_000);
    const memory = new Memory(reads);
    const source = createSource(clock, "nod_a");
    const fixture = new StoreFixture(memoryStore(source, memory), clock, "nod_a");
    await fixture.account();
    fixture.capacity = { total: 6, perHost: 2 };
    for (let round = 0; round < 6; round++) {
      const sent = fixture.delivered();
      await Promise.all([
        ...sent.map((delivery, at) => fixture.settle(delivery, { status: at % 2 === 0 ? 200 : 500 })),
        fixture.store.execute("claim", { limit: 4 }),
        ...[0, 1, 2, 3].map((at) => fixture.publish([makeInput({ queue: `q${at % 2}`, retries: at })])),
        fixture.publish([makeInput({ flowControl: { key: "k", parallelism: 1, rate: null, period: null } })]),
      ]);
      clock.now += 20_000;
    }
    results.push({ tables: memory.tables, next: [source.random(), source.newId("msg", clock.now)] });
  }
  const [first, ...others] = results;
  expect(first?.tables.messages.size).toBeGreaterThan(5);
  for (const other of others) expect(other).toEqual(first);
});

test("a run that draws another kind of id than the run before gets one of its kind", async () => {
  let runs = 0;
  const drawn: string[][] = [];
  const decide = (_input: unknown, draft: Draft, moment: Moment): { cancelled: number } => {
    const kinds: IdKind[] = runs++ === 0 ? ["msg", "msg"] : ["msg", "log", "msg"];
    drawn.push(kinds.map((kind) => moment.newId(kind)));
    draft.get("messages", "acc", "msg_1");
    return { cancelled: 0 };
  };
  const altered: Commands = { ...commands, cancel: { decide } };
  const memory = new Memory({ readsAtOnce: false });
  const { runBatch } = memoryParts(createSource(new TestClock(), "nod_a"), memory, altered);
  await runBatch([{ name: "cancel", input: { account: "acc", messageIds: [] } }], ampleCapacity);
  const [before = [], after = []] = drawn;
  expect(after[0]).toBe(before[0]);
  expect(after).toEqual([
    expect.stringMatching(/^msg_/),
    expect.stringMatching(/^\d{13}-/),
    expect.stringMatching(/^msg_/),
  ]);
});

test.each(ways)("rows are counted up to a limit that the batch has raised, reading %s", async (_, reads) => {
  const fixture = await openFixture(reads);
  const { store } = fixture;
  const change = (queues: number) =>
    store.execute("changeAccount", { account: "acc", change: { limits: { queues } } });
  const publish = async (queue: string) =>
    "refused" in ((await fixture.publish([makeInput({ queue })]))[0] ?? {});
  for (let index = 0; index < 8; index++) await publish(`q${index}`);
  await change(3);
  const [full, , stillFull] = await Promise.all([publish("a"), change(5), publish("b")]);
  expect([full, stillFull]).toEqual([true, true]);
  const [, , last] = await Promise.all([change(9), publish("c"), publish("d")]);
  expect(last).toBe(true);
});
