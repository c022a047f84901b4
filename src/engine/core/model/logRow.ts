import type { AttemptTiming } from "./attempt.ts";
import type { AccountId, Bytes, HeaderList, MessageId, Millis, NodeId } from "../values/basics.ts";

/** The states that the log of a message records. */
export type LogState =
  | "CREATED"
  | "ACTIVE"
  | "RETRY"
  | "ACKNOWLEDGING"
  | "ERROR"
  | "DELIVERED"
  | "FAILED"
  | "CANCEL_REQUESTED"
  | "CANCELLED";

/**
 * An event in the life of a message: one or more states, in order, at one moment. The stored message implies
 * CREATED. `status` is null if there was no response, or if it was not known yet: see `isSettledByStep`.
 */
export type LogRow = {
  account: AccountId;
  /** A position, which sorts by time. */
  id: string;
  messageId: MessageId;
  time: Millis;
  states: readonly LogState[];
  error: string | null;
  nextDueAt: Millis | null;
  status: number | null;
  headers: HeaderList;
  body: Bytes;
  /** SHA-256 of the whole body in hex. Present if the body was cut. */
  digest?: string;
  cut?: true;
  dlqId: string | null;
  /** The attempt that ended. Absent if none did, or if no request was attempted. */
  attempt?: LoggedAttempt;
  /** The host that the message was delivered to. Present if a step settled it, before its attempt ended. */
  settledHost?: string;
  /** The tags of the message: see `engine/core/search/tags.ts`. */
  tags: readonly string[];
};

/** An attempt as the log keeps it: its times, the node that made it, and the host that it was made to. */
export type LoggedAttempt = AttemptTiming & { node: NodeId; host: string };

/** Reports whether a log entry records the end of its message. */
export const recordsEnd = ({ states }: Pick<LogRow, "states">): boolean =>
  states.some((state) => state === "DELIVERED" || state === "FAILED" || state === "CANCELLED");
