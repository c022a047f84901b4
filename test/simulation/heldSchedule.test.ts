import { expect, test } from "vitest";
import { createIdGenerator } from "../../src/engine/core/values/ids.ts";
import { hour, minute, second } from "../../src/engine/core/values/time.ts";
import { Dispatcher } from "../../src/engine/delivery/dispatcher.ts";
import { createGroupCommitStore } from "../../src/engine/store/batch/groupCommit.ts";
import { makeInput } from "../engine/core/commandRunner.ts";
import { Memory, memoryParts } from "../model/memoryStore.ts";
import { RandomSource } from "./randomSource.ts";
import { acme, createTimedDeliver, type TimedCall } from "./timedDeliver.ts";
import { NodeClock, VirtualTime, settled } from "./virtualTime.ts";

test("a schedule fires once for the times that it missed during a hold", async () => {
  const world = new VirtualTime(new RandomSource(1));
  // A full hour, so that the times of the schedule are known.
  world.now = Math.ceil(world.now / hour) * hour;
  const start = world.now;
  const random = (): number => world.random.next();
  const source = { node: "node", now: () => world.now, random, newId: createIdGenerator(random) };
  const store = createGroupCommitStore(memoryParts(source, new Memory()));
  const calls: TimedCall[] = [];
  const deliver = createTimedDeliver({ world, start, calls, answersAfter: () => 10 });
  const log = { attempt: () => undefined, failure: (what: string) => expect.fail(what) };
  const runUntil = async (at: number): Promise<void> => {
    await settled();
    while (await world.step(start + at));
    world.now = start + at;
    await settled();
  };
  await store.execute("createAccount", acme);
  const { body, ...messageInput } = makeInput({ url: "https://one.example/" });
  const schedule = { account: "acme", id: "each-minute", cron: "* * * * *", messageInput, body };
  await store.execute("createSchedule", schedule);

  const dispatcher = new Dispatcher({
    ...{ store, deliver, log, clock: new NodeClock(world, "node") },
    capacity: { total: 10, perHost: 10 },
  });
  dispatcher.setHold(true);
  dispatcher.start();
  await runUntil(5 * minute + 30 * second);
  expect(calls).toEqual([]);
  dispatcher.setHold(false);
  await runUntil(5 * minute + 59 * second);
  expect(calls.map(({ at }) => Math.round(at / second))).toEqual([330]);
  await runUntil(8 * minute + 30 * second);
  expect(calls.map(({ at }) => Math.round(at / second))).toEqual([330, 360, 420, 480]);
});
