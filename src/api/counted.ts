import type { Millis } from "../core/message.ts";
import { Bursts } from "./bursts.ts";
import { Lockout } from "./lockout.ts";
import type { Sharing } from "./sharedBursts.ts";
import { SharedBursts } from "./sharedBursts.ts";

/** What is counted of those who ask. */
export type Counted = { lockout: Lockout; bursts: Bursts | SharedBursts };

/** Nothing is counted yet. `sharing`: how the requests of a second are counted together with other nodes, where there may be any. */
export const countedFrom = (now: () => Millis, sharing?: Sharing): Counted => ({
  lockout: new Lockout(now),
  bursts: sharing ? new SharedBursts(sharing) : new Bursts(),
});
