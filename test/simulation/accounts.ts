import type { Retention } from "../../src/core/commands/retention.ts";
import { AuditLog } from "./audit.ts";
import type { Case, Demand } from "./batch.ts";
import { Budgets } from "./budgets.ts";
import type { Tables } from "./changes.ts";
import { Quotas } from "./quotas.ts";
import { judgeScopes } from "./scopes.ts";

type Court = { demand: Demand; tables: Tables; now: number; retention: Retention; happens: (what: string) => unknown };

/** What holds of accounts: what their tokens are good for, what they may spend and store, and what is kept of what is done to them. */
export class Accounts {
  readonly audit = new AuditLog();
  readonly budgets = new Budgets();
  readonly quotas = new Quotas();

  /** Whether an account has spent its budget, or is over its quota. Null: that has turned just now. */
  mayNotPublish(account: string, at: Pick<Court, "tables" | "now">): boolean | null {
    const [hasSpent, isFull] = [this.budgets.hasSpent(account, at), this.quotas.isFull(account, at)];
    return hasSpent || isFull ? true : hasSpent === null || isFull === null ? null : false;
  }

  judge(of: Case, court: Court): void {
    judgeScopes(of, court);
    this.budgets.judge(of, court);
    this.quotas.judge(of, court);
    this.audit.judge(of, court);
  }
}
