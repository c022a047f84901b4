import { systemClock } from "../../engine/clock/clock.ts";
import { readLimit } from "../../engine/core/accounts/plans.ts";
import type { Condition } from "../../engine/core/explain/condition.ts";
import { findConditions } from "../../engine/core/explain/conditions.ts";
import type { Account } from "../../engine/core/model/account.ts";
import type { Queries } from "../../engine/store/catalog/queries.ts";
import { createQueries } from "../../engine/store/catalog/queries.ts";
import type { FindConditions } from "../operation.ts";
import type { CheckResult } from "./finding.ts";
import { ok, warning } from "./finding.ts";
import type { StoreView } from "./openForChecks.ts";

/** The accounts whose conditions are looked at. */
const mostAccounts = 100;

/** The state of the server is not known here. Other checks report the disk and whether it responds. */
const unknownServer = {
  ...{ refuses: null, notReady: null, isHeld: false, lostBatches: 0, lostNodes: [], copy: null, disk: null },
  isOperators: true,
};

/**
 * Finds what is wrong for the accounts of a store, as far as it is stored. The text names only kinds, because
 * it is part of bug reports.
 */
export async function checkConditions(
  { reads }: StoreView,
  finders: readonly FindConditions[],
): Promise<CheckResult> {
  const read = createQueries(reads);
  const accounts = (await read.accounts()).filter(({ deletedAt }) => deletedAt === undefined);
  const found: Condition[] = [];
  for (const account of accounts.slice(0, mostAccounts))
    found.push(...(await findStored(read, account, finders)));
  const wrong = found.filter(({ level }) => level !== "note");
  if (wrong.length === 0) return ok("the console shows nothing that is wrong for an account");
  const kinds = [...Map.groupBy(wrong, ({ kind }) => kind)].map(([kind, list]) => `${list.length} ${kind}`);
  return warning(
    `the console shows conditions of accounts: ${kinds.join(", ")}`,
    "waypost overview, which names what they concern, with the token of the account",
  );
}

async function findStored(
  read: Queries,
  account: Account,
  finders: readonly FindConditions[],
): Promise<Condition[]> {
  const { id } = account;
  const now = systemClock.now();
  const [stored, sums, others] = await Promise.all([
    read.conditionFacts(id, now),
    read.storedBytes([id], null),
    Promise.all(finders.map((find) => find({ read }, id, now))),
  ]);
  const facts = {
    ...stored,
    ...{ server: unknownServer, refuses: null, failing: [], refused: [], inFlight: stored.inFlight ?? [] },
    storage: { used: sums[0]?.bytes ?? 0, max: readLimit(account, "storageBytes") },
  };
  return [...findConditions(facts, now), ...others.flat()];
}
