import { describe } from "vitest";
import { describeAccounts } from "./accounts.ts";
import { describeAccountLimits } from "./accountLimits.ts";
import { describeAlerts } from "../../../operations/alerts/contract.ts";
import { describeOutboxes } from "../../../operations/outbox/contract.ts";
import { describeAudit } from "../../../operations/auditLog/contract.ts";
import { describeBatches } from "./batches.ts";
import { describeBursts } from "./bursts.ts";
import { describeBytes } from "./bytes.ts";
import { describeCauses } from "./causes.ts";
import { describeCounters } from "./counters.ts";
import { describeDue } from "./due.ts";
import { describeEnds } from "./ends.ts";
import { describeFailedRuns } from "./failedRuns.ts";
import { describeHolders } from "./holders.ts";
import { describeHold } from "./hold.ts";
import { describeJobs } from "../../../operations/jobs/contract.ts";
import { describeLimiters } from "./limiters.ts";
import { describeLongLists } from "./longLists.ts";
import { describeWaitlists } from "./waitlists.ts";
import { describeObjectLimits } from "./objectLimits.ts";
import { describePublish } from "./publish.ts";
import { describeReads } from "./reads.ts";
import { describeRetention } from "./retention.ts";
import { describeRuns } from "./runs.ts";
import { describeRunOn } from "./runOn.ts";
import { describeRunWaiters } from "./runWaiters.ts";
import { describeSending } from "./sending.ts";
import { describeStored } from "./stored.ts";
import { describeTrim } from "./trim.ts";
import { describeTimeIndex } from "./timeIndex.ts";
import { describeSearch } from "../../../operations/search/contract.ts";
import { describeUnpublished } from "../../../operations/unpublished/contract.ts";
import { describeSelfCheck } from "../../../operations/selfCheck/contract.ts";
import { describeSituation } from "../../../operations/overview/contract.ts";
import { describeSources } from "../../../operations/sources/contract.ts";
import { describeUnfinished } from "./unfinished.ts";
import { describeUsage } from "./usage.ts";
import { describeSessions } from "../../../operations/console/contract.ts";
import { describeTokens } from "./tokens.ts";
import type { OpenStore } from "../storeFixture.ts";

/** The parts that use every kind of row. */
const basics = [
  describePublish,
  describeSending,
  describeWaitlists,
  describeRuns,
  describeRunOn,
  describeRunWaiters,
];
const others = [
  ...[
    describeAccounts,
    describeEnds,
    describeLimiters,
    describeAccountLimits,
    describeCounters,
    describeDue,
    describeBatches,
    describeBursts,
    describeBytes,
    describeCauses,
  ],
  ...[
    describeReads,
    describeLongLists,
    describeUnfinished,
    describeHolders,
    describeSearch,
    describeSituation,
    describeTimeIndex,
    describeRetention,
    describeObjectLimits,
    describeTrim,
    describeSources,
    describeSessions,
    describeTokens,
  ],
  ...[
    describeAlerts,
    describeOutboxes,
    describeUnpublished,
    describeAudit,
    describeFailedRuns,
    describeJobs,
    describeUsage,
    describeStored,
    describeHold,
    describeSelfCheck,
  ],
];

/**
 * Tests the contract of all stores. `long`: the parts that run only in the long tests, for a store that is
 * slow or differs little from another tested store.
 */
export function describeStore(
  name: string,
  open: OpenStore,
  { long }: { long?: "others" | "all" } = {},
): void {
  describe(`store: ${name}`, { tags: long === "all" ? "long" : [] }, () => {
    for (const describePart of basics) describePart(open);
  });
  describe(`store: ${name}`, { tags: long === undefined ? [] : "long" }, () => {
    for (const describePart of others) describePart(open);
  });
}
