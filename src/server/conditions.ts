import { findPulledOrigin } from "../engine/core/accounts/pulledOrigins.ts";
import { formatRefusal } from "../api/http/remedies.ts";
import { readLimit, readPlan } from "../engine/core/accounts/plans.ts";
import { findBudgetRefusal } from "../engine/core/limits/budget.ts";
import { readNodeStates } from "../engine/core/cluster/nodeState.ts";
import type { Condition } from "../engine/core/explain/condition.ts";
import type { ServerFacts } from "../engine/core/explain/conditions.ts";
import type { HostInFlight, RefusedHostFact } from "../engine/core/explain/hostConditions.ts";
import { conditionWindow, sortConditions } from "../engine/core/explain/condition.ts";
import { findConditions } from "../engine/core/explain/conditions.ts";
import type { Account } from "../engine/core/model/account.ts";
import type { HostFailures } from "../engine/core/node/failingLanes.ts";
import type { AccountId, Millis, NodeId } from "../engine/core/values/basics.ts";
import type { StoredConditionFacts } from "../engine/store/queries/conditionFacts.ts";
import type { Store } from "../engine/store/store.ts";
import type { ServedOperation } from "../operations/operation.ts";

/** The facts on which the conditions of accounts depend, besides those that are stored. */
export type ConditionSources = {
  store: Store;
  node: NodeId;
  now(): Millis;
  /** Returns why this server takes no requests, or null. */
  notReadyReason(): string | null;
  isOnHold(): boolean;
  /** The batches of saved changes that the database has lost. */
  lostBatches(): number;
  /** The state of the second copy of the store, or null. */
  replica(): ServerFacts["copy"];
  disk(): Promise<ServerFacts["disk"]>;
  /** The hosts of an account whose last attempts by this node have all failed, and what is in flight. */
  deliveries: {
    listFailingHosts(account: AccountId): readonly HostFailures[];
    listInFlight(account: AccountId): readonly HostInFlight[];
  };
  /** Returns the hosts to which this node was asked to publish, and whose addresses are refused. */
  listRefusedHosts(account: AccountId, now: Millis): readonly RefusedHostFact[];
  operations: readonly ServedOperation[];
};

/** Returns the function that lists what is wrong for an account, the most urgent first. */
export const createConditions =
  (sources: ConditionSources) =>
  async (account: Account): Promise<readonly Condition[]> => {
    const { store, operations, deliveries } = sources;
    const { id } = account;
    const now = sources.now();
    const [stored, sums, server, others] = await Promise.all([
      store.read.conditionFacts(id, now),
      store.read.storedBytes([id], null),
      readServerFacts(account, sources),
      Promise.all(operations.map(async ({ findConditions: find }) => (await find?.(store, id, now)) ?? [])),
    ]);
    const facts = {
      ...stored,
      schedules: stored.schedules.map(withRemedy),
      server,
      refuses: findAccountRefusal(account, now),
      storage: { used: sums[0]?.bytes ?? 0, max: readLimit(account, "storageBytes") },
      failing: deliveries.listFailingHosts(id),
      inFlight: stored.inFlight ?? deliveries.listInFlight(id),
      refused: sources
        .listRefusedHosts(id, now)
        .filter(({ host }) => findPulledOrigin(account, host) === undefined),
    };
    return sortConditions([...findConditions(facts, now), ...others.flat()]);
  };

async function readServerFacts(
  account: Account,
  { store, node, now, notReadyReason, isOnHold, lostBatches, replica, disk }: ConditionSources,
): Promise<ServerFacts> {
  // An account without a plan is the operator's own.
  const isOperators = readPlan(account) === "selfHosted";
  const [takesChanges, nodes, bytes] = await Promise.all([
    store.takesChanges(),
    isOperators ? store.upkeep.nodes() : [],
    isOperators ? disk() : null,
  ]);
  const states = readNodeStates(nodes, node);
  const lost = nodes.filter(
    ({ id, changedAt }) => states.get(id) === "lost" && (changedAt ?? 0) > now() - conditionWindow,
  );
  return {
    refuses: findRefusal(store, takesChanges),
    notReady: notReadyReason(),
    isHeld: isOnHold(),
    lostBatches: lostBatches(),
    lostNodes: lost.map(({ id }) => id),
    copy: replica(),
    disk: bytes,
    isOperators,
  };
}

function findRefusal(store: Store, takesChanges: boolean): string | null {
  if (store.upkeep.disk?.isLow() === true)
    return "its disk is almost full; cancelled messages free space within seconds";
  return takesChanges ? null : "it cannot save changes";
}

/** Returns why the publishes of an account are refused, or null. A full storage is another condition. */
function findAccountRefusal(account: Account, now: Millis): string | null {
  if (account.state === "passive") return "the account is disabled";
  const refused = findBudgetRefusal(account, now);
  return refused && formatRefusal(refused);
}

/** Returns a schedule with the command or request that helps after its last firing was skipped. */
function withRemedy(schedule: StoredConditionFacts["schedules"][number]) {
  const { passedOver, remedy } = schedule;
  return passedOver === undefined
    ? schedule
    : { ...schedule, passedOver: formatRefusal({ message: passedOver, remedy }) };
}
