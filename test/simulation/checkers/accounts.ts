import type { Retention } from "../../../src/engine/core/accounts/retention.ts";
import { AuditLogChecker } from "../../operations/simulated.ts";
import type { ObservedBatch, AssertHolds } from "./observedBatch.ts";
import { BudgetChecker } from "./budgets.ts";
import type { Tables } from "../storage/changes.ts";
import { QuotaChecker } from "./quotas.ts";
import { checkScopes } from "./scopes.ts";

type AccountCheckContext = {
  assertHolds: AssertHolds;
  tables: Tables;
  now: number;
  retention: Retention;
  cover: (what: string) => unknown;
};

/** Checks accounts: what their tokens allow, what they may spend and store, and their audit log. */
export class AccountChecker {
  readonly audit = new AuditLogChecker();
  readonly budgets = new BudgetChecker();
  readonly quotas = new QuotaChecker();

  /** Reports whether an account has spent its budget or exceeds its quota. Null: this has just changed. */
  isPublishForbidden(account: string, at: Pick<AccountCheckContext, "tables" | "now">): boolean | null {
    const hasSpent = this.budgets.hasSpent(account, at);
    const isFull = this.quotas.isFull(account, at);
    return hasSpent || isFull ? true : hasSpent === null || isFull === null ? null : false;
  }

  check(observed: ObservedBatch, checkContext: AccountCheckContext): void {
    checkScopes(observed, checkContext);
    this.budgets.check(observed, checkContext);
    this.quotas.check(observed, checkContext);
    this.audit.check(observed, checkContext);
  }
}
