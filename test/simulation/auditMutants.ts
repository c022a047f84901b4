import type { Commands } from "../../src/core/commands/index.ts";
import { commands } from "../../src/core/commands/index.ts";
import { alterInput, alterDecision } from "./alterDecision.ts";

/** A cancel that keeps who asked for it by a rule of its own. */
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
          draft.put("audit", { account: input.account, id: moment.newId("aud"), time: moment.now, by, ...note, count });
        return answer;
      },
    },
  };
}

/** Faults of who did what. */
export const auditMutants: Record<string, Commands> = {
  "what was done is not kept": alterDecision("deleteDeadLetters", () => ({ put: { audit: () => undefined } })),
  "what was done is kept twice": alterDecision("addEndpoints", (_, draft, moment) => ({
    put: {
      audit: (row) => {
        draft.put("audit", { ...row, id: moment.newId("aud") });
        return row;
      },
    },
  })),
  "what was done is kept for another account": alterDecision("pauseLimiter", () => ({
    put: { audit: (row) => ({ ...row, account: row.account === "acme" ? "umbrella" : "acme" }) },
  })),
  "what was done is kept in the name of somebody else": alterDecision("createSchedule", () => ({
    put: { audit: (row) => ({ ...row, by: { kind: "operator", address: null } }) },
  })),
  "more is kept than was done": cancelKept((cancelled) => (cancelled === 0 ? null : cancelled + 1)),
  "what was not done is kept": cancelKept((cancelled) => Math.max(1, cancelled)),
  "what is so already is kept as done": alterDecision("resumeLimiter", () => ({ hasChanged: () => true })),
  "what was done is kept for another time": alterDecision("upsertQueue", () => ({
    put: { audit: (row) => ({ ...row, time: row.time - 1 }) },
  })),
  "the audit log goes before its time": alterInput("expire", (input) => ({
    ...input,
    retention: { ...input.retention, audit: (input.retention.audit ?? 0) / 2 },
  })),
  "the audit log is never removed": alterDecision("expire", () => ({ drop: (table) => table !== "audit" })),
};
