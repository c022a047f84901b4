import { describe } from "vitest";
import { describeAccounts } from "./accounts.ts";
import { describeAllowances } from "./allowance.ts";
import { describeAudit } from "./audit.ts";
import { describeBatches } from "./batches.ts";
import { describeBursts } from "./bursts.ts";
import { describeBytes } from "./bytes.ts";
import { describeCounters } from "./counters.ts";
import { describeDue } from "./due.ts";
import { describeEnds } from "./ends.ts";
import { describeFailedRuns } from "./failedRuns.ts";
import { describeFlows } from "./flows.ts";
import { describeLines } from "./lines.ts";
import { describePlaces } from "./places.ts";
import { describePublish } from "./publish.ts";
import { describeReads } from "./reads.ts";
import { describeRetention } from "./retention.ts";
import { describeRuns } from "./runs.ts";
import { describeSending } from "./sending.ts";
import { describeStored } from "./stored.ts";
import { describeTrim } from "./trim.ts";
import { describeSightings } from "./sightings.ts";
import { describeSources } from "./sources.ts";
import { describeUsage } from "./usage.ts";
import { describeTokens } from "./tokens.ts";
import type { OpenStore } from "../world.ts";

/** What every store must do: the one contract behind `Store`. */
export function describeStore(name: string, open: OpenStore): void {
  describe(`store: ${name}`, () => {
    describePublish(open);
    describeAccounts(open);
    describeSending(open);
    describeEnds(open);
    describeLines(open);
    describeFlows(open);
    describeAllowances(open);
    describeCounters(open);
    describeDue(open);
    describeBatches(open);
    describeBursts(open);
    describeBytes(open);
    describeReads(open);
    describeSightings(open);
    describeRetention(open);
    describePlaces(open);
    describeTrim(open);
    describeSources(open);
    describeTokens(open);
    describeAudit(open);
    describeRuns(open);
    describeFailedRuns(open);
    describeUsage(open);
    describeStored(open);
  });
}
