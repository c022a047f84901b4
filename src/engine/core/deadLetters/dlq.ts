import { damagedRefusal } from "../decision/requireUndamaged.ts";
import { assertWithinBudget } from "../limits/budget.ts";
import type { Decision, Draft } from "../decision/command.ts";
import type { NotDone } from "../values/errors.ts";
import { toFailedMember, throwIfRefused } from "../values/errors.ts";
import { accept } from "../sending/createMessage.ts";
import { readIdTime } from "../values/ids.ts";
import { forgetMessage } from "../search/tags.ts";
import type { AccountId, MessageId, Millis } from "../values/basics.ts";
import type { StoredMessage, MessageInput, WithoutBody } from "../model/message.ts";
import type { DeadLetter } from "../model/deadLetter.ts";
import type { Overrides } from "./overrides.ts";
import { applyOverrides, extendRedaction } from "./overrides.ts";
import type { GroupChange } from "./groupChange.ts";
import { applyGroupChange } from "./groupChange.ts";
import { findRedactedRefusal } from "./redactedParts.ts";
import { requireActiveAccount } from "../accounts/plans.ts";
import { findSendingRefusal } from "../limits/sendingLimits.ts";
import { assertStorageAvailable } from "../limits/storageQuota.ts";
import { countDeadLetters } from "../accounts/usage.ts";

/** A dead letter that was sent again, and its new message. */
export type Retried = { dlqId: string; messageId: MessageId };

/**
 * The dead letters of a command. `logRetention` says when the log of a message has expired. After that, only
 * the dead letter needs the stored message, so both are removed together.
 */
type DlqSelection = { account: AccountId; dlqIds: readonly string[]; logRetention: Millis };

/**
 * Creates a new message from each of these dead letters and removes the dead letter. Missing dead letters and
 * failed runs are skipped. All their bodies are in memory at once, so a caller splits a long list into
 * several commands.
 */
export const retryDeadLetters: Decision<
  DlqSelection & { overrides: Overrides; change?: GroupChange },
  Retried[]
> = {
  decide: ({ account: id, dlqIds, logRetention, overrides, change }, draft, moment) => {
    const account = requireActiveAccount(draft.get("accounts", id));
    assertWithinBudget(account, moment.now);
    assertStorageAvailable(account, { continuesRun: false, isDiskLow: moment.isDiskLow });
    return dlqIds.flatMap((dlqId) => {
      const deadLetter = draft.inspectWithoutBody("deadLetters", id, dlqId);
      const message = deadLetter && draft.inspect("storedMessages", id, deadLetter.messageId);
      // A failed run is resumed or restarted instead.
      if (!message || deadLetter.run) return [];
      if (deadLetter.damaged || message.damaged) throw damagedRefusal("deadLetters", dlqId);
      const same = applyRetryOverrides(toMessageInput(message), overrides);
      const input = change ? applyGroupChange(same, change, { account, message, dlqId, moment }) : same;
      throwIfRefused(
        findRedactedRefusal(message, { overrides }) ?? findSendingRefusal(account, input, moment.now),
      );
      const accepted = accept(draft, moment, { account, input });
      removeDeadLetter(draft, deadLetter, moment.now - logRetention);
      return [{ dlqId, messageId: accepted.id }];
    });
  },
};

/** Returns the input that creates a message like this one now. */
export function toMessageInput(message: StoredMessage): MessageInput {
  const {
    account: _account,
    id: _id,
    createdAt: _createdAt,
    startedAtOnce: _startedAtOnce,
    deduplicationId: _deduplicationId,
    ackKey: _ackKey,
    ...input
  } = message;
  return { ...input, delay: null, notBefore: null, deduplication: null };
}

/** Returns the input with the settings that a retry replaces. Throws `Refusal` if they do not fit. */
export function applyRetryOverrides(
  input: MessageInput,
  { delay, notBefore, labels, redaction, keepResponse, hideHeaders, ackTimeout, ...changed }: Overrides,
): MessageInput {
  return {
    ...applyOverrides(input, changed),
    ...(keepResponse === undefined ? {} : { keepResponse }),
    ...(hideHeaders === undefined ? {} : { hideHeaders }),
    ...(ackTimeout === undefined ? {} : { ackTimeout }),
    delay: delay ?? null,
    notBefore: notBefore ?? null,
    labels: labels ?? input.labels,
    redaction: extendRedaction(input.redaction, redaction),
  };
}

/**
 * Removes dead letters. Missing ones are not counted and are listed in `failed`. The log of a message stays
 * until its retention ends.
 */
export const deleteDeadLetters: Decision<DlqSelection, { deleted: number; failed?: NotDone[] }> = {
  decide: ({ account, dlqIds, logRetention }, draft, moment) => {
    let deleted = 0;
    const failed: NotDone[] = [];
    for (const id of new Set(dlqIds)) {
      const deadLetter = draft.inspectWithoutBody("deadLetters", account, id);
      if (!deadLetter) {
        failed.push({ id, reason: "the dead letter does not exist" });
        continue;
      }
      removeDeadLetter(draft, deadLetter, moment.now - logRetention);
      deleted++;
    }
    return { deleted, ...toFailedMember(failed) };
  },
};

/**
 * Removes a dead letter. If the log entry that ended its message has expired, everything else that was kept
 * of the message is removed as well. A damaged dead letter does not name the entry. The entry then counts as
 * expired if the dead letter is older than `logBefore`.
 */
export function removeDeadLetter(draft: Draft, deadLetter: WithoutBody<DeadLetter>, logBefore: Millis): void {
  const { account, id, logId } = deadLetter;
  draft.drop("deadLetters", account, id);
  countDeadLetters(draft, account, -1);
  const isLogGone = logId === undefined ? readIdTime(id) < logBefore : !draft.get("log", account, logId);
  if (isLogGone) forgetMessage(draft, deadLetter);
}

/** Removes a dead letter that has expired or exceeds a limit. Records that. */
export const dropOldDeadLetter: typeof removeDeadLetter = (draft, deadLetter, logBefore) => {
  removeDeadLetter(draft, deadLetter, logBefore);
  draft.record("dead letter expired");
};
