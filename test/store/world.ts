import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import type { Hands } from "../../src/core/admission/capacity.ts";
import { laneOf } from "../../src/core/admission/capacity.ts";
import { idMaker } from "../../src/core/values/ids.ts";
import type { Account, AccountId, Delivery, Held, Letter, Millis, NodeId, Outcome } from "../../src/core/model/message.ts";
import { hostOf } from "../../src/core/values/url.ts";
import type { PublishResult } from "../../src/core/commands/publish.ts";
import type { Source, Store } from "../../src/store/store.ts";
import { randomFrom } from "./chance.ts";
import type { LogPage } from "../../src/store/queries/logs.ts";

/** The time of the tests of a file, of which one runs at once. */
let time: Millis = 0;

/** A time that only the test moves. Each test has its own, later than all before, so that a store can serve several. */
export class TestClock {
  constructor(start: Millis = Math.max(1_800_000_000_000, time + 1e10)) {
    this.now = start;
  }

  get now(): Millis {
    return time;
  }

  set now(at: Millis) {
    time = at;
  }
}

/** Opens the store that is tested, empty, as one node of it sees it. It sees to it that the store is closed when the test has ended. */
export type OpenStore = (clock: TestClock, node: NodeId) => Promise<Store>;

/** Time from a clock of the test, ids and chance from a seed. */
export function sourceOf(clock: TestClock, node: NodeId, seed = 1): Source {
  const random = randomFrom(seed);
  return { node, now: () => clock.now, random, newId: idMaker(random) };
}

/** Lets real time pass. */
export const pauseOf = (time: Millis): Promise<void> => new Promise((resolve) => void setTimeout(resolve, time));

/** The clock of a node in PostgreSQL tests: stands still until the test moves it, and yet lets real time pass in waiting. */
export const paceOf = (clock: TestClock) => ({
  now: () => clock.now,
  sleep: (until: Millis, wake: AbortSignal): Promise<void> =>
    new Promise((resolve) => {
      if (wake.aborted) return resolve();
      const timer = setTimeout(resolve, Math.max(0, until - clock.now));
      wake.addEventListener("abort", () => {
        clearTimeout(timer);
        resolve();
      });
    }),
});

/** Closes a store when the test has ended. */
export function closedAfterwards(store: Store): Store {
  onTestFinished(() => store.close());
  return store;
}

/** A folder that goes with the test. */
export function freshFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "waypost-store-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** One node at a store: its hands, what was handed to it, and short ways to say what tests often say. */
export class World {
  readonly store: Store;
  readonly clock: TestClock;
  readonly node: NodeId;
  readonly dues: Millis[] = [];
  /** Free hands, as they were at the beginning: what is out counts against them. */
  hands = { total: 100, perHost: 100 };
  behind = false;
  bytes = { total: 2 ** 30, perBatch: 2 ** 25 };
  readonly faults: string[] = [];
  readonly calledOff: Held[] = [];
  readonly #delivered: Delivery[] = [];
  readonly #out = new Map<string, Delivery>();

  constructor(store: Store, clock: TestClock, node: NodeId) {
    this.store = store;
    this.clock = clock;
    this.node = node;
    store.onDue((at) => this.dues.push(at));
    store.attach({
      hands: () => this.#free(),
      fault: (what) => this.faults.push(what),
      callOff: (held) => this.calledOff.push(held),
      deliver: (delivery) => {
        this.#delivered.push(delivery);
        this.#out.set(delivery.message.id, delivery);
      },
    });
  }

  static async open(open: OpenStore, { clock = new TestClock(), node = "nod_a" } = {}): Promise<World> {
    return new World(await open(clock, node), clock, node);
  }

  #free(): Hands {
    const busy = new Map<string, number>();
    const busyBytes: Record<string, number> = {};
    let { total } = this.bytes;
    for (const { message } of this.#out.values()) {
      const lane = laneOf(message.account, hostOf(message.url));
      busy.set(lane, (busy.get(lane) ?? 0) + 1);
      busyBytes[lane] = (busyBytes[lane] ?? 0) + message.body.byteLength;
      total -= message.body.byteLength;
    }
    const bytes = { free: total, perBatch: this.bytes.perBatch, busy: busyBytes };
    return { free: this.hands.total - this.#out.size, perHost: this.hands.perHost, behind: this.behind, busy, bytes };
  }

  /** What was handed over since this was last asked. */
  delivered(): Delivery[] {
    return this.#delivered.splice(0);
  }

  account(id = "acc"): Promise<Account> {
    return this.store.execute("createAccount", accountNamed(id));
  }

