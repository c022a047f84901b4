import type { Millis } from "../../engine/core/values/basics.ts";
import { Bursts } from "./bursts.ts";
import { Lockout } from "./lockout.ts";
import { RefusedRequests } from "./refusedRequests.ts";
import type { BurstSharing } from "./sharedBursts.ts";
import { SharedBursts } from "./sharedBursts.ts";

/** The counters of failed, refused and frequent requests. */
export type AccessCounters = { lockout: Lockout; bursts: Bursts | SharedBursts; refused: RefusedRequests };

/**
 * Creates counters that start at 0. `burstSharing`: how to count the requests per second together with other
 * nodes; absent if there can be no other node. `refusedPerSecond`: see `RefusedRequests`.
 */
export const createAccessCounters = (
  now: () => Millis,
  burstSharing?: BurstSharing,
  refusedPerSecond?: number,
): AccessCounters => ({
  lockout: new Lockout(now),
  bursts: burstSharing ? new SharedBursts(burstSharing) : new Bursts(),
  refused: new RefusedRequests(now, refusedPerSecond),
});
