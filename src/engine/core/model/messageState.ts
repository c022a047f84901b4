import type { RunKey } from "./runPost.ts";
import type { TimeKeys } from "./tag.ts";
import type { AccountId, MessageId, Millis, NodeId } from "../values/basics.ts";

/**
 * The state of an unfinished message. The row is removed when the message is delivered, dead-lettered or
 * cancelled.
 *
 * - `pending`: the message waits for `dueAt`, its send time.
 * - `active`: a node has leased the message and is sending it. `dueAt` is the end of the lease; after that
 *   time the message is due again.
 * - `ending`: like `active`, but an operator has ended the running attempt. Its node closes the connection,
 *   and the message is then due again after its retry delay, whatever the request came to.
 * - `acknowledging`: the receiver has taken over the attempt, or a client has pulled it, and reports its
 *   outcome later. No node has the lease. `dueAt` is the time until which it must be reported. The message
 *   keeps its slots at the gates 1 to 4. See `engine/core/attempts/acknowledging.ts`.
 * - `cancelling`, `settled`: the message was cancelled, or settled by a step of its run, while it was active.
 *   It counts as finished, but its request still runs. The row keeps the lease and the slots at the gates
 *   until the request has an outcome or the lease ends.
 * - `held`: the message is due, but a gate is closed. It is in the waitlist of that gate and has no due time:
 *   see `engine/core/admission/gate.ts`.
 */
export type MessageState = {
  account: AccountId;
  id: MessageId;
  state: "pending" | "active" | "ending" | "acknowledging" | "held" | "cancelling" | "settled";
  dueAt: Millis | null;
  /**
   * The number of attempts that have ended, including lost ones. It is also the number of the running
   * attempt. A report with another number does not belong to the current lease and changes nothing.
   */
  attempts: number;
  /** The number of these attempts that ended without a report, because the lease expired. */
  lostAttempts: number;
  /**
   * The number of these attempts that an operator ended, or whose reused connection ended without a response.
   * Absent if it is 0.
   */
  endedAttempts?: number;
  /**
   * When the running attempt began. Absent until its lease is renewed: see `readStart`. For `acknowledging`:
   * when the receiver took over the attempt.
   */
  startedAt?: Millis;
  /**
   * The node that is sending the message, or one of `holders`; null if the message has no lease.
   * `counted` and `countedToEndpoint` record that the message counts towards the limit of its account: in
   * total, or for its endpoint.
   */
  leasedBy: NodeId | null;
  counted?: true;
  countedToEndpoint?: true;
  /**
   * The keys of the time index for everything that is recorded about the message: see
   * `engine/core/search/timeIndex.ts`.
   */
  timeKeys: TimeKeys;
  host: string;
  endpoint: string;
  /** The number of body bytes that the message occupies in memory while it is sent. */
  size: number;
  /**
   * Whether the outcome must be reported. If not, a success can be settled without loading the stored
   * message.
   */
  reportsOutcome: boolean;
  queue: string | null;
  flowControlKey: string | null;
  /**
   * The queue slot that the message holds. A callback shares the slot of the message that it reports on. See
   * `engine/core/commands/queue.ts`.
   */
  slot: MessageId | null;
  /** The id of the gate in whose waitlist the message is held: see `engine/core/admission/gate.ts`. */
  waitlist: string | null;
  /** The run that the message belongs to. The message is dropped when the run ends. */
  run: RunKey | null;
  /** The tags by which the message can be searched: see `engine/core/search/tags.ts`. */
  tags: readonly string[];
};

/**
 * Reports whether a message is unfinished. A cancelled or settled message whose request still runs counts as
 * finished; its row only keeps its slots at the gates.
 */
export const isUnfinished = ({ state }: Pick<MessageState, "state">): boolean =>
  state !== "cancelling" && state !== "settled";

/** Reports whether a node is sending an unfinished message. */
export const isBeingSent = ({ state }: Pick<MessageState, "state">): boolean =>
  state === "active" || state === "ending";

/** Reports whether an attempt of an unfinished message runs: a node sends it, or its receiver holds it. */
export const isInAttempt = (state: Pick<MessageState, "state">): boolean =>
  isBeingSent(state) || state.state === "acknowledging";

/** Stands for a node in the lease of an attempt that its receiver has taken over. */
export const receiverHold: NodeId = "receiver";
/** Stands for a node in the lease of an attempt that a client has pulled. */
export const pullerHold: NodeId = "puller";
/** The two above. No node has these ids. */
export const holders: readonly NodeId[] = [receiverHold, pullerHold];

/** Reports whether a client has pulled the running attempt, and holds it. */
export const isPulled = ({ leasedBy }: Pick<MessageState, "leasedBy">): boolean => leasedBy === pullerHold;

/** Names a delivery: the attempt whose lease a node claims to hold. */
export type LeaseRef = { account: AccountId; messageId: MessageId; attempt: number };
/** A lease that its node gives back. `hasToken`: somebody may have received the token of the attempt. */
export type ReturnedLease = LeaseRef & { hasToken?: boolean };
