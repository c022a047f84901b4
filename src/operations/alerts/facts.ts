import type { AlertFacts } from "./pickAlerts.ts";
import { alertWindow } from "./pickAlerts.ts";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import { listDeadLetters } from "../../engine/store/queries/deadLetters.ts";
import { hostLogEntries } from "../../engine/core/accounts/hostStatistics.ts";
import type { StorageReads } from "../../engine/store/layout/storageReads.ts";

const maxDeadLetters = 200;

/** Reads what alerts depend on besides conditions. Every read is bounded, and none reads a body. */
export async function readAlertFacts(
  storageReads: StorageReads,
  account: AccountId,
  now: Millis,
): Promise<AlertFacts> {
  const whole = { account, bodies: false as const };
  const [letters, log] = await Promise.all([
    listDeadLetters(storageReads, {
      ...whole,
      filter: { from: now - alertWindow },
      order: "latestFirst",
      cursor: null,
      count: maxDeadLetters,
    }),
    storageReads.range("log", { ...whole, descending: true, limit: hostLogEntries }),
  ]);
  const deadLetters = letters.entries.map(({ deadLetter: { status, error }, message: { url } }) => ({
    url,
    status,
    error,
  }));
  return { deadLetters, log };
}
