import { describe } from "vitest";
import { describeAccounts } from "./contractAccounts.ts";
import { describeAllowances } from "./contractAllowance.ts";
import { describeAudit } from "./contractAudit.ts";
import { describeBatches } from "./contractBatches.ts";
import { describeBursts } from "./contractBursts.ts";
import { describeBytes } from "./contractBytes.ts";
import { describeDue } from "./contractDue.ts";
import { describeEnds } from "./contractEnds.ts";
import { describeFailedRuns } from "./contractFailedRuns.ts";
import { describeFlows } from "./contractFlows.ts";
import { describeLines } from "./contractLines.ts";
import { describePlaces } from "./contractPlaces.ts";
import { describePublish } from "./contractPublish.ts";
import { describeReads } from "./contractReads.ts";
import { describeRetention } from "./contractRetention.ts";
import { describeRuns } from "./contractRuns.ts";
import { describeSending } from "./contractSending.ts";
import { describeStored } from "./contractStored.ts";
import { describeTrim } from "./contractTrim.ts";
import { describeSightings } from "./contractSightings.ts";
import { describeSources } from "./contractSources.ts";
import { describeUsage } from "./contractUsage.ts";
import { describeTokens } from "./contractTokens.ts";
import type { OpenStore } from "./world.ts";

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
