import type { Draft, TableName } from "../../src/core/command.ts";
import type { Commands } from "../../src/core/commands.ts";
import type { Flow } from "../../src/core/message.ts";
import type { Bend } from "./bent.ts";
import { bent } from "./bent.ts";

/** A decision that writes the flow of an account otherwise, where there was one before. */
const writingAllowances =
  (turn: (row: Flow, before: Flow) => Flow) =>
  (_: unknown, draft: Draft): Bend => ({
    put: {
      flows: (row) => {
        const before = row.id === "under-way:" ? draft.get("flows", row.account, row.id) : undefined;
        return before ? turn(row, before) : row;
      },
    },
  });

/** A decision that takes every account for one without a limit. */
const seeingNoLimit = (_: unknown, draft: Draft): Bend => ({
  get: ((table: TableName, ...key: readonly [string, string]) => {
    const row = draft.get(table, ...key);
    return row && table === "accounts" ? { ...row, limits: {} } : row;
  }) as Draft["get"],
});

/** Faults around what an account may have under way. */
export const allowanceMutants: Record<string, Commands> = {
  "a claim overlooks the limit of the account": bent("claim", seeingNoLimit),
  "a publish overlooks the limit of the account": bent("publish", seeingNoLimit),
  "a delivery does not count towards its account": bent(
    "claim",
    writingAllowances((row, { running }) => ({ ...row, running: Math.min(running, row.running) })),
  ),
  "a delivery that has ended counts towards its account": bent(
    "settle",
    writingAllowances((row, { running }) => ({ ...row, running: Math.max(running, row.running) })),
  ),
  "a lost lease counts towards its account": bent(
    "claim",
    writingAllowances((row, { running }) => ({ ...row, running: Math.max(running, row.running) })),
  ),
  "a lease forgets that its account counts it": bent("claim", () => ({ put: { messages: ({ counted: _counted, ...row }) => row } })),
  "a key forgets who went on to the line of the account": bent("claim", () => ({ put: { flows: ({ onward: _onward, ...row }) => row } })),
};
