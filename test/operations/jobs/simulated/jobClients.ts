import { findLastJobId, readJobFilter } from "../../../../src/operations/jobs/filter.ts";
import type { RouteContext } from "../../../../src/api/route/route.ts";
import type { CommandInput } from "../../../../src/engine/store/catalog/commands.ts";
import type { BulkActionName } from "../../../../src/engine/core/bulk/entries.ts";
import { bulkActionNames } from "../../../../src/engine/core/bulk/entries.ts";
import type { AccountId } from "../../../../src/engine/core/values/basics.ts";
import type { Cluster } from "../../../simulation/cluster.ts";
import type { RandomSource } from "../../../simulation/randomSource.ts";
import { keys, queues } from "../../../simulation/actors/clients.ts";
import type { SimulatedNode } from "../../../simulation/actors/node.ts";
import type { NodeJobs } from "./nodeJobs.ts";
import { inOrder } from "../../../simulation/actors/runClients.ts";

type JobRequestOptions = { random: RandomSource; account: AccountId; cluster: Cluster };
type Asked = {
  action: BulkActionName;
  filter: Record<string, unknown>;
  rate: number | null;
  canary: number | null;
};

const startedBy = { kind: "token", token: "main", address: null } as const;

/** Sends a request about jobs to a node: mostly a new job, at times the stop of one. */
export async function requestJob(
  node: SimulatedNode,
  { random, account, cluster }: JobRequestOptions,
): Promise<void> {
  const { jobs } = node;
  if (!jobs) return;
  const { tables } = cluster.storage;
  const all = inOrder(tables.jobs, account);
  const unfinished = all.filter(({ endedAt }) => endedAt === null);
  const named = unfinished.length > 0 && random.isHit(0.9) ? unfinished : all;
  if (named.length > 0 && random.isHit(0.2)) {
    const { id } = random.of(named);
    await node.ask((store) => store.execute("stopJob", { account, id, stoppedBy: startedBy }));
    return;
  }
  const asked = randomJob(random, account, cluster);
  await node.ask(async (store) =>
    store.execute("createJob", await prepareJob(jobs, { cluster, account, asked })),
  );
  jobs.wake();
}

/** Returns what the route of jobs passes to the store. */
async function prepareJob(
  { read }: NodeJobs,
  { cluster, account, asked }: { cluster: Cluster; account: AccountId; asked: Asked },
): Promise<CommandInput<"createJob">> {
  const { action, filter, rate, canary } = asked;
  const selection = readJobFilter(action, filter);
  cluster.checker.jobs.asked(account, selection, cluster.storage.tables);
  const last = await findLastJobId({ store: { read } } as RouteContext, account, { action });
  const known = (await read.jobs({ account, limit: 200 })).map(({ id }) => id);
  const logRetention = cluster.retention.log;
  return { ...selection, account, startedBy, last, rate, canary, known, logRetention };
}

function randomJob(random: RandomSource, account: AccountId, cluster: Cluster): Asked {
  const action = random.of(bulkActionNames);
  const sends = action === "dlq.retry" || action === "runs.resume" || action === "runs.restart";
  return {
    action,
    filter: random.isHit(0.4) ? {} : randomFilter(random, action, { account, cluster }),
    rate: random.of([null, null, 1, 3, 20]),
    canary: sends ? random.of([null, null, 1, 2, 5]) : null,
  };
}

/** Returns the filter of a request. `checkers/jobs/jobEntries.ts` must know each of its fields. */
function randomFilter(
  random: RandomSource,
  action: BulkActionName,
  { account, cluster }: { account: AccountId; cluster: Cluster },
): Record<string, unknown> {
  const { virtualTime, storage, destinations } = cluster;
  const toDate = virtualTime.now - random.of([1_000, 30_000]);
  const dlqIds = inOrder(storage.tables.deadLetters, account)
    .slice(-12)
    .flatMap(({ id }) => (random.isHit(0.5) ? id : []));
  const chosen = dlqIds.length > 0 ? [{ dlqIds }] : [];
  const ofMessage = [{ queueName: random.of(queues) }, { flowControlKey: random.of(keys) }, { toDate }];
  switch (action) {
    case "runs.cancel":
      return random.of([{ workflowUrl: "https://flow-1.example/" }, { host: "flow-2.example" }, { toDate }]);
    case "messages.cancel":
      return random.of([...ofMessage, { host: random.of(destinations.hosts) }]);
    case "dlq.delete":
      return random.of([...ofMessage, ...chosen, { source: "workflow" }, { responseStatus: "500" }]);
    case "dlq.retry":
      return random.of([...ofMessage, ...chosen, { responseStatus: "500" }]);
    case "runs.resume":
    case "runs.restart":
      return random.of([{ workflowRunId: ["once-"] }, { toDate }, ...chosen]);
  }
}
