import { createHash } from "node:crypto";
import type { Commands } from "../../src/core/commands/index.ts";
import { noHands } from "../../src/core/admission/capacity.ts";
import { idMaker } from "../../src/core/values/ids.ts";
import { spans } from "../../src/core/values/limits.ts";
import type { AccountId, Millis } from "../../src/core/model/message.ts";
import type { Call, Store } from "../../src/store/store.ts";
import { Chance } from "./chance.ts";
import type { Known } from "./clients.ts";
import { randomCancel, randomDelete, randomLetters, randomRetry } from "./clients.ts";
import { Destinations } from "./destinations.ts";
import { Endpoints } from "./endpoints.ts";
import { Judge } from "./judge.ts";
import type { Broker } from "./node.ts";
import { SimulatedNode, faultNames, noFaults } from "./node.ts";
import { Holds } from "./holds.ts";
import { Meetings } from "./meetings.ts";
import { randomRunRequest } from "./runClients.ts";
import type { Storage } from "./storage.ts";
import { memoryStorage } from "./storage.ts";
import { randomScope } from "./scopes.ts";
import { clear, prepare, randomSetUp, release, unschedule } from "./setUp.ts";
import { World } from "./world.ts";

const second: Millis = 1000;
const hour: Millis = 3600 * second;

/**
 * `runs`: the share of what clients ask that is about workflow runs. `meet`: batches of several nodes are at work at the same time. `quota`: the
 * bytes that each account may store as long as there is trouble.
 */
export type Options = { seed: number; actions?: number; runs?: number; meet?: boolean; quota?: number | null } & {
  decisions?: Commands;
  storage?: Storage;
};
/** `failure`: the broken promise, if any. */
export type Report = {
  seed: number;
  failure: string | null;
  trace: readonly string[];
  happened: ReadonlySet<string>;
  digest: string;
  messages: number;
  steps: number;
};

/** More steps than any run needs that comes to rest. */
const mostSteps = 500_000;

/** Runs a whole broker in virtual time: first with everything that can go wrong, then until it is quiet, then until it is empty. */
export async function simulate({
  seed,
  actions = 150,
  runs = 0.2,
  meet = false,
  quota = null,
  decisions,
  storage = memoryStorage(decisions),
}: Options): Promise<Report> {
  const run = new Simulation(seed, storage, { runs, quota });
  try {
    await run.trouble(actions, meet);
    await run.quiet();
    await run.empty();
  } finally {
    await storage.close();
  }
  return run.report(seed);
}

class Simulation {
  readonly #world: World;
  readonly #chance: Chance;
  /** What tokens are good for. By a chance of its own, so that all else is as it would be without. */
  readonly #scopes: Chance;
  readonly #broker: Broker;
  readonly #judge: Judge;
  readonly #known: Known[] = ["acme", "umbrella"].map((account) => ({ account, messageIds: [], dlqIds: [] }));
  readonly #shareOfRuns: number;
  #nodes: SimulatedNode[] = [];
  #born = 0;
  #steps = 0;
  #calm = false;
  #isClockWrong = false;
  readonly #isLimited: boolean;

