import type { Decision, Draft } from "./command.ts";
import { removeDeadLetter } from "./dlq.ts";
import { birthOf } from "./ids.ts";
import { dropEnvelope } from "./mark.ts";
import type { AccountId, LogRow, Millis } from "./message.ts";

/** How long history is kept. */
export type Retention = { log: Millis; deadLetters: Millis };

/** More is past its time than one command removes. */
export type Expired = { removed: number; more: boolean };

/**
 * Removes what is past its time in an account: log rows, dead letters, deduplication keys; a bounded number, oldest first.
 *
 * An envelope goes with the log row that ended its message, unless a dead letter still shows it. That happens when
 * dead letters are kept longer than the log; then it goes with the dead letter.
 */
export const expire: Decision<{ account: AccountId; retention: Retention; now: Millis; limit: number }, Expired> = {
  needs: ({ account, retention, now, limit }) => ({
    expired: [
      {
        ...{ account, limit },
        ...{ logBefore: now - retention.log, deadLettersBefore: now - retention.deadLetters, deduplicationsBefore: now },
      },
    ],
  }),
  further: ({ account }, draft) => {
    const { log } = draft.expired(account);
    return { outlines: { deadLetters: log.flatMap(({ account, dlqId }) => (dlqId === null ? [] : [[account, dlqId] as const])) } };
  },
  decide: ({ account, retention, now, limit }, draft, moment) => {
    const { log, deadLetters, deduplications } = pastOnes(draft.expired(account), retention, Math.min(now, moment.now));
    for (const letter of deadLetters) removeDeadLetter(draft, letter, moment.now - retention.log);
    for (const row of log) {
      draft.drop("log", row.account, row.id);
      if (hasEnded(row) && !isDeadLetter(draft, row)) dropEnvelope(draft, row);
    }
    for (const { account, key } of deduplications) draft.drop("deduplications", account, key);
    const removed = log.length + deadLetters.length + deduplications.length;
    return { removed, more: [log, deadLetters, deduplications].some((rows) => rows.length >= limit) };
  },
};

/** Whoever asks may have a clock that is ahead, and history would be gone before its time: the moment of the store decides. */
function pastOnes(rows: ReturnType<Draft["expired"]>, { log, deadLetters }: Retention, now: Millis): ReturnType<Draft["expired"]> {
  return {
    log: rows.log.filter(({ id }) => birthOf(id) < now - log),
    deadLetters: rows.deadLetters.filter(({ id }) => birthOf(id) < now - deadLetters),
    deduplications: rows.deduplications.filter(({ expiresAt }) => expiresAt < now),
  };
}

const hasEnded = ({ states }: LogRow): boolean =>
  states.some((state) => state === "DELIVERED" || state === "FAILED" || state === "CANCELLED");

const isDeadLetter = (draft: Draft, row: LogRow): boolean =>
  row.dlqId !== null && draft.outline("deadLetters", row.account, row.dlqId) !== undefined;
