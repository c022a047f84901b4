import type { AccountId } from "../../engine/core/values/basics.ts";
import type { ErrorCode } from "../../engine/core/values/errors.ts";
import type { RefusedToken } from "../auth/tokenRefusal.ts";

/** Why a request became no message: the code of its refusal, more about its token, or a duplicate. */
type UnpublishedReason = ErrorCode | RefusedToken["reason"] | "deduplicated";

/**
 * Messages that were asked for and that do not exist. `account`: that of the server if the request has not
 * named one. `subject`: the id of a source or a token, `main` or `readOnly` for a token of the account
 * itself, `session` for the web console, or `unknown`.
 */
export type Unpublished = {
  account: AccountId;
  subject: string;
  reason: UnpublishedReason;
  address: string | null;
  /** The earlier message of a duplicate. */
  messageId?: string;
  /** The deduplication id of a duplicate, if it has one. */
  deduplicationId?: string;
};

/** Counts what became no message. It must not fail, and must not wait. */
export type UnpublishedCounter = { noteUnpublished?(one: Unpublished): void };
