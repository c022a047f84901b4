import type { Socket } from "node:net";
import type { Clock } from "../engine/clock/clock.ts";
import type { RouteContext, Route } from "../api/route/route.ts";
import type { Condition } from "../engine/core/explain/condition.ts";
import type { Account } from "../engine/core/model/account.ts";
import type { AccountId, Millis, NodeId } from "../engine/core/values/basics.ts";
import type { Delivery } from "../engine/core/model/delivery.ts";
import type { Outcome } from "../engine/core/model/attempt.ts";
import type { MaintenanceTask } from "../engine/upkeep/scheduler.ts";
import type { Retention } from "../engine/core/accounts/retention.ts";
import type { Store } from "../engine/store/store.ts";

/**
 * Something that the self-check has repaired, for the log: a row of an account, or `late` if rows were due
 * and the node did not take them.
 */
export type Repaired =
  | { what: string; account: AccountId; id: string }
  | { what: "late"; kind: string; dueAt: Millis };

/** The services of a server that operations use. */
export type ServerParts = {
  store: Store;
  clock: Clock;
  node: NodeId;
  /** Whether other nodes may share the store. */
  isShared: boolean;
  logFailure(message: string, error: unknown): void;
  /** Makes one request. The rules for destinations hold as for deliveries. */
  deliver(delivery: Delivery): { outcome: Promise<Outcome>; abort(): void };
  /** Opens a connection that is not for HTTP. The rules for destinations hold as for deliveries. */
  connect(target: { host: string; port: number; account: AccountId }): Promise<Socket>;
  /** Authorities that are trusted in addition to those of Node.js, in PEM form. */
  authorities: readonly string[];
  /** The settings of the server for every publish. */
  publishing: Pick<RouteContext, "maxQueues" | "maxBody" | "brand">;
  /** Reports whether nothing may be sent. */
  isOnHold(): boolean;
  /** Aborted when the server stops. */
  stop: AbortSignal;
  /** Returns what is wrong for an account, the most urgent first. */
  listConditions(account: Account): Promise<readonly Condition[]>;
  /** How long history is kept. */
  retention: Retention;
  /** Receives the number of rows that were removed because the disk has little room. */
  onRemovedEarly(rows: number): void;
  /** The deliveries of this node. */
  sender: { couldSend(): boolean; wake(): void };
  onRepair(repaired: Repaired): void;
  /** Whether the server looks for work that would never be done. */
  repairs: boolean;
  /** Returns the bytes of the disk of the server, or null. */
  disk(): Promise<{ free: number; total: number } | null>;
};

/** The work of an operation while a server runs. */
export type RunningOperation = {
  tasks?: readonly MaintenanceTask[];
  /** Work with its own pace. `stop` waits for what is being done. */
  worker?: { start(): void; stop(): Promise<void> };
  /** The services of its routes besides those of all routes. */
  context?: Partial<RouteContext>;
};

/** Returns what is wrong with the things of an account that an operation keeps. */
export type FindConditions = (
  store: Pick<Store, "read">,
  account: AccountId,
  now: Millis,
) => Promise<readonly Condition[]>;

/** An operation as the server sees it: its routes, its work, and how it leaves an account that is deleted. */
export type ServedOperation = {
  routes: readonly Route[];
  run?(parts: ServerParts): RunningOperation;
  /** Returns what is wrong with its own things of an account. */
  findConditions?: FindConditions;
  /** Removes what it keeps for an account. */
  clearAccount?(store: Store, account: AccountId): Promise<void>;
};