  publish(letters: readonly Letter[], account: AccountId = "acc"): Promise<PublishResult[]> {
    return this.store.execute("publish", { account, letters });
  }

  /** Publishes one letter that must be accepted, and answers its id. */
  async send(over: Partial<Letter> = {}, account: AccountId = "acc"): Promise<string> {
    const [result] = await this.publish([letterTo(over)], account);
    if (!result || !("messageId" in result)) throw new Error(`not accepted: ${JSON.stringify(result)}`);
    return result.messageId;
  }

  /** Publishes one letter that must be leased at once, and answers its delivery. */
  async sent(over: Partial<Letter> = {}, account: AccountId = "acc"): Promise<Delivery> {
    const id = await this.send(over, account);
    const delivery = this.delivered().find(({ message }) => message.id === id);
    if (!delivery) throw new Error("not leased at once");
    return delivery;
  }

  /** The hand that a delivery held is free again. */
  putDown(messageId: string): void {
    this.#out.delete(messageId);
  }

  settle(delivery: Delivery, over: Partial<Outcome> = {}) {
    this.putDown(delivery.message.id);
    return this.store.execute("settle", outcomeOf(delivery, over));
  }

  async claim(limit = 100): Promise<Delivery[]> {
    await this.store.execute("claim", { limit });
    return this.delivered();
  }

  /** Publishes a message that fails for good, and answers its id and that of its dead letter. */
  async die(over: Partial<Letter> = {}, account: AccountId = "acc"): Promise<{ messageId: string; dlqId: string }> {
    const delivery = await this.sent({ retries: 0, ...over }, account);
    await this.settle(delivery, { status: 500 });
    const { entries } = await this.store.read.deadLetters(latest({ account }));
    const entry = entries.find(({ letter }) => letter.messageId === delivery.message.id);
    if (!entry) throw new Error("not in the dead letter queue");
    return { messageId: delivery.message.id, dlqId: entry.letter.id };
  }

  /** The states of a message as its log tells them. */
  async states(messageId: string, account: AccountId = "acc"): Promise<string[]> {
    return statesOf(await this.store.read.log(earliest({ account, filter: { messageIds: [messageId] } })));
  }
}

/** States of a page, in its order. */
export const statesOf = ({ events }: LogPage): string[] => events.map(({ state }) => state);

type Query = Parameters<Store["read"]["log"]>[0];

/** A query from the newest to the oldest, with whatever the test is after. */
export const latest = (over: Partial<Query> = {}): Query => ({
  account: "acc",
  filter: {},
  order: "latestFirst",
  cursor: null,
  count: 100,
  ...over,
});
export const earliest = (over: Partial<Query> = {}): Query => latest({ order: "earliestFirst", ...over });

/** What an account is made of. */
export const accountNamed = (id: string): Omit<Account, "createdAt"> => ({
  ...{ id, name: `name of ${id}`, password: "secret", token: `token-${id}`, tokenHash: `hash-${id}` },
  signingKeys: { current: `sig_${id}_1`, next: `sig_${id}_2` },
});

export const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

/** A letter to one host, due at once, with whatever the test is after. */
export const letterTo = (over: Partial<Letter> = {}): Letter => ({
  ...{ brand: "svc", url: "https://one.example/hook", method: "POST", headers: [["Content-Type", "text/plain"]], body: bytes("hello") },
  ...{
    retries: 3,
    retryDelay: null,
    timeout: 10_000,
    flowControl: null,
    callback: null,
    failureCallback: null,
    delay: null,
    notBefore: null,
  },
  ...{
    deduplication: null,
    ...{ group: null, endpoint: null, queue: null, scheduleId: null },
    labels: [],
    redaction: null,
    callerIp: "192.0.2.1",
    tells: null,
  },
  ...over,
});

/** An answer to a delivery: 200, if the test does not say otherwise. */
export const outcomeOf = ({ message, attempt }: Delivery, over: Partial<Outcome> = {}): Outcome => ({
  ...{ account: message.account, messageId: message.id, host: hostOf(message.url), attempt, status: 200 },
  ...{ headers: [["X-From", "there"]], body: bytes("answer"), error: null, took: 5 },
  ...over,
});

/** A callback as a letter carries it. */
export const callbackTo = (url: string) => ({
  url,
  ...({
    method: "POST",
    headers: [],
    retries: 1,
    retryDelay: null,
    timeout: 5_000,
    flowControl: null,
    callback: null,
    failureCallback: null,
  } as const),
});
