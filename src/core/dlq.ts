import { mustAfford } from "./budget.ts";
import type { Decision, Draft, Key } from "./command.ts";
import type { NotDone } from "./errors.ts";
import { failedIn, Refusal } from "./errors.ts";
import { flowsOfLetters } from "./gate.ts";
import { birthOf } from "./ids.ts";
import { accept, linesTo } from "./lease.ts";
import { dropEnvelope } from "./mark.ts";
import type { AccountId, DeadLetter, Envelope, Letter, MessageId, Millis, Outline } from "./message.ts";
import type { Overrides } from "./overrides.ts";
import { flowControlWith, overridden } from "./overrides.ts";
import { acting } from "./plans.ts";
import { sendingLimitBrokenBy } from "./publish.ts";
import { bothHidden } from "./redaction.ts";
import { countDeadLetters } from "./usage.ts";

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
      ...{ envelopes: keysOf(account, messageIds), log: linesOfLog(letters) },
      // Another key may be given that none of them had.
      flows: flowsOfLetters(account, [...envelopes, { queue: null, flowControl: flowControlWith(null, overrides.flowControl) }]),
      lines: linesTo(
        account,
        envelopes.map(({ url }) => url),
      ),
    };
  },
  decide: ({ account: id, dlqIds, logRetention, overrides }, draft, moment) => {
    const account = acting(draft.get("accounts", id));
    mustAfford(account, moment.now);
    return dlqIds.flatMap((dlqId) => {
      const letter = draft.outline("deadLetters", id, dlqId);
      const envelope = letter && draft.get("envelopes", id, letter.messageId);
      // A run is resumed, or restarted.
      if (!envelope || letter.run) return [];
      const again = letterWith(letterOf(envelope), overrides);
      const refusal = sendingLimitBrokenBy(account, again, moment.now);
      if (refusal) throw new Refusal(refusal.refused, refusal.message);
      const message = accept(draft, moment, account, again);
      removeDeadLetter(draft, letter, moment.now - logRetention);
      return [{ dlqId, messageId: message.id }];
    });
  },
};

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

/** Removes dead letters. Those that are missing are not counted, and named in `failed`. The log keeps what it knows, for its own time. */
export const deleteDeadLetters: Decision<Selected, { deleted: number; failed?: NotDone[] }> = {
  needs: ({ account, dlqIds }) => ({ outlines: { deadLetters: keysOf(account, dlqIds) } }),
  further: (selected, draft) => ({ log: linesOfLog(lettersIn(draft, selected)) }),
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
 * Takes an entry out. Its envelope goes with it when the line of the log that tells of it, and so the last mention, is
 * gone; of the first entries, when the log before `logBefore` is. The caller has asked for the line (`linesOfLog`).
 */
export function removeDeadLetter(draft: Draft, letter: Outline<DeadLetter>, logBefore: Millis): void {
  const { account, id, logId } = letter;
  draft.drop("deadLetters", account, id);
  countDeadLetters(draft, account, -1);
  const isLogGone = logId === undefined ? birthOf(id) < logBefore : !draft.get("log", account, logId);
  if (isLogGone) dropEnvelope(draft, letter);
}

/** The lines of the log that tell of these entries. */
export const linesOfLog = (letters: readonly Outline<DeadLetter>[]): Key[] =>
  letters.flatMap(({ account, logId }): Key[] => (logId === undefined ? [] : [[account, logId]]));

const lettersIn = (draft: Draft, { account, dlqIds }: Pick<Selected, "account" | "dlqIds">): Outline<DeadLetter>[] =>
  dlqIds.flatMap((id) => draft.outline("deadLetters", account, id) ?? []);
