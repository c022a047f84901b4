import type { CommandCall, Store } from "../../../src/engine/store/store.ts";
import type { ClientState } from "./clients.ts";
import { randomBulk } from "./bulkClients.ts";
import { randomCancel, randomInputs, randomRetry } from "./clients.ts";
import type { Cluster } from "../cluster.ts";
import type { SimulatedNode } from "./node.ts";
import type { RandomSource } from "../randomSource.ts";
import { randomHandAction } from "./handActions.ts";
import { requestJob } from "../../operations/simulated.ts";
import { randomRunRequest } from "./runClients.ts";
import { randomScope } from "../checkers/scopes.ts";
import { randomSetUp } from "./setUp.ts";

type SimulatedClientsOptions = {
  cluster: Cluster;
  random: RandomSource;
  /** The randomness of token scopes. It is separate, so that nothing else depends on it. */
  scopeRandom: RandomSource;
  /** The randomness of what people do by hand. Null: they do nothing. */
  handRandom: RandomSource | null;
  /** The randomness of requests about jobs. */
  jobRandom: RandomSource;
  /** The share of requests about workflow runs. */
  runShare: number;
  /** The number of requests about jobs for each other request. */
  jobShare: number;
  /** Returns the nodes that accept requests. */
  openNodes(): SimulatedNode[];
};

/** Clients of two accounts, which send random requests to random nodes. */
export class SimulatedClients {
  readonly clients: ClientState[] = ["acme", "umbrella"].map((account) => ({
    account,
    messageIds: [],
    dlqIds: [],
  }));
  readonly #options: SimulatedClientsOptions;

  constructor(options: SimulatedClientsOptions) {
    this.#options = options;
  }

  /** Sends one client request. Returns false if no node could respond. */
  actOnce(): boolean {
    const random = this.#options.random;
    const open = this.#options.openNodes();
    if (open.length === 0) return false;
    const node = random.of(open);
    const known = random.of(this.clients);
    for (const { id } of [...this.#options.cluster.storage.tables.deadLetters.values()]
      .filter(({ account }) => account === known.account)
      .slice(-5)) {
      if (!known.dlqIds.includes(id)) known.dlqIds.push(id);
    }
    const what = random.next();
    const { log } = this.#options.cluster.retention;
    const ask = (): Promise<unknown> => {
      if (random.isHit(0.08)) return this.#askForBulk(node, known);
      if (random.isHit(this.#options.runShare)) return this.#askForRuns(node, known);
      if (what < 0.68) return this.#publish(node, known);
      if (what < 0.8) return this.#setUp(node, known);
      if (what < 0.88) {
        const { tables } = this.#options.cluster.storage;
        return node.ask((store) => store.execute("cancel", randomCancel(random, known, tables)));
      }
      if (what < 0.98)
        return node.ask((store) => store.execute("retryDeadLetters", randomRetry(random, known, log)));
      return node.ask((store) => store.execute("rotateKeys", { account: known.account, force: true }));
    };
    // A client that gets an error does not know the outcome; it may retry.
    ask().catch(() => undefined);
    this.#actByHand(node, known);
    const { jobRandom, jobShare, cluster } = this.#options;
    if (jobRandom.isHit(jobShare))
      requestJob(node, { random: jobRandom, account: known.account, cluster }).catch(() => undefined);
    return this.#options.cluster.virtualTime.now >= node.cutOffUntil;
  }

  #actByHand(node: SimulatedNode, { account }: ClientState): void {
    const { handRandom: random, cluster } = this.#options;
    if (!random?.isHit(0.2)) return;
    const { name, input } = randomHandAction(random, account, {
      tables: cluster.storage.tables,
      now: cluster.virtualTime.now,
    });
    node.ask((store) => executeCall(store, { name, input })).catch(() => undefined);
  }

  #askForBulk(node: SimulatedNode, known: ClientState): Promise<unknown> {
    const { random, cluster } = this.#options;
    const of = { tables: cluster.storage.tables, logRetention: cluster.retention.log };
    return node.ask((store) => store.execute("bulk", randomBulk(random, known, of)));
  }

  #askForRuns(node: SimulatedNode, { account }: ClientState): Promise<unknown> {
    const { name, input } = randomRunRequest(
      this.#options.random,
      account,
      this.#options.cluster.storage.tables,
    );
    return node.ask((store) => executeCall(store, { name, input }));
  }

  async #publish(node: SimulatedNode, known: ClientState): Promise<void> {
    const { receivers, destinations } = this.#options.cluster;
    const { hosts } = destinations;
    const inputs = randomInputs({
      random: this.#options.random,
      hosts,
      now: this.#options.cluster.virtualTime.now,
    });
    for (const input of inputs) Object.assign(input, receivers?.pickTimeout());
    const scope = randomScope(this.#options.scopeRandom, hosts);
    const results = await node.ask((store) =>
      store.execute("publish", { account: known.account, inputs, ...(scope && { scope }) }),
    );
    this.#options.cluster.checker.acknowledged(results);
    for (const result of results)
      for (const one of "each" in result ? result.each : [result])
        if ("messageId" in one) known.messageIds.push(one.messageId);
  }

  #setUp(node: SimulatedNode, known: ClientState): Promise<unknown> {
    const { destinations, storage } = this.#options.cluster;
    const { hosts } = destinations;
    const [first] = randomInputs({
      random: this.#options.random,
      hosts: hosts.slice(0, 1),
      now: this.#options.cluster.virtualTime.now,
    });
    if (!first) throw new Error("there is always one");
    const { name, input } = randomSetUp(this.#options.random, known, {
      input: first,
      hosts,
      tables: storage.tables,
    });
    return node.ask((store) => executeCall(store, { name, input }));
  }
}

/** Executes a random call, whose input is untyped. */
const executeCall = ({ execute }: Store, { name, input }: CommandCall): Promise<unknown> =>
  (execute as (name: CommandCall["name"], input: unknown) => Promise<unknown>)(name, input);
