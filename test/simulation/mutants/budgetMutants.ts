import type { Draft, ReadableName } from "../../../src/engine/core/decision/command.ts";
import type { Commands } from "../../../src/engine/store/catalog/commands.ts";
import type { Alteration } from "./alterDecision.ts";
import { alterInput, alterDecision } from "./alterDecision.ts";

/** Alters the budget that a decision sees, for every account. */
const alterSeenBudget =
  (turn: (budget: number) => number) =>
  (_: unknown, draft: Draft): Alteration => ({
    get: ((table: ReadableName, ...key: readonly [string, string]) => {
      const row = draft.get(table, ...key);
      return row && table === "accounts" && "budget" in row ? { ...row, budget: turn(row.budget ?? 0) } : row;
    }) as Draft["get"],
  });

/** Faults of budgets. */
export const budgetMutants: Record<string, Commands> = {
  "a publish ignores the budget": alterDecision(
    "publish",
    alterSeenBudget(() => 0),
  ),
  "a publish is refused before the budget is spent": alterDecision(
    "publish",
    alterSeenBudget((budget) => budget / 4),
  ),
  "a schedule ignores the budget": alterDecision(
    "claim",
    alterSeenBudget(() => 0),
  ),
  "a schedule skips firings before the budget is spent": alterDecision(
    "claim",
    alterSeenBudget((budget) => budget / 4),
  ),
  "more spending is recorded than occurred": alterInput("recordSpending", (input) => ({
    ...input,
    dollars: 2 * input.dollars,
  })),
};
