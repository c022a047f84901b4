import type { Decision, Draft } from "../decision/command.ts";
import { readIdTime } from "../values/ids.ts";
import type { LogRow } from "../model/logRow.ts";
import type { AccountId, Millis } from "../values/basics.ts";
import type { Terms } from "../model/accountTerms.ts";
import type { LimitedList } from "../limits/listLimits.ts";
import { readListLimit } from "../limits/listLimits.ts";
import type { ExpiryResult } from "../accounts/retention.ts";
import { removeLogEntries } from "../admission/messageLog.ts";
import { dropOldDeadLetter } from "../deadLetters/dlq.ts";

/** Removes all entries of these messages from the kept log. Returns their number. */
function removeKeptLog(draft: Draft, rows: readonly LogRow[]): number {
  let removed = 0;
  for (const { account, messageId } of rows) {
    const kept = draft.listKeptLog(account, messageId);
    for (const { id } of kept) draft.drop("keptLog", account, id);
    removed += kept.length;
  }
  return removed;
}

/**
 * For each list, the newest entry that exceeds a limit, with that limit. All older entries exceed the limit
 * as well. Null: no entry exceeds it.
 */
type OverLimit = Record<LimitedList, OverLimitEntry | null>;
type OverLimitEntry = { id: string; limit: number };
type TrimInput = { account: AccountId; tooMany: OverLimit; limit: number };

/**
 * Trims the log, the kept log, the audit log and the dead letters of an account to their limits. Removes the
 * given entries and older ones, at most `limit` of each list. Log entries of messages that are unfinished or
 * have a dead letter move to the kept log. The account counts the removed entries, except those of its audit
 * log.
 *
 * The given entries were looked up earlier. If the limit of the account has been raised since, nothing is
 * removed. If dead letters have been removed since, for example by a retry, as many more are kept: the limit
 * is never undershot. The other lists lose their oldest entries first, except that the kept log also loses
 * the entries of messages that are forgotten.
 */
export const trim: Decision<TrimInput, ExpiryResult> = {
  decide: (input, draft) => {
    const account = draft.get("accounts", input.account);
    const found = account
      ? listOverLimit(draft, { ...input, tooMany: recheckOverLimit(account, input.tooMany) })
      : noRows;
    const { log, keptLog, deadLetters, audit } = found;
    for (const { account: owner, id } of audit) draft.drop("audit", owner, id);
    for (const deadLetter of deadLetters) dropOldDeadLetter(draft, deadLetter, 0);
    const entries = removeKeptLog(draft, keptLog) + removeLogEntries(draft, log);
    const counted = entries + deadLetters.length;
    if (account && counted > 0) {
      const { dropped = { log: 0, deadLetters: 0 } } = account;
      draft.put("accounts", {
        ...account,
        dropped: { log: dropped.log + entries, deadLetters: dropped.deadLetters + deadLetters.length },
      });
    }
    return {
      removed: counted + audit.length,
      more: Object.values(found).some((rows) => rows.length >= input.limit),
    };
  },
};

/**
 * Returns the end of the millisecond in which an entry was written. Several entries can have the same
 * millisecond; their ids decide which of them are removed.
 */
const afterIdTime = (last: OverLimitEntry | null): Millis => (last === null ? 0 : readIdTime(last.id) + 1);

const noRows = { log: [], keptLog: [], deadLetters: [], audit: [] };

function recheckOverLimit(account: Terms, tooMany: OverLimit): OverLimit {
  const recheck = (list: LimitedList): OverLimitEntry | null => {
    const entry = tooMany[list];
    return entry && (readListLimit(account, list) ?? Infinity) <= entry.limit ? entry : null;
  };
  return {
    log: recheck("log"),
    keptLog: recheck("keptLog"),
    deadLetters: recheck("deadLetters"),
    audit: recheck("audit"),
  };
}

function listOverLimit(draft: Draft, { account, tooMany, limit }: TrimInput) {
  const { log, keptLog, deadLetters, audit, deadLetterCount } = draft.expired({
    account,
    limit,
    countsDeadLetters: tooMany.deadLetters !== null,
    logBefore: afterIdTime(tooMany.log),
    deadLettersBefore: afterIdTime(tooMany.deadLetters),
    keptLogBefore: afterIdTime(tooMany.keptLog),
    auditBefore: afterIdTime(tooMany.audit),
    deduplicationsBefore: 0,
    runsBefore: 0,
    failedRunsBefore: 0,
    timeIndexBefore: 0,
    usage: [],
  });
  const excess = Math.max(0, deadLetterCount - (tooMany.deadLetters?.limit ?? deadLetterCount));
  return {
    audit: audit.filter(({ id }) => id <= (tooMany.audit?.id ?? "")),
    log: log.filter(({ id }) => id <= (tooMany.log?.id ?? "")),
    keptLog: keptLog.filter(({ id }) => id <= (tooMany.keptLog?.id ?? "")),
    deadLetters: deadLetters.filter(({ id }) => id <= (tooMany.deadLetters?.id ?? "")).slice(0, excess),
  };
}
