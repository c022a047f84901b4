import { JobRunner } from "../../../../src/operations/jobs/runner.ts";
import type { Store } from "../../../../src/engine/store/store.ts";
import type { Cluster } from "../../../simulation/cluster.ts";
import type { NodeClock } from "../../../simulation/virtualTime.ts";

type NodeJobsOptions = {
  cluster: Cluster;
  node: string;
  clock: NodeClock;
  store: Store;
  /** Runs a read, which takes time and may fail. */
  read<T>(run: () => Promise<T>): Promise<T>;
  logFailure(message: string, error: unknown): void;
};

/** How often a node looks for jobs of other nodes, in milliseconds. */
const pollInterval = 5_000;

/**
 * The jobs of one node: a real runner, whose changes are sometimes so late that another node has taken over.
 * Nodes look for jobs only while there are some, because an idle cluster must sleep.
 */
export class NodeJobs {
  /** The reads of routes and of the runner. */
  readonly read: Store["read"];
  readonly #options: NodeJobsOptions;
  readonly #runner: JobRunner;

  constructor(options: NodeJobsOptions) {
    const { cluster, node, clock, store, read, logFailure } = options;
    this.#options = options;
    this.read = {
      ...store.read,
      dueJobs: (...of) => read(() => store.read.dueJobs(...of)),
      deadLetters: (...of) => read(() => store.read.deadLetters(...of)),
      unfinished: (...of) => read(() => store.read.unfinished(...of)),
      runs: (...of) => read(() => store.read.runs(...of)),
      message: (...of) => read(() => store.read.message(...of)),
      listResources: (...of) => read(() => store.read.listResources(...of)),
    };
    this.#runner = new JobRunner({
      store: { ...store, read: this.read, execute: this.#executeLate() },
      clock,
      node,
      get hasOtherNodes() {
        return cluster.checker.jobs.areUnfinished(cluster.storage.tables);
      },
      logFailure,
    });
  }

  start(): void {
    this.#runner.start();
  }

  /** Stops after the portion that is being done. */
  stop(): Promise<void> {
    return this.#runner.stop();
  }

  /** Called after this node has created a job, as a route does. */
  wake(): void {
    this.#runner.wake();
  }

  /** Lets the runner look for jobs of other nodes, as it does at intervals. */
  lookSoon(): void {
    const { cluster, node } = this.#options;
    const { virtualTime } = cluster;
    const delay = virtualTime.random.integerBetween(0, pollInterval);
    virtualTime.after(delay, { owner: node, what: "look for jobs" }, () => this.wake());
  }

  #executeLate(): Store["execute"] {
    const { cluster, node, store } = this.#options;
    const { virtualTime, faults } = cluster;
    const executeLate: Store["execute"] = async (name, input, options) => {
      if (virtualTime.random.isHit(3 * faults.lateReport)) {
        virtualTime.note(`${node} is late: ${name}`);
        cluster.checker.jobs.noteClockChange();
        const delay = virtualTime.random.integerBetween(1_000, 20_000);
        await virtualTime.wait(delay, { owner: node, what: "late job" });
      }
      return store.execute(name, input, options);
    };
    return executeLate;
  }
}
