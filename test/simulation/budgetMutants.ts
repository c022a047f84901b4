import type { Draft, TableName } from "../../src/core/decision/command.ts";
import type { Commands } from "../../src/core/commands/index.ts";
import type { Bend } from "./bent.ts";
import { asked, bent } from "./bent.ts";

/** A decision that takes the budget of every account for another one. */
const seeing =
  (turn: (budget: number) => number) =>
  (_: unknown, draft: Draft): Bend => ({
    get: ((table: TableName, ...key: readonly [string, string]) => {
      const row = draft.get(table, ...key);
      return row && table === "accounts" && "budget" in row ? { ...row, budget: turn(row.budget ?? 0) } : row;
    }) as Draft["get"],
  });

/** Faults of what an account may spend. */
export const budgetMutants: Record<string, Commands> = {
  "a publish overlooks the budget": bent(
    "publish",
    seeing(() => 0),
  ),
  "a publish is refused before the budget is spent": bent(
    "publish",
    seeing((budget) => budget / 4),
  ),
  "a schedule overlooks the budget": bent(
    "claim",
    seeing(() => 0),
  ),
  "a schedule passes over before the budget is spent": bent(
    "claim",
    seeing((budget) => budget / 4),
  ),
  "more is noted than was spent": asked("noteSpending", (input) => ({ ...input, dollars: 2 * input.dollars })),
};
