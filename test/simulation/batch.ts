import type { Hands } from "../../src/core/admission/capacity.ts";
import type { LogRow, MessageState } from "../../src/core/model/message.ts";
import type { BatchResult, Call } from "../../src/store/store.ts";
import type { Changes } from "./changes.ts";

/** What a node asked for at once, and what it was answered. */
export type Batch = { node: string; calls: readonly Call[]; result: BatchResult; hands: Hands };

/** A batch with what it changed. */
export type Case = Batch & { changes: Changes };

/** Says what must hold. When it does not, the run has found a fault. */
export type Demand = (holds: boolean, promise: string) => void;

/** Does the row tell of a lease that ran out, after which the message is sent again? */
export const isLost = ({ states, error }: LogRow): boolean => states.includes("RETRY") && error !== null && error.startsWith("no report: ");

/** Did a batch lease the message anew? */
export const isLease = (before: MessageState | undefined, after: MessageState | undefined): after is MessageState =>
  after !== undefined && after.leasedBy !== null && (!before || before.leasedBy === null || before.attempts !== after.attempts);
