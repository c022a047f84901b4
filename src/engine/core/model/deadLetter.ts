import type { AccountId, Bytes, HeaderList, MessageId, Millis } from "../values/basics.ts";
import type { Damaged } from "./message.ts";
import type { RunKey } from "./runPost.ts";

/** The state of a failure callback. */
export type CallbackState =
  | "CALLBACK_INPROGRESS"
  | "CALLBACK_SUCCESS"
  | "CALLBACK_FAIL"
  | "CALLBACK_CANCELED";
/** The state of a failure callback and the response to it, as the API shows them with the dead letter. */
export type FailureCallbackInfo = {
  state: CallbackState;
  responseStatus?: number;
  responseBody?: string;
  responseHeaders?: HeaderList;
  digest?: string;
  /** The response was not read completely, as in `Outcome`. */
  cut?: true;
};

/**
 * A message that failed for good, with its last response. `id` is the dlqId and begins with the time of the
 * failure.
 */
export type DeadLetter = {
  account: AccountId;
  id: string;
  messageId: MessageId;
  /** The log entry that records the failure. Absent if the dead letter is damaged. */
  logId?: string;
  status: number | null;
  headers: HeaderList;
  body: Bytes;
  /** SHA-256 of the whole body in hex. Present if only a part of the body is kept. */
  digest?: string;
  cut?: true;
  error: string | null;
  retried: number;
  failureCallback: FailureCallbackInfo | null;
  /** The messages that sent this one again with changes, the newest last. */
  replays?: readonly MessageId[];
  /**
   * The error without the parts that vary, as the group of this dead letter shows it. Absent if it has no
   * tag for its cause.
   */
  cause?: string;
  /** The run that failed with the message. */
  run?: { key: RunKey; runId: string; createdAt: Millis; url: string; failureUrl: string | null };
  /** The tags of the message, of its URL, cause and caller: see `engine/core/search/tags.ts`. */
  tags: readonly string[];
  damaged?: Damaged;
};
