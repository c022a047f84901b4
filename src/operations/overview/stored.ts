import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import type { MessageState } from "../../engine/core/model/messageState.ts";
import type { StorageReads } from "../../engine/store/layout/storageReads.ts";
import type { StoredOperation } from "../../engine/store/layout/storedOperation.ts";
import { nothingStored } from "../../engine/store/layout/storedOperation.ts";
import type { GateFlow } from "../../engine/core/explain/gateConditions.ts";
import { toTag } from "../../engine/core/search/tags.ts";
import type { PointRange } from "../../engine/core/accounts/statistics.ts";
import { readGateFlow } from "../../engine/store/queries/gateFlows.ts";
import type { AttemptPoint } from "./attemptPoints.ts";
import { readAttemptPoints } from "./attemptPoints.ts";
import type { EndedCounts } from "./endedCounts.ts";
import { countEnded } from "./endedCounts.ts";
import type { CountUpTo, HostDetails, HostSituation, Situation } from "./situation.ts";
import { countHeldMessages, readHost, readHosts, readRunningTo, readSituation } from "./situation.ts";

/** How an account is doing, on one page. */
export const overview = {
  ...nothingStored,
  createQueries: (reads: StorageReads) => ({
    /** Returns the counts, pauses and hosts of an account, with bounded reads. */
    situation: (account: AccountId, now: Millis): Promise<Situation> => readSituation(reads, account, now),
    /** Returns how many messages and runs have ended, by how they ended. `logFrom`: when the log begins. */
    ended: (account: AccountId, logFrom: Millis): Promise<EndedCounts> => countEnded(reads, account, logFrom),
    /** Returns how deliveries to one host go. */
    host: (account: AccountId, host: string, now: Millis): Promise<HostDetails> =>
      readHost(reads, account, { host, now }),
    /**
     * Returns the messages of an account that are being sent to a host, or null if too many messages of all
     * accounts are in flight.
     */
    runningTo: (account: AccountId, host: string): Promise<MessageState[] | null> =>
      readRunningTo(reads, account, host),
    /** Returns how many messages of an account the gates hold. */
    heldMessages: (account: AccountId): Promise<CountUpTo> => countHeldMessages(reads, account),
    /** Returns the flow of a queue in the last minutes, or null if there is too much to count. */
    queueFlow: (account: AccountId, queue: string, now: Millis): Promise<readonly GateFlow[] | null> =>
      readGateFlow(reads, { account, tag: toTag.queue(queue) }, now),
    /** Returns the retries and the durations of attempts in each point of a range, from the log. */
    attemptPoints: (
      account: AccountId,
      range: PointRange & { logFrom: Millis },
    ): Promise<readonly AttemptPoint[]> => readAttemptPoints(reads, account, range),
    /** Returns how deliveries to the hosts of an account go. */
    hosts: (account: AccountId): Promise<HostSituation[]> => readHosts(reads, account),
  }),
} satisfies StoredOperation;
