import type { Millis } from "../../core/model/message.ts";
import { Bursts } from "./bursts.ts";
import { Lockout } from "./lockout.ts";
import { RefusedRequests } from "./refusedRequests.ts";
import type { BurstSharing } from "./sharedBursts.ts";
import { SharedBursts } from "./sharedBursts.ts";

/** What is counted of those who ask. */
export type AccessCounters = { lockout: Lockout; bursts: Bursts | SharedBursts; refused: RefusedRequests };

/**
 * Nothing is counted yet. `sharing`: how the requests of a second are counted together with other nodes, where there may be any.
 * `refusedPerSecond`: see `RefusedRequests`.
 */
export const createAccessCounters = (now: () => Millis, burstSharing?: BurstSharing, refusedPerSecond?: number): AccessCounters => ({
  lockout: new Lockout(now),
  bursts: burstSharing ? new SharedBursts(burstSharing) : new Bursts(),
  refused: new RefusedRequests(now, refusedPerSecond),
});
