import type { Damaged, MessageInput } from "./message.ts";
import type { Remedy } from "../values/remedy.ts";
import type { AccountId, Bytes, MessageId, Millis } from "../values/basics.ts";

/** A publish that is repeated. `dueAt` is the time of the next firing; null while the schedule is paused. */
export type Schedule = {
  account: AccountId;
  id: string;
  cron: string;
  createdAt: Millis;
  dueAt: Millis | null;
  paused: boolean;
  lastAt: Millis | null;
  /** The messages that the last firing created. */
  lastMessages: readonly MessageId[];
  /** Why the last firing was skipped. Absent if it was not skipped. */
  passedOver?: string;
  /** The remedy for `passedOver`. */
  remedy?: Remedy;
  messageInput: Omit<MessageInput, "body">;
  body: Bytes;
  damaged?: Damaged;
};
