import { beforeEach, describe, expect, test } from "vitest";
import type { CommandResult, CommandName, CommandInput } from "../../src/engine/store/catalog/commands.ts";
import { createIdGenerator } from "../../src/engine/core/values/ids.ts";
import type { Delivery } from "../../src/engine/core/model/delivery.ts";
import type { MessageInput } from "../../src/engine/core/model/message.ts";
import type { Millis } from "../../src/engine/core/values/basics.ts";
import type { Outcome } from "../../src/engine/core/model/attempt.ts";
import { parseHost } from "../../src/engine/core/values/url.ts";
import { Dispatcher } from "../../src/engine/delivery/dispatcher.ts";
import { createGroupCommitStore } from "../../src/engine/store/batch/groupCommit.ts";
import { Memory, memoryParts } from "../model/memoryStore.ts";
import type { Store } from "../../src/engine/store/store.ts";
import { makeInput } from "../engine/core/commandRunner.ts";
import { RandomSource } from "./randomSource.ts";
import { NodeClock, VirtualTime, settled } from "./virtualTime.ts";

// How a hostile account with many messages affects the deliveries of another with few, in virtual time.

const second: Millis = 1000;
/** How long a commit takes. */
const commit: Millis = 5;
const answerTime: Millis = 10;

let world: VirtualTime;
let start: Millis;
let store: Store;
/** When messages of the honest account were due, and when they arrived, by URL. */
let dueAt: Map<string, Millis>;
let arrivedAt: Map<string, Millis>;

beforeEach(async () => {
  world = new VirtualTime(new RandomSource(1));
  start = world.now;
  dueAt = new Map();
  arrivedAt = new Map();
  const random = (): number => world.random.next();
  const memory = createGroupCommitStore(
    memoryParts(
      { node: "node", now: () => world.now, random, newId: createIdGenerator(random) },
      new Memory(),
    ),
  );
  store = {
    ...memory,
    execute: async <N extends CommandName>(name: N, input: CommandInput<N>): Promise<CommandResult<N>> => {
      await world.wait(commit, { owner: "store", what: "disk" });
      return memory.execute(name, input);
    },
  };
  for (const id of ["hostile", "honest"]) {
    const keys = { current: "", next: "" };
    await memory.execute("createAccount", {
      id,
      name: id,
      password: "",
      token: id,
      tokenHash: id,
      signingKeys: keys,
    });
  }
});

/** Starts a dispatcher. `hanging` reports whether a host never responds. */
function dispatch(total: number, hanging: (host: string) => boolean = () => false): void {
  const clock = new NodeClock(world, "node");
  const deliver = ({ message, attempt }: Delivery) => {
    const { account, id: messageId, url } = message;
    if (account === "honest") arrivedAt.set(url, world.now);
    const host = parseHost(url);
    const cut = Promise.withResolvers<Outcome>();
    const none = {
      account,
      messageId,
      host,
      attempt,
      headers: [],
      body: new Uint8Array(0),
      took: answerTime,
    };
    const answered = async (): Promise<Outcome> => {
      await world.wait(hanging(host) ? 3_600 * second : answerTime, { owner: "destination", what: "answer" });
      return { ...none, status: 200, error: null };
    };
    return {
      outcome: Promise.race([answered(), cut.promise]),
      abort: () => cut.resolve({ ...none, status: null, error: "aborted" }),
    };
  };
  const log = { attempt: () => undefined, failure: () => undefined };
  new Dispatcher({ store, deliver, clock, log, capacity: { total, perHost: total } }).start();
}

const publish = (account: string, inputs: readonly Partial<MessageInput>[]): void =>
  void store.execute("publish", { account, inputs: inputs.map((input) => makeInput(input)) });

/** Publishes every 100 ms for the honest account: one message that is due at once, and one with a delay. */
function publishHonestly(from: Millis, until: Millis): void {
  for (let at = from; at < until; at += 100) {
    world.after(at, { owner: "honest", what: "publish" }, () => {
      const soon = `https://honest.example/soon/${at}`;
      const later = `https://honest.example/later/${at}`;
      dueAt.set(soon, world.now);
      dueAt.set(later, world.now + second);
      publish("honest", [{ url: soon }, { url: later, delay: second }]);
    });
  }
}

async function runUntil(at: Millis): Promise<void> {
  await settled();
  while (await world.step(start + at));
  world.now = start + at;
}

/** Returns the longest time between the due time and the arrival of a message of the honest account. */
const worstDelay = (): Millis =>
  Math.max(...[...dueAt].map(([url, due]) => (arrivedAt.get(url) ?? Infinity) - due));

describe("an honest account is not delayed by", () => {
  test.each([
    ["one host", 1],
    ["many hosts", 500],
  ])("a backlog of another account for %s", async (_, hosts) => {
    const backlog = Array.from({ length: 6_000 }, (_, at) => ({
      url: `https://h${at % hosts}.hostile.example/`,
      delay: second,
    }));
    for (let at = 0; at < backlog.length; at += 500) publish("hostile", backlog.slice(at, at + 500));
    publishHonestly(500, 4 * second);
    dispatch(100);
    await runUntil(6 * second);
    expect(dueAt.size).toBe(70);
    // Enough for a few commands with their commits.
    expect(worstDelay()).toBeLessThanOrEqual(10 * commit);
  });

  test("schedules of another account that all fire at once", async () => {
    for (let at = 0; at < 300; at++) {
      const { body, ...messageInput } = makeInput({ url: `https://h${at}.hostile.example/` });
      void store.execute("createSchedule", {
        account: "hostile",
        id: `s${at}`,
        cron: "* * * * *",
        messageInput,
        body,
      });
    }
    publishHonestly(58 * second, 63 * second);
    dispatch(100);
    await runUntil(65 * second);
    expect(worstDelay()).toBeLessThanOrEqual(10 * commit);
  });
});
