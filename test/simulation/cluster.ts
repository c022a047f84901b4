import type { Retention } from "../../src/engine/core/accounts/retention.ts";
import type { BatchScheduler } from "./storage/batchScheduler.ts";
import type { SimulatedHosts } from "./actors/destinations.ts";
import type { Endpoints } from "./actors/endpoints.ts";
import type { InvariantChecker } from "./checkers/invariantChecker.ts";
import type { SimulatedReceivers } from "./actors/receivers.ts";
import type { SimulatedNode } from "./actors/node.ts";
import type { SharedMemberships } from "./actors/memberships.ts";
import type { Storage } from "./storage/storage.ts";
import type { VirtualTime } from "./virtualTime.ts";

/** The probability of each fault, from 0 to 1. */
export type Faults = Record<(typeof faultNames)[number], number>;

/** The faults that a simulation can have. */
export const faultNames = [
  "refusedBatch",
  "lostAnswer",
  "lostConnection",
  "lostReport",
  "doubledReport",
  "lateReport",
] as const;

/** No faults at all. */
export const noFaults: Faults = {
  refusedBatch: 0,
  lostAnswer: 0,
  lostConnection: 0,
  lostReport: 0,
  doubledReport: 0,
  lateReport: 0,
};

/** The delivery capacity of every node. */
export type NodeCapacity = { total: number; perHost: number; bytes: { total: number; perBatch: number } };

/** Everything that the nodes share. */
export type Cluster = {
  virtualTime: VirtualTime;
  storage: Storage;
  destinations: SimulatedHosts;
  endpoints: Endpoints;
  checker: InvariantChecker;
  retention: Retention;
  faults: Faults;
  capacity: NodeCapacity;
  meetings: BatchScheduler;
  /** The storage limit of each account in bytes. Null: storage is not measured. */
  quota: number | null;
  /** Null: leases end only by time. */
  holds: SharedMemberships | null;
  /** Clients create jobs, and every node continues them. */
  hasJobs: boolean;
  /** Null: no receiver reports later. */
  receivers: SimulatedReceivers | null;
  /** Lets every node look for jobs within the interval at which it does so. */
  lookForJobs(): void;
  /** Signals to every other node when something is due. */
  signalWork(from: string, at: number): void;
  kill(node: SimulatedNode, why: string): void;
};
