import { mustAfford } from "../accounts/budget.ts";
import type { Decision, Draft, Key, Needs } from "../decision/command.ts";
import type { NotDone } from "../values/errors.ts";
import { toFailedMember, Refusal } from "../values/errors.ts";
import { destinationNeeds, listLimiterKeysFor } from "../admission/needs.ts";
import { accept } from "../sending/createMessage.ts";
import { readIdTime } from "../values/ids.ts";
import { forgetMessage } from "../search/tags.ts";
import type { AccountId, DeadLetter, StoredMessage, MessageInput, MessageId, Millis, WithoutBody } from "../model/message.ts";
import type { Overrides } from "./overrides.ts";
import { mergeFlowControl, applyOverrides } from "./overrides.ts";
import { requireActiveAccount } from "../accounts/plans.ts";
import { findSendingRefusal } from "./publish.ts";
import { mergeRedactions } from "../model/redaction.ts";
import { mustHaveStorage } from "../accounts/storageQuota.ts";
import { countDeadLetters } from "../accounts/usage.ts";

export type Retried = { dlqId: string; messageId: MessageId };

/** `logRetention`: a message whose log has expired has only its dead letter left, and is removed with it. */
type DlqSelection = { account: AccountId; dlqIds: readonly string[]; logRetention: Millis };

/**
 * Makes a new message of each dead letter that is still there, and takes it out of the queue. Missing ones are skipped.
 * All their bodies are in memory at once: whoever asks for many asks for a few at a time.
 */
export const retryDeadLetters: Decision<DlqSelection & { overrides: Overrides }, Retried[]> = {
  needs: ({ account, dlqIds }) => ({ accounts: [[account]], withoutBodies: { deadLetters: toKeys(account, dlqIds) } }),
  further: ({ account, dlqIds, overrides }, draft) => {
    const deadLetters = findDeadLetters(draft, { account, dlqIds });
    const messageIds = deadLetters.map(({ messageId }) => messageId);
    const messages = messageIds.flatMap((id) => draft.get("storedMessages", account, id) ?? []);
    return {
      storedMessages: toKeys(account, messageIds),
      ...removalNeeds(deadLetters),
      // Another key may be given that none of them had.
      limiters: listLimiterKeysFor(account, [...messages, { queue: null, flowControl: mergeFlowControl(null, overrides.flowControl) }]),
      ...destinationNeeds(
        account,
        messages.map(({ url }) => url),
      ),
    };
  },
  decide: ({ account: id, dlqIds, logRetention, overrides }, draft, moment) => {
    const account = requireActiveAccount(draft.get("accounts", id));
    mustAfford(account, moment.now);
    mustHaveStorage(account, { continuesRun: false });
    return dlqIds.flatMap((dlqId) => {
      const deadLetter = draft.getWithoutBody("deadLetters", id, dlqId);
      const message = deadLetter && draft.get("storedMessages", id, deadLetter.messageId);
      // A run is resumed, or restarted.
      if (!message || deadLetter.run) return [];
      if (deadLetter.damaged || message.damaged) throw damagedDeadLetterRefusal(dlqId);
      const input = applyRetryOverrides(toMessageInput(message), overrides);
      const refusal = findSendingRefusal(account, input, moment.now);
      if (refusal) throw new Refusal(refusal.refused, refusal.message);
      const accepted = accept(draft, moment, account, input);
      removeDeadLetter(draft, deadLetter, moment.now - logRetention);
      return [{ dlqId, messageId: accepted.id }];
    });
  },
};

/** The refusal of a dead letter that cannot be sent again, or resumed. */
export const damagedDeadLetterRefusal = (dlqId: string): Refusal =>
  new Refusal(
    "invalid",
    `dlqId: ${dlqId.slice(0, 100)} is damaged in the store, so it cannot be sent again; restore a backup, or delete it`,
  );

const toKeys = (account: AccountId, ids: readonly string[]): Key[] => ids.map((id) => [account, id] as const);

/** The letter a message was made of, to be sent again now. */
function toMessageInput(message: StoredMessage): MessageInput {
  const { account: _account, id: _id, createdAt: _createdAt, startedAtOnce: _startedAtOnce, ...input } = message;
  return { ...input, delay: null, notBefore: null, deduplication: null };
}

function applyRetryOverrides(
  input: MessageInput,
  { delay, notBefore, labels, redaction, keepResponse, ...changed }: Overrides,
): MessageInput {
  return {
    ...applyOverrides(input, changed),
    ...(keepResponse === undefined ? {} : { keepResponse }),
    delay: delay ?? null,
    notBefore: notBefore ?? null,
    labels: labels ?? input.labels,
    redaction: mergeRedactions(input.redaction, redaction ?? null),
  };
}

/** Removes dead letters. Missing ones are not counted, and are named in `failed`. The log of a message stays for its own time. */
export const deleteDeadLetters: Decision<DlqSelection, { deleted: number; failed?: NotDone[] }> = {
  needs: ({ account, dlqIds }) => ({ withoutBodies: { deadLetters: toKeys(account, dlqIds) } }),
  further: (selected, draft) => removalNeeds(findDeadLetters(draft, selected)),
  decide: ({ account, dlqIds, logRetention }, draft, moment) => {
    let deleted = 0;
    const failed: NotDone[] = [];
    for (const id of new Set(dlqIds)) {
      const deadLetter = draft.getWithoutBody("deadLetters", account, id);
      if (!deadLetter) {
        failed.push({ id, reason: "there is no such dead letter" });
        continue;
      }
      removeDeadLetter(draft, deadLetter, moment.now - logRetention);
      deleted++;
    }
    return { deleted, ...toFailedMember(failed) };
  },
};

/**
 * Removes a dead letter. If the entry that ended its message is in the log no more, the time of the log is over as well, and what was kept
 * of the message for the dead letter goes with it. The first dead letters do not name that entry: for them, it is gone when the log before
 * `logBefore` is. The caller has asked for what this needs (`removalNeeds`).
 */
export function removeDeadLetter(draft: Draft, deadLetter: WithoutBody<DeadLetter>, logBefore: Millis): void {
  const { account, id, logId } = deadLetter;
  draft.drop("deadLetters", account, id);
  countDeadLetters(draft, account, -1);
  const isLogGone = logId === undefined ? readIdTime(id) < logBefore : !draft.get("log", account, logId);
  if (isLogGone) forgetMessage(draft, deadLetter);
}

/** Returns what the removal of these dead letters needs: the entries of the log that ended their messages, and what is kept of their logs. */
export const removalNeeds = (deadLetters: readonly WithoutBody<DeadLetter>[]): Required<Pick<Needs, "log" | "keptLogMessages">> => ({
  log: deadLetters.flatMap(({ account, logId }): Key[] => (logId === undefined ? [] : [[account, logId]])),
  keptLogMessages: deadLetters.map(({ account, messageId }) => [account, messageId] as const),
});

const findDeadLetters = (draft: Draft, { account, dlqIds }: Pick<DlqSelection, "account" | "dlqIds">): WithoutBody<DeadLetter>[] =>
  dlqIds.flatMap((id) => draft.getWithoutBody("deadLetters", account, id) ?? []);
