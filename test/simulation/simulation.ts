import { createHash } from "node:crypto";
import type { Commands } from "../../src/engine/store/catalog/commands.ts";
import { noCapacity } from "../../src/engine/core/admission/capacity.ts";
import { createIdGenerator } from "../../src/engine/core/values/ids.ts";
import { spans } from "../../src/engine/core/values/limits.ts";
import type { AccountId, Millis } from "../../src/engine/core/values/basics.ts";
import type { CommandCall, Store } from "../../src/engine/store/store.ts";
import { makeDeletion } from "../makeDeletion.ts";
import { RandomSource } from "./randomSource.ts";
import { randomInputs } from "./actors/clients.ts";
import { SimulatedClients } from "./actors/simulatedClients.ts";
import { SimulatedHosts } from "./actors/destinations.ts";
import { Endpoints } from "./actors/endpoints.ts";
import { InvariantChecker } from "./checkers/invariantChecker.ts";
import { type Cluster, faultNames, noFaults } from "./cluster.ts";
import { SimulatedPullers } from "./actors/pullers.ts";
import { SimulatedReceivers } from "./actors/receivers.ts";
import { SimulatedNode } from "./actors/node.ts";
import { SharedMemberships } from "./actors/memberships.ts";
import { BatchScheduler } from "./storage/batchScheduler.ts";
import type { Storage } from "./storage/storage.ts";
import { memoryStorage } from "./storage/storage.ts";
import { clear, prepare, release, unschedule } from "./actors/setUp.ts";
import { VirtualTime } from "./virtualTime.ts";

const second: Millis = 1000;
const hour: Millis = 3600 * second;

/**
 * `runs` is the share of client requests about workflow runs. `meet`: batches of several nodes overlap.
 * `quota` is the storage limit of each account in bytes, while there are faults. `byHand`: people send
 * messages now and run schedules. `receivers`: some receivers report outcomes later. `pulls`: the messages to
 * some hosts are pulled. `jobs` is the number of
 * requests about jobs for each other request.
 */
export type Options = {
  seed: number;
  actions?: number;
  runs?: number;
  meet?: boolean;
  quota?: number | null;
  byHand?: boolean;
  receivers?: boolean;
  pulls?: boolean;
  jobs?: number;
} & {
  decisions?: Commands;
  storage?: Storage;
};
/** `failure` is the broken invariant, or null. */
export type Report = {
  seed: number;
  failure: string | null;
  trace: readonly string[];
  happened: ReadonlySet<string>;
  digest: string;
  messages: number;
  steps: number;
};

/** Jobs are rare, and only in some seeds: `jobs.test.ts` has many. */
const defaultJobs = (seed: number): number => (seed % 30 === 28 ? 0.03 : 0);

/** The options of simulations about jobs. */
export const manyJobs = { jobs: 0.15, runs: 0.35 } as const satisfies Partial<Options>;

/** More steps than any run needs until it is quiet. */
const mostSteps = 500_000;

/**
 * Runs a whole cluster in virtual time: first with every possible fault, then until it is quiet, then until
 * it is empty.
 */
export async function simulate({
  seed,
  actions = 150,
  runs = 0.2,
  meet = false,
  quota = null,
  byHand = false,
  receivers = false,
  pulls = false,
  jobs = defaultJobs(seed),
  decisions,
  storage = memoryStorage(decisions),
}: Options): Promise<Report> {
  const run = new Simulation(seed, storage, { runs, quota, byHand, receivers, pulls, jobs });
  try {
    await run.runWithFaults(actions, meet);
    await run.quiet();
    await run.empty();
  } finally {
    await storage.close();
  }
  return run.report(seed);
}

class Simulation {
  readonly #virtualTime: VirtualTime;
  readonly #random: RandomSource;
  readonly #cluster: Cluster;
  readonly #checker: InvariantChecker;
  readonly #clients: SimulatedClients;
  readonly #pullers: SimulatedPullers | null;
  #nodes: SimulatedNode[] = [];
  #nodeCount = 0;
  #steps = 0;
  #isQuiet = false;
  #isClockWrong = false;
  readonly #isLimited: boolean;

