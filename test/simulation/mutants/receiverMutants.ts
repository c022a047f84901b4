import type { Commands } from "../../../src/engine/store/catalog/commands.ts";
import { commands } from "../../../src/engine/store/catalog/commands.ts";
import { hour } from "../../../src/engine/core/values/time.ts";
import { alterDecision } from "./alterDecision.ts";

const { decide: report, ...ofReport } = commands.reportAttempt;

/** Faults about receivers that report later. */
export const receiverMutants: Record<string, Commands> = {
  "a held attempt has no end": alterDecision("settle", (_, __, { now }) => ({
    put: { messages: (row) => (row.state === "acknowledging" ? { ...row, dueAt: now + 13 * hour } : row) },
  })),
  "a report counts for any attempt": {
    ...commands,
    reportAttempt: {
      ...ofReport,
      decide: (input, draft, moment) => {
        const { attempts = 0 } = draft.get("messages", input.account, input.messageId) ?? {};
        return report({ ...input, attempt: attempts }, draft, moment);
      },
    },
  },
  "a held attempt belongs to the node that sent it": alterDecision("settle", (_, __, { node }) => ({
    put: { messages: (row) => (row.state === "acknowledging" ? { ...row, leasedBy: node } : row) },
  })),
  "a report is not remembered": alterDecision("reportAttempt", () => ({
    put: { deduplications: () => undefined },
  })),
  "a held attempt gives its queue slot back": alterDecision("settle", (_, draft) => ({
    put: {
      messages: (row) => {
        if (row.state === "acknowledging" && row.slot === row.id)
          draft.drop("queueSlots", row.account, row.slot);
        return row;
      },
    },
  })),
};
