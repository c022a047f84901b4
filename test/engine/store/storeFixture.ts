import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished } from "vitest";
import type { DeliveryCapacity } from "../../../src/engine/core/admission/capacity.ts";
import { laneName } from "../../../src/engine/core/admission/capacity.ts";
import { createIdGenerator } from "../../../src/engine/core/values/ids.ts";
import type { Account } from "../../../src/engine/core/model/account.ts";
import type { AccountId, Millis, NodeId } from "../../../src/engine/core/values/basics.ts";
import type { Delivery } from "../../../src/engine/core/model/delivery.ts";
import type { LeaseRef } from "../../../src/engine/core/model/messageState.ts";
import type { MessageInput } from "../../../src/engine/core/model/message.ts";
import type { Outcome } from "../../../src/engine/core/model/attempt.ts";
import { parseHost } from "../../../src/engine/core/values/url.ts";
import type { PublishResult } from "../../../src/engine/core/commands/publish.ts";
import type { MomentSource, Store } from "../../../src/engine/store/store.ts";
import { createRandom } from "./createRandom.ts";
import { makeInput as makeCoreInput } from "../core/commandRunner.ts";
import type { LogPage } from "../../../src/engine/store/queries/logs.ts";
import { withSentBody } from "../../sentBody.ts";

/** The time of the tests of a file. Only one of them runs at a time. */
let time: Millis = 0;
/** The file whose tests have the time. Files may share this module. */
let file: string | undefined;

/**
 * A clock that only the test moves. Each test has a clock that starts later than all earlier ones of its
 * file, so that one store can serve several tests. All files together would reach the year 2286, when times
 * have a digit more, and so another order as strings.
 */
export class TestClock {
  constructor(start?: Millis) {
    const { testPath } = expect.getState();
    if (testPath !== file) time = 0;
    file = testPath;
    this.now = start ?? Math.max(1_800_000_000_000, time + 1e10);
  }

  get now(): Millis {
    return time;
  }

  set now(at: Millis) {
    time = at;
  }
}

/**
 * Opens the tested store, empty, as one of its nodes sees it. The store is closed when the test has ended.
 */
export type OpenStore = (clock: TestClock, node: NodeId) => Promise<Store>;

/** Returns a source with the time of a test's clock, and with ids and randomness from a seed. */
export function createSource(clock: TestClock, node: NodeId, seed = 1): MomentSource {
  const random = createRandom(seed);
  return { node, now: () => clock.now, random, newId: createIdGenerator(random) };
}

/** Waits for real time. */
export const sleepReal = (time: Millis): Promise<void> =>
  new Promise((resolve) => void setTimeout(resolve, time));

/**
 * Returns the clock of a node in PostgreSQL tests. It stands still until the test moves it, but waiting takes
 * real time.
 */
