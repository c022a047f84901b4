import { describe, expect, test } from "vitest";
import type { Delivery } from "../../../../src/engine/core/model/delivery.ts";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import type { MessageState } from "../../../../src/engine/core/model/messageState.ts";
import type { QueueSlot } from "../../../../src/engine/core/model/limiter.ts";
import { listWrongCounters } from "../../../model/counters.ts";
import { createRandom } from "../createRandom.ts";
import type { OpenStore } from "../storeFixture.ts";
import { makeCallback, StoreFixture } from "../storeFixture.ts";

const keyed = (key: string, parallelism: number | null, rate: number | null = null) => ({
  flowControl: { key, parallelism, rate, period: null },
});

/** Messages for every combination of gates. */
const inputs: readonly Partial<MessageInput>[] = [
  {},
  { url: "https://one.example/other" },
  { url: "https://two.example/", ...keyed("k", 2) },
  keyed("k", 2),
  { queue: "q" },
  { queue: "q", ...keyed("k", 2), callback: { ...makeCallback("https://back.example/"), retries: 0 } },
  { url: "https://two.example/", queue: "q" },
  keyed("rate", null, 2),
];

/**
 * The counters of every limiter equal the sums over the rows: see `Gate` in `engine/core/admission/gate.ts`.
 */
export function describeCounters(open: OpenStore): void {
  describe("the counters of limiters", () => {
    test("equal the sums over messages and slots after any commands", async () => {
      const world = await StoreFixture.open(open);
      await world.account();
      await world.store.execute("upsertQueue", { account: "acc", name: "q", parallelism: 3 });
      const driver = new Driver(world);
      for (let step = 0; step < 100; step++) {
        await driver.step();
        expect(listWrongCounters(await driver.rows()), `after step ${step}: ${driver.done.at(-1)}`).toEqual(
          [],
        );
      }
      expect(new Set(driver.done).size).toBe(6);
      expect(new Set(driver.kindsHeld)).toEqual(new Set(["queue", "key", "endpoint", "account", "capacity"]));
      expect(world.faults).toEqual([]);
    });
  });
}

/** Runs a fixed sequence of varied commands. */
class Driver {
  readonly done: string[] = [];
  readonly kindsHeld: string[] = [];
  readonly #world: StoreFixture;
  readonly #random = createRandom(7);
  readonly #ids = new Set<string>();
  #running: Delivery[] = [];

  constructor(world: StoreFixture) {
    this.#world = world;
    world.capacity = { total: 6, perHost: 5 };
  }

  async step(): Promise<void> {
    const world = this.#world;
    const steps = { publish: 0.35, settle: 0.65, cancel: 0.7, allow: 0.8, pause: 0.85, claim: 1 };
    const chance = this.#random();
    const name = Object.entries(steps).find(([, below]) => chance < below)?.[0] ?? "claim";
    this.done.push(name);
    if (name === "publish") for (let n = 0; n < 3; n++) this.#ids.add(await world.send(this.#of(inputs)));
    else if (name === "settle") await this.#settle();
    else if (name === "cancel")
      await world.store.execute("cancel", { account: "acc", messageIds: [this.#of([...this.#ids, "none"])] });
    else if (name === "allow") {
      const limits = { globalParallelism: this.#of([null, 2, 4]), parallelism: this.#of([null, 1, 2]) };
      await world.store.execute("changeAccount", { account: "acc", change: { limits } });
    } else if (name === "pause") {
      await world.store.execute(this.#of(["pauseLimiter", "resumeLimiter"]), {
        account: "acc",
        id: this.#of(["queue:q", "key:k"]),
      });
    } else {
      world.clock.now += 1_500;
      await world.store.execute("claim", { limit: 20, hostWaitlists: 20 });
    }
    this.#running.push(...world.delivered());
  }

  async #settle(): Promise<void> {
    const delivery = this.#of(this.#running);
    if (!delivery) return;
    this.#running = this.#running.filter((one) => one !== delivery);
    await this.#world.settle(delivery, { status: this.#of([200, 200, 500]) });
  }

  #of<One>(all: readonly One[]): One {
    return all[Math.floor(this.#random() * all.length)] as One;
  }

  async rows(): Promise<Parameters<typeof listWrongCounters>[0]> {
    const { read } = this.#world.store;
    const { messageIds } = await read.unfinished({ account: "acc", filter: {}, cursor: null, count: 1_000 });
    for (const id of messageIds) this.#ids.add(id);
    const views = await Promise.all([...this.#ids].map((id) => read.message("acc", id)));
    const messages = views.flatMap((view): MessageState[] => (view?.state ? [view.state] : []));
    this.#ids.clear();
    for (const { id } of messages) this.#ids.add(id);
    for (const { waitlist } of messages)
      if (waitlist !== null) this.kindsHeld.push(waitlist.slice(0, waitlist.indexOf(":")));
    const slots = (await read.listQueueSlots("acc", "q")).map((id): QueueSlot => ({
      account: "acc",
      id,
      queue: "q",
      holders: 1,
    }));
    return { messages, slots, flows: await read.listResources("limiters", { account: "acc", limit: 1_000 }) };
  }
}
