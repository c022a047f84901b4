import type { Counters } from "../../engine/core/model/limiter.ts";
import type { MessageId } from "../../engine/core/values/basics.ts";

/**
 * Something in the rows of an account that should be impossible, and that would leave work undone.
 *
 * - `waiter`: a waiting step of a run that has ended.
 * - `waits`: an active run whose number of waiting steps differs from its waiters.
 * - `lostMessage`: a run with nothing in flight, whose message has neither a state nor an end.
 * - `slot`: a queue slot whose number of holders differs from its messages by `drift`.
 * - `limiter`: a limiter whose counters differ from its rows by `drift`, or which is missing.
 * - `hostWaitlist`: held messages of a host without a row that says when they are served.
 *
 * `id` is the id of the row; for a run, the id that its caller gave it.
 */
export type Suspect =
  | { kind: "waiter" | "waits" | "hostWaitlist"; id: string }
  | { kind: "lostMessage"; id: string; messageId: MessageId }
  | { kind: "slot"; id: string; drift: number }
  | { kind: "limiter"; id: string; drift: Counters };
