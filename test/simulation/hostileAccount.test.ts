import { beforeEach, expect, test } from "vitest";
import { createIdGenerator } from "../../src/engine/core/values/ids.ts";
import type { Delivery } from "../../src/engine/core/model/delivery.ts";
import type { Outcome } from "../../src/engine/core/model/attempt.ts";
import { parseHost } from "../../src/engine/core/values/url.ts";
import { Dispatcher } from "../../src/engine/delivery/dispatcher.ts";
import { createGroupCommitStore } from "../../src/engine/store/batch/groupCommit.ts";
import { Memory, memoryParts } from "../model/memoryStore.ts";
import type { Store } from "../../src/engine/store/store.ts";
import { makeInput } from "../engine/core/commandRunner.ts";
import { RandomSource } from "./randomSource.ts";
import { NodeClock, VirtualTime, settled } from "./virtualTime.ts";

// One account with 3,000 hosts beside another account: one dispatcher with a capacity of 64, in virtual time.

const second = 1000;
const hosts = Array.from({ length: 3_000 }, (_, n) => `h${n}.many.example`);

let world: VirtualTime;
let start: number;
let store: Store;
let called: string[];
/** How long each of the 3,000 hosts takes, in milliseconds. */
let takes: number;

beforeEach(() => {
  world = new VirtualTime(new RandomSource(1));
  start = world.now;
  called = [];
  const random = (): number => world.random.next();
  store = createGroupCommitStore(
    memoryParts(
      { node: "node", now: () => world.now, random, newId: createIdGenerator(random) },
      new Memory(),
    ),
  );
  for (const id of ["hostile", "acme"]) {
    const account = {
      id,
      name: "",
      password: "",
      token: "",
      tokenHash: "",
      signingKeys: { current: "", next: "" },
    };
    void store.execute("createAccount", account);
  }
});

function startDispatcher(): Dispatcher {
  const answer = async ({ message, attempt }: Delivery): Promise<Outcome> => {
    const host = parseHost(message.url);
    called.push(host);
    const took = host.includes("many") ? takes : 10;
    await world.wait(took, { owner: "destination", what: "answer" });
    const of = { account: message.account, messageId: message.id, host, attempt };
    return { ...of, status: 200, headers: [], body: new Uint8Array(0), error: null, took };
  };
  const deliver = (delivery: Delivery) => ({ outcome: answer(delivery), abort: () => undefined });
  const log = { attempt: () => undefined, failure: (what: string) => expect.unreachable(what) };
  const dispatcher = new Dispatcher({
    store,
    deliver,
    clock: new NodeClock(world, "node"),
    log,
    capacity: { total: 64, perHost: 64 },
  });
  dispatcher.start();
  return dispatcher;
}

const publish = (account: string, to: readonly string[]): void =>
  void store.execute("publish", {
    account,
    inputs: to.map((host) => makeInput({ url: `https://${host}/` })),
  });

async function runUntil(at: number): Promise<void> {
  await settled();
  while (await world.step(start + at));
  world.now = start + at;
}

const callsTo = (part: string): number => called.filter((host) => host.includes(part)).length;

test("an account whose hosts hang leaves the last eighth to others, which are not delayed", async () => {
  takes = 12 * 3600 * second;
  const dispatcher = startDispatcher();
  publish("hostile", hosts);
  await runUntil(2 * second);
  expect([callsTo("many"), dispatcher.readCapacity().free]).toEqual([56, 8]);
  for (let n = 1; n <= 10; n++) {
    publish("acme", [`shop${n}.example`]);
    await runUntil(2 * second + n * 200);
    expect(callsTo("shop")).toBe(n);
  }
  expect(callsTo("many")).toBe(56);
});

test("an account with many hosts that respond gets all of its messages delivered", async () => {
  takes = 50;
  startDispatcher();
  publish("hostile", hosts);
  // With 56 concurrent deliveries of 50 ms each.
  await runUntil(3.5 * second);
  expect(callsTo("many")).toBe(3_000);
});
