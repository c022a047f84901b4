import { expect, test } from "vitest";
import { postgresStore } from "../../../../src/engine/store/postgres/database.ts";
import { freshDatabase } from "../../../postgres.ts";
import { createRandom } from "../createRandom.ts";
import {
  closeAfterTest,
  makeOldestFirstQuery,
  createSteppedClock,
  TestClock,
  StoreFixture,
} from "../storeFixture.ts";

// The database's clock jumps, as in a failover to a host with a wrong clock. The clocks of the nodes are
// right.

async function nodes(names: readonly string[]) {
  const url = await freshDatabase();
  const clock = new TestClock();
  let wrong = 0;
  const jumps: [node: string, jump: number][] = [];
  const open = async (node: string): Promise<StoreFixture> => {
    const options = {
      url,
      node,
      random: createRandom(node.length),
      clock: createSteppedClock(clock),
      now: () => clock.now + wrong,
    };
    const store = await postgresStore({ ...options, onClockJump: (jump) => void jumps.push([node, jump]) });
    return new StoreFixture(closeAfterTest(store), clock, node);
  };
  const worlds: StoreFixture[] = [];
  for (const name of names) worlds.push(await open(name));
  await worlds[0]?.account();
  return {
    worlds: worlds as [StoreFixture, StoreFixture, ...StoreFixture[]],
    clock,
    jumps,
    open,
    setWrong: (by: number) => void (wrong = by),
  };
}

/**
 * Returns how long the second node waits, in steps of 50 ms, until it can claim a message that the first node
 * has published with a delay of 2 s.
 */
async function tookFor(
  { worlds: [a, b], clock }: Awaited<ReturnType<typeof nodes>>,
  meanwhile: () => void,
): Promise<number> {
  const id = await a.send({ delay: 2_000 });
  const begun = clock.now;
  meanwhile();
  for (;;) {
    const claimed = (await b.claim()).map(({ message }) => message.id);
    for (const one of claimed) b.forgetDelivery(one);
    if (claimed.includes(id)) return clock.now - begun;
    clock.now += 50;
  }
}

test("ids and times increase across nodes, even if the database's clock jumps", async () => {
  const { worlds, clock, setWrong } = await nodes(["nod_a", "nod_bb", "nod_ccc"]);
  const ids: string[] = [];
  for (const wrong of [0, -300_000, -300_001, 0, 300_000, 0, -300_000]) {
    setWrong(wrong);
    for (let turn = 0; turn < 12; turn++) {
      ids.push((await worlds[turn % 3]?.send({ delay: 60_000 })) ?? "");
      clock.now += 1 + (turn % 3);
    }
  }
  expect(ids.toSorted()).toEqual(ids);
  const { events } = await worlds[0].store.read.log(makeOldestFirstQuery({ account: "acc" }));
  expect(events.map(({ time }) => time).toSorted((one, other) => one - other)).toEqual(
    events.map(({ time }) => time),
  );
});

test.each([
  [0, -300_000],
  [-300_000, 0],
  [300_000, 0],
  [300_000, -300_000],
])("a delay of 2 s takes 2 to 3 s after the clock went from %d to %d ms", async (before, after) => {
  const setting = await nodes(["nod_a", "nod_bb"]);
  setting.setWrong(before);
  await setting.worlds[0].send({ delay: 1 });
  await setting.worlds[1].send({ delay: 1 });
  setting.clock.now += 10;
  setting.setWrong(after);
  const took = await tookFor(setting, () => undefined);
  expect(took).toBeGreaterThanOrEqual(2_000);
  expect(took).toBeLessThanOrEqual(3_000);
});

test("a delay of 2 s takes 2 to 3 s if the clock goes back meanwhile", async () => {
  const setting = await nodes(["nod_a", "nod_bb"]);
  const took = await tookFor(setting, () => setting.setWrong(-300_000));
  expect(took).toBeGreaterThanOrEqual(2_000);
  expect(took).toBeLessThanOrEqual(3_000);
});

test("time that passes for an idle node while the clock goes back is not lost", async () => {
  const { worlds, clock, setWrong } = await nodes(["nod_a", "nod_bb"]);
  const id = await worlds[0].send({ delay: 2_000 });
  setWrong(-300_000);
  clock.now += 2_300;
  expect((await worlds[0].claim()).map(({ message }) => message.id)).toEqual([id]);
});

test("every node reports a clock jump of more than 5 s in either direction, and no smaller one", async () => {
  const { worlds, clock, jumps, open, setWrong } = await nodes(["nod_a", "nod_bb"]);
  const all = async (): Promise<void> => {
    for (const world of worlds) await world.send({ delay: 1 });
    clock.now += 100;
  };
  await all();
  setWrong(-5_000);
  await all();
  expect(jumps).toEqual([]);
  setWrong(-5_000 + 300_000);
  await all();
  await all();
  expect(jumps.splice(0)).toEqual(worlds.map(({ node }) => [node, 300_000]));
  setWrong(-5_000);
  // A node that starts now can compare the clock only with the stored time.
  const late = await open("nod_late");
  await late.send({ delay: 1 });
  expect(jumps.splice(0)).toEqual([["nod_late", expect.closeTo(-300_000, -3)]]);
  await all();
  expect(jumps).toEqual(worlds.map(({ node }) => [node, -300_000]));
});
