import type { Retention } from "../../src/core/retention.ts";
import { AuditLog } from "./audit.ts";
import type { Case, Demand } from "./batch.ts";
import { Budgets } from "./budgets.ts";
import type { Tables } from "./changes.ts";
import { judgeScopes } from "./scopes.ts";

type Court = { demand: Demand; tables: Tables; now: number; retention: Retention; happens: (what: string) => unknown };

/** What holds of accounts: what their tokens are good for, what they may spend, and what is kept of what is done to them. */
export class Accounts {
  readonly audit = new AuditLog();
  readonly budgets = new Budgets();

  judge(of: Case, court: Court): void {
    judgeScopes(of, court);
    this.budgets.judge(of, court);
    this.audit.judge(of, court);
  }
}