  constructor(
    seed: number,
    storage: Storage,
    {
      runs: runShare,
      quota,
      byHand,
      receivers,
      pulls,
      jobs,
    }: Required<Pick<Options, "runs" | "quota" | "byHand" | "receivers" | "pulls" | "jobs">>,
  ) {
    this.#isLimited = seed % 3 === 0;
    const random = new RandomSource(seed);
    const virtualTime = new VirtualTime(random, storage.atWork);
    const retention = {
      log: random.of([1, 3]) * hour,
      deadLetters: random.of([1, 2, 6]) * hour,
      audit: 5 * hour,
    };
    // Bodies have up to 20 bytes, those of callbacks some hundred bytes.
    const bytes = { total: random.of([300, 1_000, 3_000]), perBatch: random.of([10, 30, 1_000]) };
    const capacity = { total: random.integerBetween(2, 14), perHost: random.integerBetween(2, 8), bytes };
    this.#virtualTime = virtualTime;
    this.#random = random;
    this.#checker = new InvariantChecker({ virtualTime, storage, retention, capacity });
    const destinations = new SimulatedHosts(random, random.integerBetween(3, 24));
    const { runs, assertHolds, happened } = this.#checker;
    const endpoints = new Endpoints({
      virtualTime,
      hosts: destinations.hosts,
      ask: (request) => this.#ask(request),
      posts: (call, messageId) => this.#checker.postedSteps.noteOrigin(call, messageId),
      stepRan: (call, stepId) => runs.noteStepRan(call, stepId),
      reportViolation: (why) => assertHolds(false, why),
      cover: (what) => happened.add(what),
      mayHaveStepsOfOthers: (run) => runs.mayHaveStepsOfOthers(run),
      endedRun: (account) => runs.findEndedRun(account),
    });
    this.#cluster = {
      virtualTime,
      storage,
      retention,
      capacity,
      checker: this.#checker,
      destinations,
      endpoints,
      faults: { ...noFaults },
      quota,
      meetings: new BatchScheduler({ virtualTime, storage }),
      holds: seed % 2 === 0 ? new SharedMemberships(storage) : null,
      hasJobs: jobs > 0,
      receivers: receivers
        ? new SimulatedReceivers({
            random: new RandomSource(seed + 4_000_000),
            virtualTime,
            openNodes: () => this.#nodes.filter((node) => !node.closed),
          })
        : null,
      lookForJobs: () => this.#nodes.forEach((node) => node.jobs?.lookSoon()),
      signalWork: (from, at) => this.#nodes.forEach((node) => node.id !== from && node.receiveSignal(at)),
      kill: (node, why) => this.#kill(node, why),
    };
    this.#pullers = pulls
      ? new SimulatedPullers({
          ...{ random: new RandomSource(seed + 5_000_000), virtualTime, endpoints },
          hosts: destinations.hosts.slice(0, 2),
          accounts: () => [...storage.tables.accounts.keys()],
          openNodes: () => this.#nodes.filter((node) => !node.closed),
          checker: this.#checker,
        })
      : null;
    this.#clients = new SimulatedClients({
      cluster: this.#cluster,
      random,
      scopeRandom: new RandomSource(seed + 1_000_000),
      handRandom: byHand ? new RandomSource(seed + 2_000_000) : null,
      jobRandom: new RandomSource(seed + 3_000_000),
      runShare,
      jobShare: jobs,
      openNodes: () => this.#nodes.filter((node) => !node.closed),
    });
    virtualTime.note(
      `seed ${seed}: capacity ${JSON.stringify(capacity)} retention ${JSON.stringify(retention)}`,
    );
    virtualTime.note(
      destinations.hosts.map((host) => `${host} ${destinations.getBehavior(host)}`).join(", "),
    );
  }

  report(seed: number): Report {
    const { trace } = this.#virtualTime;
    const failure = this.#checker.broken;
    const digest = createHash("sha256").update(trace.join("\n")).digest("hex").slice(0, 16);
    const { happened, messageHistories } = this.#checker;
    return { seed, failure, trace, happened, digest, messages: messageHistories.size, steps: this.#steps };
  }

  /** Runs clients and all faults. */
  async runWithFaults(actions: number, meet: boolean): Promise<void> {
    const random = this.#random;
    const { faults } = this.#cluster;
    for (const name of faultNames) {
      faults[name] = random.isHit(0.5) ? random.of([0.01, 0.03, 0.1]) : 0;
    }
    this.#cluster.endpoints.failure = random.of([0, 0.3, 1]);
    if (meet) this.#cluster.meetings.often = random.of([0.2, 0.7]);
    const count = random.integerBetween(meet ? 3 : 1, 4);
    for (let started = 0; started < count; started++) this.#startNode();
    await this.#runFor(second);
    await this.#createAccounts();
    this.#pullers?.start();
    const { hosts } = this.#cluster.destinations;
    const { quota } = this.#cluster;
    const setQuota =
      (storageBytes: number | null) =>
      (account: AccountId): CommandCall[] => [
        { name: "changeAccount", input: { account, change: { limits: { storageBytes } } } },
      ];
    if (quota !== null) await this.#executeAll(setQuota(quota));
    const [input] = randomInputs({ random, hosts: hosts.slice(0, 1), now: this.#virtualTime.now });
    if (input) await this.#executeAll((account) => prepare(account, { input, hosts }));
    const pace = random.of(meet ? [5, 20] : [20, 200, 2 * second]);
    const troublePace = random.of([3 * second, 20 * second, hour]);
    let left = actions;
    const act = (): void => {
      if (left <= 0) return;
      if (this.#clients.actOnce()) left--;
      this.#virtualTime.after(random.gap(pace), { owner: "world", what: "client" }, act);
    };
    const failure = (): void => {
      if (this.#isQuiet) return;
      this.#injectFault();
      this.#virtualTime.after(random.gap(troublePace), { owner: "world", what: "trouble" }, failure);
    };
    act();
    failure();
    while (left > 0 && this.#checker.broken === null) await this.#runFor(10 * second);
    await this.#runFor(random.of([0, 60 * second, 300 * second]));
  }

  /**
   * Runs without clients and faults until everything has ended. Retries may take long; a day is enough for
   * the longest chain.
   */
  async quiet(): Promise<void> {
    this.#isQuiet = true;
    Object.assign(this.#cluster.faults, noFaults);
    this.#cluster.endpoints.failure = 0;
    if (this.#pullers) this.#pullers.isCalm = true;
    this.#cluster.meetings.often = 0;
    this.#virtualTime.note("calm");
    await this.#runFor(600 * second);
    // A node whose clock was set back wakes that much too late, unless something else wakes it.
    if (!this.#isClockWrong) this.#checker.checkSchedules();
    await this.#executeAll(unschedule);
    await this.#untilFinished(hour);
    this.#checker.checkHeldBack();
    await this.#executeAll(release);
    await this.#untilFinished(48 * hour);
    // Clears the last waitlists and timers.
    await this.#runFor(60 * second);
    this.#checker.checkQuiet();
    if (this.#pullers) this.#pullers.isOver = true;
  }

  async #untilFinished(max: Millis): Promise<void> {
    const until = this.#virtualTime.now + max;
    while (this.#checker.unfinished > 0 && this.#virtualTime.now < until && this.#checker.broken === null)
      await this.#runFor(60 * second);
  }

  /** Executes commands for all accounts, as an operator would. */
  async #executeAll(callsFor: (account: AccountId) => CommandCall[]): Promise<void> {
    const calls = this.#clients.clients.flatMap(({ account }) => callsFor(account));
    const store = this.#cluster.storage.open(this.#source("house"));
    await this.#cluster.meetings.inTurn(async () => {
      const result = await store.runBatch(calls, noCapacity);
      await this.#checker.committed({ node: "house", calls, result, capacity: noCapacity });
      if (result.dueAt !== null) this.#cluster.signalWork("house", result.dueAt);
    });
    await store.close();
  }

  /** Checks that idle nodes do nothing, and that expired history is removed. */
  async empty(): Promise<void> {
    const { tables } = this.#cluster.storage;
    await this.#executeAll((account) => clear(account, tables));
    // A limiter is removed after the last retry for which it was kept, even if the message was sent earlier.
    const { now } = this.#virtualTime;
    const last = Math.max(now, ...[...tables.limiters.values()].map(({ dueAt }) => dueAt ?? 0));
    await this.#runFor(last - now + spans.idleKey + 3 * hour);
    const { claims } = this.#checker;
    const { log, deadLetters, audit } = this.#cluster.retention;
    // By now the log of some dead letters is kept only for them.
    const inputs = [...tables.deadLetters.values()].filter((_, at) => at % 2 === 0);
    await this.#executeAll((account) => {
      const dlqIds = inputs.filter((input) => input.account === account).map(({ id }) => id);
      return [{ name: "bulk", input: makeDeletion({ account, dlqIds, logRetention: log }) }];
    });
    await this.#runFor(2 * Math.max(log, deadLetters, audit ?? 0) + 2 * hour);
    await this.#runFor(40 * 24 * hour);
    this.#checker.checkEmpty();
    this.#checker.assertHolds(
      this.#checker.claims === claims,
      `an idle cluster does not claim: ${this.#checker.claims - claims} claims`,
    );
    const pending = this.#virtualTime.pending();
    this.#checker.assertHolds(pending.length === 0, `an idle cluster has no timers: ${pending.join(", ")}`);
  }

  async #runFor(time: Millis): Promise<void> {
    const until = this.#virtualTime.now + time;
    await this.#virtualTime.settled();
    while (this.#checker.broken === null && (await this.#virtualTime.step(until))) {
      this.#checker.assertHolds(++this.#steps < mostSteps, "a run becomes quiet");
    }
    this.#virtualTime.now = until;
  }

  async #createAccounts(): Promise<void> {
    const store = this.#cluster.storage.open(this.#source("setup"));
    const calls = this.#clients.clients.map(({ account: id }, at) => ({
      name: "createAccount" as const,
      input: {
        id,
        name: id,
        password: "",
        token: id,
        tokenHash: id,
        signingKeys: { current: `${id}-1`, next: `${id}-2` },
        // One account reaching its limits must not affect the other.
        ...(at === 1 && this.#isLimited ? { limits: { requestsPerDay: 20, requestsPerDayHard: 40 } } : {}),
      },
    }));
    await store.runBatch(calls, noCapacity);
    await store.close();
    // The checker starts here.
    await this.#cluster.storage.changes();
  }

  #source(node: string) {
    const random = (): number => this.#random.next();
    return { node, now: () => this.#virtualTime.now, random, newId: createIdGenerator(random) };
  }

  #startNode(): void {
    const clockOffset = this.#random.isHit(0.3) ? this.#random.of([-hour, -5 * second, 5 * second, hour]) : 0;
    const node = new SimulatedNode(this.#cluster, `node-${++this.#nodeCount}`, clockOffset);
    const alone = this.#nodes.length === 0;
    this.#nodes.push(node);
    this.#virtualTime.note(`${node.id} starts${alone ? " alone" : ""}, its clock ${clockOffset} ms ahead`);
    void node.start(alone);
  }

  #kill(node: SimulatedNode, why: string): void {
    if (!this.#nodes.includes(node)) return;
    this.#virtualTime.note(`${node.id} dies ${why}`);
    node.die();
    this.#removeNode(node);
  }

  /** Replaces a node after a while. */
  #removeNode(node: SimulatedNode): void {
    this.#nodes = this.#nodes.filter((other) => other !== node);
    this.#virtualTime.after(
      this.#random.integerBetween(100, 20 * second),
      { owner: "world", what: "start" },
      () => this.#startNode(),
    );
  }

  #stop(node: SimulatedNode): void {
    if (node.closed) return;
    const grace = this.#random.integerBetween(0, 20 * second);
    this.#virtualTime.note(`${node.id} is stopped, grace ${grace}`);
    node.stop(grace).then(
      () => {
        node.die();
        if (this.#nodes.includes(node)) this.#removeNode(node);
      },
      () => this.#kill(node, "in its stop"),
    );
  }

  #injectFault(): void {
    const random = this.#random;
    if (this.#nodes.length === 0) return;
    const node = random.of(this.#nodes);
    const what = random.next();
    const { holds } = this.#cluster;
    if (holds && random.isHit(0.4)) {
      // A restart of the database ends all memberships at once.
      const isRestart = random.isHit(0.2);
      if (isRestart) holds.restart();
      for (const one of isRestart ? this.#nodes : [node])
        one.loseMembership(
          random.of([10, 500, 1_400, 1_600, 3 * second, 30 * second]),
          isRestart ? 0 : random.of([0, 300, 900]),
        );
    } else if (what < 0.25) this.#kill(node, "of nothing in particular");
    else if (what < 0.5) this.#stop(node);
    else if (what < 0.7) {
      node.disconnect(this.#virtualTime.now + random.of([2, 20, 45, 100]) * second);
      this.#virtualTime.note(`${node.id} is cut off from its storage until ${node.cutOffUntil}`);
    } else {
      this.#isClockWrong = true;
      this.#checker.jobs.noteClockChange();
      node.clock.clockOffset += random.of([-hour, -30 * second, -second, second, 30 * second, hour]);
      this.#virtualTime.note(`${node.id} clock is ${node.clock.clockOffset} ahead`);
    }
  }

  /** Sends a request to any node that accepts requests. */
  #ask<T>(request: (store: Store) => Promise<T>): Promise<T> {
    const open = this.#nodes.filter((node) => !node.closed);
    return open.length === 0
      ? Promise.reject(new Error("no node responds"))
      : this.#random.of(open).ask(request);
  }
}
