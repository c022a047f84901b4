import { findPulledOrigin } from "../../core/accounts/pulledOrigins.ts";
import { laneName } from "../../core/admission/capacity.ts";
import type { HostWaitlist } from "../../core/model/limiter.ts";
import type { StorageReads } from "../layout/storageReads.ts";

/** A host of an account. */
export type PulledHost = Pick<HostWaitlist, "account" | "host">;

/** See `Queries.pulledWork`. Two statements, however many hosts there are. */
export async function findPulledWork(
  storageReads: StorageReads,
  hosts: readonly PulledHost[],
): Promise<readonly PulledHost[]> {
  const accountIds = [...new Set(hosts.map(({ account }) => account))];
  const [waitlists, accounts] = await Promise.all([
    storageReads.rows(
      "hostWaitlists",
      hosts.map(({ account, host }) => [account, host]),
    ),
    storageReads.rows(
      "accounts",
      accountIds.map((id) => [id]),
    ),
  ]);
  const waiting = new Set(waitlists.map(({ account, host }) => laneName(account, host)));
  const owners = new Map(accounts.map((account) => [account.id, account]));
  return hosts.filter(
    ({ account, host }) =>
      waiting.has(laneName(account, host)) || !findPulledOrigin(owners.get(account) ?? {}, host),
  );
}
