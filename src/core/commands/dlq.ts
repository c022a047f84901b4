import { mustAfford } from "../accounts/budget.ts";
import type { Decision, Draft, Key, Needs } from "../decision/command.ts";
import type { NotDone } from "../values/errors.ts";
import { failedIn, Refusal } from "../values/errors.ts";
import { destinationNeeds, listLimiterKeysFor } from "../admission/needs.ts";
import { accept } from "../sending/createMessage.ts";
import { birthOf } from "../values/ids.ts";
import { forgetMessage } from "../search/tags.ts";
import type { AccountId, DeadLetter, Envelope, Letter, MessageId, Millis, Outline } from "../model/message.ts";
import type { Overrides } from "./overrides.ts";
import { flowControlWith, overridden } from "./overrides.ts";
import { acting } from "../accounts/plans.ts";
import { sendingLimitBrokenBy } from "./publish.ts";
import { bothHidden } from "../model/redaction.ts";
import { mustHaveStorage } from "../accounts/storageQuota.ts";
import { countDeadLetters } from "../accounts/usage.ts";

export type Retried = { dlqId: string; messageId: MessageId };

/** `logRetention`: an envelope whose log is past that has only its dead letter left, and goes with it. */
type Selected = { account: AccountId; dlqIds: readonly string[]; logRetention: Millis };

/**
 * Makes a new message of each dead letter that is still there, and takes it out of the queue. Missing ones are skipped.
 * All their bodies are in memory at once: whoever asks for many asks for a few at a time.
 */
export const retryDeadLetters: Decision<Selected & { overrides: Overrides }, Retried[]> = {
  needs: ({ account, dlqIds }) => ({ accounts: [[account]], outlines: { deadLetters: keysOf(account, dlqIds) } }),
  further: ({ account, dlqIds, overrides }, draft) => {
    const letters = lettersIn(draft, { account, dlqIds });
    const messageIds = letters.map(({ messageId }) => messageId);
    const envelopes = messageIds.flatMap((id) => draft.get("envelopes", account, id) ?? []);
    return {
      ...{ envelopes: keysOf(account, messageIds), ...needsOfRemoval(letters) },
      // Another key may be given that none of them had.
      flows: listLimiterKeysFor(account, [...envelopes, { queue: null, flowControl: flowControlWith(null, overrides.flowControl) }]),
      ...destinationNeeds(
        account,
        envelopes.map(({ url }) => url),
      ),
    };
  },
  decide: ({ account: id, dlqIds, logRetention, overrides }, draft, moment) => {
    const account = acting(draft.get("accounts", id));
    mustAfford(account, moment.now);
    mustHaveStorage(account, { goesOn: false });
    return dlqIds.flatMap((dlqId) => {
      const letter = draft.outline("deadLetters", id, dlqId);
      const envelope = letter && draft.get("envelopes", id, letter.messageId);
      // A run is resumed, or restarted.
      if (!envelope || letter.run) return [];
      if (letter.damaged || envelope.damaged) throw damagedLetterRefused(dlqId);
      const again = letterWith(letterOf(envelope), overrides);
      const refusal = sendingLimitBrokenBy(account, again, moment.now);
      if (refusal) throw new Refusal(refusal.refused, refusal.message);
      const message = accept(draft, moment, account, again);
      removeDeadLetter(draft, letter, moment.now - logRetention);
      return [{ dlqId, messageId: message.id }];
    });
  },
};

/** The refusal of a dead letter that cannot be sent again, or resumed. */
export const damagedLetterRefused = (dlqId: string): Refusal =>
  new Refusal(
    "invalid",
    `dlqId: ${dlqId.slice(0, 100)} is damaged in the store, so it cannot be sent again; restore a backup, or delete it`,
  );

const keysOf = (account: AccountId, ids: readonly string[]): Key[] => ids.map((id) => [account, id] as const);

/** The letter a message was made of, to be sent again now. */
function letterOf(envelope: Envelope): Letter {
  const { account: _account, id: _id, createdAt: _createdAt, startedAtOnce: _startedAtOnce, ...letter } = envelope;
  return { ...letter, delay: null, notBefore: null, deduplication: null };
}

function letterWith(letter: Letter, { delay, notBefore, labels, redaction, keepResponse, ...changed }: Overrides): Letter {
  return {
    ...overridden(letter, changed),
    ...(keepResponse === undefined ? {} : { keepResponse }),
    ...{ delay: delay ?? null, notBefore: notBefore ?? null },
    ...{ labels: labels ?? letter.labels, redaction: bothHidden(letter.redaction, redaction ?? null) },
  };
}

/** Removes dead letters. Missing ones are not counted, and are named in `failed`. The log of a message stays for its own time. */
export const deleteDeadLetters: Decision<Selected, { deleted: number; failed?: NotDone[] }> = {
  needs: ({ account, dlqIds }) => ({ outlines: { deadLetters: keysOf(account, dlqIds) } }),
  further: (selected, draft) => needsOfRemoval(lettersIn(draft, selected)),
  decide: ({ account, dlqIds, logRetention }, draft, moment) => {
    let deleted = 0;
    const failed: NotDone[] = [];
    for (const id of new Set(dlqIds)) {
      const letter = draft.outline("deadLetters", account, id);
      if (!letter) {
        failed.push({ id, reason: "there is no such dead letter" });
        continue;
      }
      removeDeadLetter(draft, letter, moment.now - logRetention);
      deleted++;
    }
    return { deleted, ...failedIn(failed) };
  },
};

/**
 * Removes a dead letter. If the entry that ended its message is in the log no more, the time of the log is over as well, and what was kept
 * of the message for the dead letter goes with it. The first dead letters do not name that entry: for them, it is gone when the log before
 * `logBefore` is. The caller has asked for what this needs (`needsOfRemoval`).
 */
export function removeDeadLetter(draft: Draft, letter: Outline<DeadLetter>, logBefore: Millis): void {
  const { account, id, logId } = letter;
  draft.drop("deadLetters", account, id);
  countDeadLetters(draft, account, -1);
  const isLogGone = logId === undefined ? birthOf(id) < logBefore : !draft.get("log", account, logId);
  if (isLogGone) forgetMessage(draft, letter);
}

/** Returns what the removal of these dead letters needs: the entries of the log that ended their messages, and what is kept of their logs. */
export const needsOfRemoval = (letters: readonly Outline<DeadLetter>[]): Required<Pick<Needs, "log" | "keptOf">> => ({
  log: letters.flatMap(({ account, logId }): Key[] => (logId === undefined ? [] : [[account, logId]])),
  keptOf: letters.map(({ account, messageId }) => [account, messageId] as const),
});

const lettersIn = (draft: Draft, { account, dlqIds }: Pick<Selected, "account" | "dlqIds">): Outline<DeadLetter>[] =>
  dlqIds.flatMap((id) => draft.outline("deadLetters", account, id) ?? []);