  constructor(seed: number, storage: Storage, { runs: shareOfRuns, quota }: { runs: number; quota: number | null }) {
    this.#shareOfRuns = shareOfRuns;
    this.#isLimited = seed % 3 === 0;
    const chance = new Chance(seed);
    this.#scopes = new Chance(seed + 1_000_000);
    const world = new World(chance, storage.atWork);
    const retention = { log: chance.of([1, 3]) * hour, deadLetters: chance.of([1, 2, 6]) * hour, audit: 5 * hour };
    // Bodies have up to 20 bytes, those of callbacks some hundred.
    const bytes = { total: chance.of([300, 1_000, 3_000]), perBatch: chance.of([10, 30, 1_000]) };
    const hands = { total: chance.between(2, 14), perHost: chance.between(2, 8), bytes };
    this.#world = world;
    this.#chance = chance;
    this.#judge = new Judge({ world, storage, retention, hands });
    const destinations = new Destinations(chance, chance.between(3, 24));
    const { runs, demand, happened } = this.#judge;
    const endpoints = new Endpoints({
      ...{ world, hosts: destinations.hosts, ask: (request) => this.#ask(request), ran: (run, stepId) => runs.ran(run, stepId) },
      ...{ wrong: (why) => demand(false, why), happens: (what) => happened.add(what), endedRun: (account) => runs.endedRun(account) },
    });
    this.#broker = {
      ...{ world, storage, retention, hands, judge: this.#judge, destinations, endpoints },
      faults: { ...noFaults },
      quota,
      meetings: new Meetings({ world, storage }),
      holds: seed % 2 === 0 ? new Holds(storage) : null,
      tell: (from, at) => this.#nodes.forEach((node) => node.id !== from && node.hearOf(at)),
      kill: (node, why) => this.#kill(node, why),
    };
    world.note(`seed ${seed}: hands ${JSON.stringify(hands)} retention ${JSON.stringify(retention)}`);
    world.note(destinations.hosts.map((host) => `${host} ${destinations.natureOf(host)}`).join(", "));
  }

  report(seed: number): Report {
    const { trace } = this.#world;
    const failure = this.#judge.broken;
    const digest = createHash("sha256").update(trace.join("\n")).digest("hex").slice(0, 16);
    const { happened, lives } = this.#judge;
    return { seed, failure, trace, happened, digest, messages: lives.size, steps: this.#steps };
  }

  /** Clients at work, and everything that can go wrong. */
  async trouble(actions: number, meet: boolean): Promise<void> {
    const chance = this.#chance;
    const { faults } = this.#broker;
    for (const name of faultNames) {
      faults[name] = chance.happens(0.5) ? chance.of([0.01, 0.03, 0.1]) : 0;
    }
    this.#broker.endpoints.trouble = chance.of([0, 0.3, 1]);
    if (meet) this.#broker.meetings.often = chance.of([0.2, 0.7]);
    const count = chance.between(meet ? 3 : 1, 4);
    for (let started = 0; started < count; started++) this.#startNode();
    await this.#runFor(second);
    await this.#createAccounts();
    const { hosts } = this.#broker.destinations;
    const { quota } = this.#broker;
    const setQuota =
      (storageBytes: number | null) =>
      (account: AccountId): Call[] => [{ name: "changeAccount", input: { account, change: { limits: { storageBytes } } } }];
    if (quota !== null) await this.#order(setQuota(quota));
    const [letter] = randomLetters({ chance, hosts: hosts.slice(0, 1), now: this.#world.now });
    if (letter) await this.#order((account) => prepare(account, { letter, hosts }));
    const pace = chance.of(meet ? [5, 20] : [20, 200, 2 * second]);
    const troublePace = chance.of([3 * second, 20 * second, hour]);
    let left = actions;
    const act = (): void => {
      if (left <= 0) return;
      if (this.#actOnce()) left--;
      this.#world.after(chance.gap(pace), { owner: "world", what: "client" }, act);
    };
    const trouble = (): void => {
      if (this.#calm) return;
      this.#troubleOnce();
      this.#world.after(chance.gap(troublePace), { owner: "world", what: "trouble" }, trouble);
    };
    act();
    trouble();
    while (left > 0 && this.#judge.broken === null) await this.#runFor(10 * second);
    await this.#runFor(chance.of([0, 60 * second, 300 * second]));
  }

  /** Without clients and faults everything comes to its end. Retries may take long; a day is enough for the longest chain. */
  async quiet(): Promise<void> {
    this.#calm = true;
    Object.assign(this.#broker.faults, noFaults);
    this.#broker.endpoints.trouble = 0;
    this.#broker.meetings.often = 0;
    this.#world.note("calm");
    await this.#runFor(600 * second);
    // A node whose clock was put back wakes as much too late, unless something else wakes it.
    if (!this.#isClockWrong) this.#judge.checkSchedules();
    await this.#order(unschedule);
    await this.#untilFinished(hour);
    this.#judge.checkHeldBack();
    await this.#order(release);
    await this.#untilFinished(48 * hour);
    // What is left of lines and of old alarms.
    await this.#runFor(60 * second);
    this.#judge.checkQuiet();
  }

  async #untilFinished(most: Millis): Promise<void> {
    const until = this.#world.now + most;
    while (this.#judge.unfinished > 0 && this.#world.now < until && this.#judge.broken === null) await this.#runFor(60 * second);
  }

  /** Somebody who keeps house does something in all accounts. */
  async #order(callsFor: (account: AccountId) => Call[]): Promise<void> {
    const calls = this.#known.flatMap(({ account }) => callsFor(account));
    const store = this.#broker.storage.open(this.#source("house"));
    await this.#broker.meetings.inTurn(async () => {
      const result = await store.runBatch(calls, noHands);
      await this.#judge.committed({ node: "house", calls, result, hands: noHands });
      if (result.dueAt !== null) this.#broker.tell("house", result.dueAt);
    });
    await store.close();
  }

  /** Nobody works without need, and history goes when its time has come. */
  async empty(): Promise<void> {
    await this.#order(clear);
    await this.#runFor(spans.idleKey + 3 * hour);
    const { claims } = this.#judge;
    const { log, deadLetters, audit } = this.#broker.retention;
    // By now the log of some dead letters is kept for them alone.
    const letters = [...this.#broker.storage.tables.deadLetters.values()].filter((_, at) => at % 2 === 0);
    await this.#order((account) => {
      const dlqIds = letters.filter((letter) => letter.account === account).map(({ id }) => id);
      return [{ name: "deleteDeadLetters", input: { account, dlqIds, logRetention: log } }];
    });
    await this.#runFor(2 * Math.max(log, deadLetters, audit ?? 0) + 2 * hour);
    await this.#runFor(40 * 24 * hour);
    this.#judge.checkEmpty();
    this.#judge.demand(this.#judge.claims === claims, `an idle broker does nothing: ${this.#judge.claims - claims} claims`);
    const pending = this.#world.pending();
    this.#judge.demand(pending.length === 0, `an idle broker sleeps: ${pending.join(", ")}`);
  }

  async #runFor(time: Millis): Promise<void> {
    const until = this.#world.now + time;
    await this.#world.settled();
    while (this.#judge.broken === null && (await this.#world.step(until))) {
      this.#judge.demand(++this.#steps < mostSteps, "a run comes to rest");
    }
    this.#world.now = until;
  }

  async #createAccounts(): Promise<void> {
    const store = this.#broker.storage.open(this.#source("setup"));
    const calls = this.#known.map(({ account: id }, at) => ({
      name: "createAccount" as const,
      input: {
        ...{ id, name: id, password: "", token: id, tokenHash: id, signingKeys: { current: `${id}-1`, next: `${id}-2` } },
        // What one account may not do any more must not be missed by the other.
        ...(at === 1 && this.#isLimited ? { limits: { requestsPerDay: 20, requestsPerDayHard: 40 } } : {}),
      },
    }));
    await store.runBatch(calls, noHands);
    await store.close();
    // The judge begins here.
    await this.#broker.storage.changes();
  }

  #source(node: string) {
    const random = (): number => this.#chance.next();
    return { node, now: () => this.#world.now, random, newId: idMaker(random) };
  }

  #startNode(): void {
    const ahead = this.#chance.happens(0.3) ? this.#chance.of([-hour, -5 * second, 5 * second, hour]) : 0;
    const node = new SimulatedNode(this.#broker, `node-${++this.#born}`, ahead);
    const alone = this.#nodes.length === 0;
    this.#nodes.push(node);
    this.#world.note(`${node.id} starts${alone ? " alone" : ""}, its clock ${ahead} ms ahead`);
    void node.start(alone);
  }

  #kill(node: SimulatedNode, why: string): void {
    if (!this.#nodes.includes(node)) return;
    this.#world.note(`${node.id} dies ${why}`);
    node.die();
    this.#gone(node);
  }

  /** Another one takes its place after a while. */
  #gone(node: SimulatedNode): void {
    this.#nodes = this.#nodes.filter((other) => other !== node);
    this.#world.after(this.#chance.between(100, 20 * second), { owner: "world", what: "start" }, () => this.#startNode());
  }

