import type { BodyLimit } from "./plans.ts";
import { readLimits, readMessageBytes } from "./plans.ts";
import type { Millis } from "../values/basics.ts";
import type { AccountLimits, Terms } from "../model/accountTerms.ts";
import { day } from "../values/time.ts";

/** How long history is kept. Without `audit`, the audit log is kept for `defaultAuditRetention`. */
export type Retention = { log: Millis; deadLetters: Millis; audit?: Millis };

/** The result of a removal. `removed` is the number of rows. `more`: more rows may be left to remove. */
export type ExpiryResult = { removed: number; more: boolean };

/** How long the audit log is kept unless `Retention` says otherwise. */
const defaultAuditRetention: Millis = 90 * day;

/**
 * Returns how long the history of an account is kept: the retention of the server, or the limit of the
 * account if that is shorter.
 */
export const retentionFor = (account: Terms, retention: Retention): Required<Retention> => ({
  log: Math.min(retention.log, readLimits(account).logRetention),
  deadLetters: Math.min(retention.deadLetters, readLimits(account).deadLetterRetention),
  audit: Math.min(readAuditRetention(retention), readLimits(account).auditRetention),
});

/**
 * Returns the limits of an account on a server: its own or those of its plan, reduced to the settings of the
 * server.
 */
export function readServerLimits(
  account: Terms,
  { retention, maxQueues = Infinity, maxBody }: { retention: Retention; maxQueues?: number } & BodyLimit,
): AccountLimits {
  const { log, deadLetters, audit } = retentionFor(account, retention);
  const accountLimits = readLimits(account);
  return {
    ...accountLimits,
    messageBytes: readMessageBytes(account, { maxBody }),
    queues: Math.min(accountLimits.queues, maxQueues),
    logRetention: log,
    deadLetterRetention: deadLetters,
    auditRetention: audit,
  };
}

/** Returns how long the audit log is kept. */
export const readAuditRetention = ({ audit = defaultAuditRetention }: Retention): Millis => audit;
