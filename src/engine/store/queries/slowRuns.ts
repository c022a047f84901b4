import type { SlowRuns } from "../../core/explain/slowRuns.ts";
import { findSlowRuns, slowAfter } from "../../core/explain/slowRuns.ts";
import type { AccountId, Millis } from "../../core/values/basics.ts";
import type { StorageReads } from "../layout/storageReads.ts";

/** The runs that have not ended and are looked at. */
const maxActive = 500;
/** The newest runs among which the ended ones show how long a workflow usually takes. */
const maxRecent = 500;

/** Returns the workflows of an account with runs that take longer than usual. Every read is bounded. */
export async function readSlowRuns(
  storageReads: StorageReads,
  account: AccountId,
  now: Millis,
): Promise<SlowRuns[]> {
  const active = await storageReads.range("activeRuns", { account, limit: maxActive });
  if (active.length === 0) return [];
  const runs = await storageReads.rows(
    "runs",
    active.map(({ run }) => [account, run] as const),
    { bodies: false },
  );
  const old = runs.filter(({ createdAt }) => now - createdAt >= slowAfter);
  if (old.length === 0) return [];
  const recent = await storageReads.range("runs", {
    ...{ account, descending: true, limit: maxRecent, bodies: false },
  });
  return findSlowRuns(old, recent, now);
}