  #stop(node: SimulatedNode): void {
    if (node.closed) return;
    const grace = this.#chance.between(0, 20 * second);
    this.#world.note(`${node.id} is stopped, grace ${grace}`);
    node.stop(grace).then(
      () => {
        node.die();
        if (this.#nodes.includes(node)) this.#gone(node);
      },
      () => this.#kill(node, "in its stop"),
    );
  }

  #troubleOnce(): void {
    const chance = this.#chance;
    if (this.#nodes.length === 0) return;
    const node = chance.of(this.#nodes);
    const what = chance.next();
    const { holds } = this.#broker;
    if (holds && chance.happens(0.4)) {
      // A restart of the database ends all sessions at once.
      const isRestart = chance.happens(0.2);
      if (isRestart) holds.restart();
      for (const one of isRestart ? this.#nodes : [node])
        one.loseSession(chance.of([10, 500, 1_400, 1_600, 3 * second, 30 * second]), isRestart ? 0 : chance.of([0, 300, 900]));
    } else if (what < 0.25) this.#kill(node, "of nothing in particular");
    else if (what < 0.5) this.#stop(node);
    else if (what < 0.7) {
      node.cutOff(this.#world.now + chance.of([2, 20, 45, 100]) * second);
      this.#world.note(`${node.id} is cut off from its storage until ${node.cutOffUntil}`);
    } else {
      this.#isClockWrong = true;
      node.clock.ahead += chance.of([-hour, -30 * second, -second, second, 30 * second, hour]);
      this.#world.note(`${node.id} clock is ${node.clock.ahead} ahead`);
    }
  }

  /** False when there is no node that could answer. */
  #actOnce(): boolean {
    const chance = this.#chance;
    const open = this.#nodes.filter((node) => !node.closed);
    if (open.length === 0) return false;
    const node = chance.of(open);
    const known = chance.of(this.#known);
    for (const { id } of [...this.#broker.storage.tables.deadLetters.values()]
      .filter(({ account }) => account === known.account)
      .slice(-5)) {
      if (!known.dlqIds.includes(id)) known.dlqIds.push(id);
    }
    const what = chance.next();
    const { log } = this.#broker.retention;
    const ask = (): Promise<unknown> => {
      if (chance.happens(this.#shareOfRuns)) return this.#askForRuns(node, known);
      if (what < 0.68) return this.#publish(node, known);
      if (what < 0.8) return this.#setUp(node, known);
      if (what < 0.88) return node.ask((store) => store.execute("cancel", randomCancel(chance, known)));
      if (what < 0.94) return node.ask((store) => store.execute("retryDeadLetters", randomRetry(chance, known, log)));
      if (what < 0.98) return node.ask((store) => store.execute("deleteDeadLetters", randomDelete(chance, known, log)));
      return node.ask((store) => store.execute("rotateKeys", { account: known.account, force: true }));
    };
    // A client that gets an error knows nothing; it may ask again, or not.
    ask().catch(() => undefined);
    return this.#world.now >= node.cutOffUntil;
  }

  /** Any node that takes requests. */
  #ask<T>(request: (store: Store) => Promise<T>): Promise<T> {
    const open = this.#nodes.filter((node) => !node.closed);
    return open.length === 0 ? Promise.reject(new Error("nobody answers")) : this.#chance.of(open).ask(request);
  }

  #askForRuns(node: SimulatedNode, { account }: Known): Promise<unknown> {
    const { name, input } = randomRunRequest(this.#chance, account, this.#broker.storage.tables);
    return node.ask((store) => executed(store, { name, input }));
  }

  async #publish(node: SimulatedNode, known: Known): Promise<void> {
    const { hosts } = this.#broker.destinations;
    const letters = randomLetters({ chance: this.#chance, hosts, now: this.#world.now });
    const scope = randomScope(this.#scopes, hosts);
    const results = await node.ask((store) => store.execute("publish", { account: known.account, letters, ...(scope && { scope }) }));
    this.#judge.acknowledged(results);
    for (const result of results)
      for (const one of "each" in result ? result.each : [result]) if ("messageId" in one) known.messageIds.push(one.messageId);
  }

  #setUp(node: SimulatedNode, known: Known): Promise<unknown> {
    const { destinations, storage } = this.#broker;
    const { hosts } = destinations;
    const [letter] = randomLetters({ chance: this.#chance, hosts: hosts.slice(0, 1), now: this.#world.now });
    if (!letter) throw new Error("there is always one");
    const { name, input } = randomSetUp(this.#chance, known, { letter, hosts, tables: storage.tables });
    return node.ask((store) => executed(store, { name, input }));
  }
}

/** The table of commands is typed by name; what comes by chance is plain data. */
const executed = ({ execute }: Store, { name, input }: Call): Promise<unknown> =>
  (execute as (name: Call["name"], input: unknown) => Promise<unknown>)(name, input);
