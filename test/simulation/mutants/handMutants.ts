import type { Commands } from "../../../src/engine/store/catalog/commands.ts";
import { commands } from "../../../src/engine/store/catalog/commands.ts";
import { alterDecision } from "./alterDecision.ts";

const { decide: runOnce, ...ofRun } = commands.runSchedule;

/** Faults of what a person does by hand: to send a message now, to end attempts, and to run a schedule. */
export const handMutants: Record<string, Commands> = {
  "a schedule that is run by hand moves": alterDecision("runSchedule", ({ account, id }, draft, moment) => ({
    put: {
      storedMessages: (row) => {
        const schedule = draft.inspect("schedules", account, id);
        if (schedule) draft.put("schedules", { ...schedule, lastAt: moment.now });
        return row;
      },
    },
  })),
  "a schedule that is run by hand publishes twice": {
    ...commands,
    runSchedule: {
      ...ofRun,
      decide: (input, draft, moment) => {
        runOnce(input, draft, moment);
        return runOnce(input, draft, moment);
      },
    },
  },
  "an attempt that an operator ended uses up a retry": alterDecision("settle", () => ({
    put: { messages: (row) => ({ ...row, endedAttempts: 0 }) },
  })),
  "an attempt that an operator ended is sent again before its request has ended": alterDecision(
    "endAttempts",
    () => ({ put: { messages: (row) => ({ ...row, state: "pending", leasedBy: null }) } }),
  ),
  "a message that is sent now keeps its delay": alterDecision("sendNow", () => ({
    put: { messages: () => undefined },
  })),
  "a message that is sent now gets its retries back": alterDecision("sendNow", () => ({
    put: { messages: (row) => ({ ...row, attempts: 0 }) },
  })),
};
