import { join } from "node:path";
import { expect, test } from "vitest";
import { alarm } from "../../../../src/engine/clock/clock.ts";
import { spans } from "../../../../src/engine/core/values/limits.ts";
import { embeddedStore } from "../../../../src/engine/store/sqlite/embeddedStore.ts";
import { chooseSeed } from "../../../seeds.ts";
import { createRandom } from "../createRandom.ts";
import { createSource, createTestFolder, sleepReal, StoreFixture, TestClock } from "../storeFixture.ts";

const second = 1_000;
const minute = 60 * second;
const hour = 60 * minute;

/** How a message was published: when, and with which delay. `order` is its place among all messages. */
type Published = { order: number; at: number; delay: number; queue: string | null };

/**
 * A server that is restarted again and again. The clock never goes forward by itself, and may be set back at
 * a restart. `passed` is the time that has really passed.
 */
class RestartedServer {
  readonly #path = join(createTestFolder(), "store.db");
  readonly #clock = new TestClock();
  readonly #random: () => number;
  #starts = 0;
  /** How far the clock was set back in total. */
  #setBack = 0;
  passed = 0;
  /** The real time of the last batch that certainly made an id. */
  #lastIdAt = 0;
  /** The real time that each restart may lose, because no id has a later time. */
  readonly #lost: { at: number; time: number }[] = [];
  #world: StoreFixture | null = null;
  readonly published = new Map<string, Published>();
  /** The real times of the claim that sent a message first, and of the claim before. */
  readonly firstSent = new Map<string, { at: number; before: number }>();
  #claimedAt = 0;

  constructor(seed: number) {
    this.#random = createRandom(seed);
  }

  get world(): StoreFixture {
    if (!this.#world) throw new Error("not started");
    return this.#world;
  }

  below(bound: number): number {
    return Math.floor(this.#random() * bound);
  }

  async start(setBack: number): Promise<void> {
    this.#setBack += setBack;
    this.#clock.now -= setBack;
    this.#lost.push({ at: this.passed, time: this.passed - this.#lastIdAt });
    const number = ++this.#starts;
    const store = await embeddedStore({
      path: this.#path,
      momentSource: createSource(this.#clock, `nod_${number}`, number),
      pause: sleepReal,
      alarm,
      elapsed: () => this.passed,
      clockCheck: "refuse",
    });
    this.#world = new StoreFixture(store, this.#clock, `nod_${number}`);
    if (number === 1) await this.#world.account();
  }

  stop(): Promise<void> {
    return this.world.store.close();
  }

  pass(time: number): void {
    this.passed += time;
    this.#clock.now += time;
  }

  /** The longest that the clock may still be set back: the server refuses a lead of an hour. */
  mayBeSetBack(): number {
    return Math.max(0, hour - minute - this.#setBack);
  }

  async publish(): Promise<void> {
    const queue = this.below(3) === 0 ? `queue ${this.below(2)}` : null;
    const delay = queue !== null || this.below(2) === 0 ? 0 : this.below(10 * minute);
    const id = await this.world.send({ ...(queue !== null && { queue }), ...(delay > 0 && { delay }) });
    this.published.set(id, { order: this.published.size, at: this.passed, delay, queue });
    this.#lastIdAt = this.passed;
    await this.receive();
  }

  /** Claims what is due, and settles all deliveries but a few. */
  async receive(): Promise<void> {
    await this.world.store.execute("claim", { limit: 100 });
    for (const delivery of this.world.delivered()) {
      const { id } = delivery.message;
      if (!this.firstSent.has(id)) this.firstSent.set(id, { at: this.passed, before: this.#claimedAt });
      if (this.below(8) === 0) continue;
      await this.world.settle(delivery);
      this.#lastIdAt = this.passed;
    }
    this.#claimedAt = this.passed;
  }

  /**
   * Returns the messages whose delay was wrong. While the time of the store is ahead of the clock, it runs at
   * 0.9 of its speed.
   */
  listWrongDelays(): string[] {
    return [...this.published].flatMap(([id, { at, delay, queue }]) => {
      const sent = this.firstSent.get(id);
      if (queue !== null || !sent) return [];
      const restarts = this.#lost.filter((one) => one.at >= at && one.at <= sent.at);
      const lost = restarts.reduce((sum, { time }) => sum + time, 0);
      const isEarly = sent.at < at + delay - restarts.length;
      const isLate = sent.before > at + delay / 0.9 + lost + second;
      if (!isEarly && !isLate) return [];
      return [`${id}: ${isEarly ? "early" : "late"}: ${JSON.stringify({ at, delay, sent, lost })}`];
    });
  }

  async isEmpty(): Promise<boolean> {
    const states = [...this.published.keys()].map((id) => this.world.store.read.message("acc", id));
    return (await Promise.all(states)).every((one) => one?.state === undefined || one.state === null);
  }
}

test(
  "with the clock set back at restarts, queues keep their order, and delays neither grow nor end early",
  { tags: "long" },
  async () => {
    const seed = chooseSeed();
    const server = new RestartedServer(seed);
    await server.start(0);
    for (let step = 0; step < 150; step++) {
      const kind = server.below(10);
      if (kind < 5) await server.publish();
      else if (kind < 9) server.pass(server.below(2) === 0 ? server.below(second) : server.below(2 * minute));
      else {
        await server.stop();
        server.pass(server.below(minute));
        await server.start(server.below(2) === 0 ? 0 : server.below(server.mayBeSetBack() / 3 + 1));
      }
      await server.receive();
    }
    for (let tries = 0; !(await server.isEmpty()) && tries < 200; tries++) {
      server.pass(spans.lease / 2);
      await server.receive();
    }
    expect(await server.isEmpty(), `seed ${seed}`).toBe(true);
    await server.stop();

    expect([...server.firstSent.keys()].sort(), `seed ${seed}`).toEqual([...server.published.keys()].sort());
    expect([...server.published.keys()].sort(), `seed ${seed}`).toEqual([...server.published.keys()]);
    for (const queue of ["queue 0", "queue 1"]) {
      const orders = [...server.firstSent.keys()].flatMap((id) => {
        const one = server.published.get(id);
        return one?.queue === queue ? [one.order] : [];
      });
      expect(orders, `seed ${seed}: ${queue}`).toEqual([...orders].sort((a, b) => a - b));
    }
    expect(server.listWrongDelays(), `seed ${seed}`).toEqual([]);
  },
);
