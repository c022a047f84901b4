import type { Commands } from "../../../../src/engine/store/catalog/commands.ts";
import { commands } from "../../../../src/engine/store/catalog/commands.ts";
import { alterInput, alterDecision } from "../../../simulation/mutants/alterDecision.ts";

/** Alters how a cancel records its actor. */
function cancelKept(rule: (cancelled: number) => number | null): Commands {
  const { decide, ...rest } = commands.cancel;
  return {
    ...commands,
    cancel: {
      ...rest,
      decide: ({ by, ...input }, draft, moment) => {
        const answer = decide(input, draft, moment);
        const count = rule(answer.cancelled);
        const note = { what: "message.cancel", object: input.messageIds[0] ?? null };
        if (by && count !== null)
          draft.put("audit", {
            account: input.account,
            id: moment.newId("aud"),
            time: moment.now,
            by,
            ...note,
            count,
          });
        return answer;
      },
    },
  };
}

/** Faults of the audit log. */
export const auditMutants: Record<string, Commands> = {
  "an action is not recorded": alterDecision("bulk", () => ({
    put: { audit: () => undefined },
  })),
  "an action is recorded twice": alterDecision("addEndpoints", (_, draft, moment) => ({
    put: {
      audit: (row) => {
        draft.put("audit", { ...row, id: moment.newId("aud") });
        return row;
      },
    },
  })),
  "an action is recorded for another account": alterDecision("pauseLimiter", () => ({
    put: { audit: (row) => ({ ...row, account: row.account === "acme" ? "umbrella" : "acme" }) },
  })),
  "an action is recorded with another actor": alterDecision("createSchedule", () => ({
    put: { audit: (row) => ({ ...row, by: { kind: "operator", address: null } }) },
  })),
  "more actions are recorded than were done": cancelKept((cancelled) =>
    cancelled === 0 ? null : cancelled + 1,
  ),
  "an action that was not done is recorded": cancelKept((cancelled) => Math.max(1, cancelled)),
  "an action without effect is recorded": alterDecision("resumeLimiter", () => ({ hasChanged: () => true })),
  "an action is recorded with another time": alterDecision("upsertQueue", () => ({
    put: { audit: (row) => ({ ...row, time: row.time - 1 }) },
  })),
  "the audit log is removed too early": alterInput("expire", (input) => ({
    ...input,
    retention: { ...input.retention, audit: (input.retention.audit ?? 0) / 2 },
  })),
  "the audit log is never removed": alterDecision("expire", () => ({ drop: (table) => table !== "audit" })),
};