export const createSteppedClock = (clock: TestClock) => ({
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
export function closeAfterTest(store: Store): Store {
  onTestFinished(() => store.close());
  return store;
}

/** Creates a folder that is removed when the test has ended. */
export function createTestFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "waypost-store-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** One node of a store: its capacity, its deliveries, and short forms of frequent commands. */
export class StoreFixture {
  readonly store: Store;
  readonly clock: TestClock;
  readonly node: NodeId;
  readonly dues: Millis[] = [];
  /** The initial delivery capacity. Running deliveries use it up. */
  capacity = { total: 100, perHost: 100 };
  behind = false;
  /** The messages that pulls wait for, by lane. */
  pulls: ReadonlyMap<string, number> = new Map();
  bytes = { total: 2 ** 30, perBatch: 2 ** 25 };
  readonly faults: string[] = [];
  readonly calledOff: LeaseRef[] = [];
  readonly settledLeases: LeaseRef[] = [];
  /** How often another node has announced that it ended deliveries. */
  renewals = 0;
  readonly #delivered: Delivery[] = [];
  readonly #inFlight = new Map<string, Delivery>();

  constructor(store: Store, clock: TestClock, node: NodeId) {
    this.store = store;
    this.clock = clock;
    this.node = node;
    store.onDue((at) => this.dues.push(at));
    store.attach({
      readCapacity: () => this.#freeCapacity(),
      fault: (what) => this.faults.push(what),
      abort: (held) => this.calledOff.push(held),
      renewLeases: () => (this.renewals += 1),
      settled: (lease) => this.settledLeases.push(lease),
      deliver: (shared) => {
        const delivery = withSentBody(shared);
        this.#delivered.push(delivery);
        this.#inFlight.set(delivery.message.id, delivery);
      },
    });
  }

  static async open(
    open: OpenStore,
    { clock = new TestClock(), node = "nod_a" } = {},
  ): Promise<StoreFixture> {
    return new StoreFixture(await open(clock, node), clock, node);
  }

  #freeCapacity(): DeliveryCapacity {
    const runningByLane = new Map<string, number>();
    const bytesByLane: Record<string, number> = {};
    let { total } = this.bytes;
    for (const { message } of this.#inFlight.values()) {
      const lane = laneName(message.account, parseHost(message.url));
      runningByLane.set(lane, (runningByLane.get(lane) ?? 0) + 1);
      bytesByLane[lane] = (bytesByLane[lane] ?? 0) + message.body.byteLength;
      total -= message.body.byteLength;
    }
    const bytes = { free: total, perBatch: this.bytes.perBatch, byLane: bytesByLane };
    return {
      free: this.capacity.total - this.#inFlight.size,
      perHost: this.capacity.perHost,
      backlog: this.behind,
      runningByLane,
      pulls: this.pulls,
      bytes,
    };
  }

  /** Returns the deliveries since the last call. */
  delivered(): Delivery[] {
    return this.#delivered.splice(0);
  }

  account(id = "acc"): Promise<Account> {
    return this.store.execute("createAccount", makeAccount(id));
  }

  publish(inputs: readonly MessageInput[], account: AccountId = "acc"): Promise<PublishResult[]> {
    return this.store.execute("publish", { account, inputs });
  }

  /** Publishes a message that must be accepted, and returns its id. */
  async send(overrides: Partial<MessageInput> = {}, account: AccountId = "acc"): Promise<string> {
    const [result] = await this.publish([makeInput(overrides)], account);
    if (!result || !("messageId" in result)) throw new Error(`not accepted: ${JSON.stringify(result)}`);
    return result.messageId;
  }

  /** Publishes a message that must be leased at once, and returns its delivery. */
  async sent(overrides: Partial<MessageInput> = {}, account: AccountId = "acc"): Promise<Delivery> {
    const id = await this.send(overrides, account);
    const delivery = this.delivered().find(({ message }) => message.id === id);
    if (!delivery) throw new Error("not leased at once");
    return delivery;
  }

  /** Frees the capacity that a delivery used. */
  forgetDelivery(messageId: string): void {
    this.#inFlight.delete(messageId);
  }

  settle(delivery: Delivery, overrides: Partial<Outcome> = {}) {
    this.forgetDelivery(delivery.message.id);
    return this.store.execute("settle", makeOutcome(delivery, overrides));
  }

  async claim(limit = 100): Promise<Delivery[]> {
    await this.store.execute("claim", { limit });
    return this.delivered();
  }

  /** Publishes a message that fails for good, and returns its id and the id of its dead letter. */
  async publishFailing(
    overrides: Partial<MessageInput> = {},
    account: AccountId = "acc",
  ): Promise<{ messageId: string; dlqId: string }> {
    const delivery = await this.sent({ retries: 0, ...overrides }, account);
    await this.settle(delivery, { status: 500 });
    const { entries } = await this.store.read.deadLetters(makeLogQuery({ account }));
    const entry = entries.find(({ deadLetter: input }) => input.messageId === delivery.message.id);
    if (!entry) throw new Error("not in the dead letter queue");
    return { messageId: delivery.message.id, dlqId: entry.deadLetter.id };
  }

  /** Returns the states of a message from its log. */
  async states(messageId: string, account: AccountId = "acc"): Promise<string[]> {
    return listStates(
      await this.store.read.log(makeOldestFirstQuery({ account, filter: { messageIds: [messageId] } })),
    );
  }
}

/** Returns the states of a page, in its order. */
export const listStates = ({ events }: LogPage): string[] => events.map(({ state }) => state);

type Query = Parameters<Store["read"]["log"]>[0];

/** Returns a query from the newest to the oldest entry. */
export const makeLogQuery = (overrides: Partial<Query> = {}): Query => ({
  account: "acc",
  filter: {},
  order: "latestFirst",
  cursor: null,
  count: 100,
  ...overrides,
});
/** Returns a query from the oldest to the newest entry. */
export const makeOldestFirstQuery = (overrides: Partial<Query> = {}): Query =>
  makeLogQuery({ order: "earliestFirst", ...overrides });

/** Returns the input that creates an account. */
export const makeAccount = (id: string): Omit<Account, "createdAt"> => ({
  id,
  name: `name of ${id}`,
  password: "secret",
  token: `token-${id}`,
  tokenHash: `hash-${id}`,
  signingKeys: { current: `sig_${id}_1`, next: `sig_${id}_2` },
});

/** Returns a string as UTF-8. */
export const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

/** Returns the input of a message to one host that is due at once. */
export const makeInput = (overrides: Partial<MessageInput> = {}): MessageInput =>
  makeCoreInput({
    url: "https://one.example/hook",
    headers: [["Content-Type", "text/plain"]],
    retries: 3,
    timeout: 10_000,
    callerIp: "192.0.2.1",
    ...overrides,
  });

/** Returns an outcome of a delivery, with status 200 by default. */
export const makeOutcome = ({ message, attempt }: Delivery, overrides: Partial<Outcome> = {}): Outcome => ({
  account: message.account,
  messageId: message.id,
  host: parseHost(message.url),
  attempt,
  status: 200,
  headers: [["X-From", "there"]],
  body: bytes("answer"),
  error: null,
  took: 5,
  timing: { startedAt: time - 7, connect: 2, firstByte: 3, duration: 7 },
  ...overrides,
});

/** Returns a callback with default settings. */
export const makeCallback = (url: string) =>
  ({
    url,
    method: "POST",
    headers: [],
    retries: 1,
    retryDelay: null,
    timeout: 5_000,
    flowControl: null,
    callback: null,
    failureCallback: null,
  }) as const;
