import type { Draft } from "../../../src/engine/core/decision/command.ts";
import type { Outcome } from "../../../src/engine/core/model/attempt.ts";
import type { Commands } from "../../../src/engine/store/catalog/commands.ts";
import { commands } from "../../../src/engine/store/catalog/commands.ts";
import { Refusal } from "../../../src/engine/core/values/errors.ts";
import type { Alteration } from "./alterDecision.ts";
import { alterDecision, alterInput } from "./alterDecision.ts";
import { receiverMutants } from "./receiverMutants.ts";

const { decide: extend, ...ofExtend } = commands.extendAttempt;

/** Alters a decision so that it knows of no pulled origin. */
const knowNoOrigin = (_: unknown, draft: Draft): Alteration => ({
  get: ((...of: readonly [never, never]) => {
    const row = draft.get(...of) as object | undefined;
    return row && "pulled" in row ? { ...row, pulled: undefined } : row;
  }) as Draft["get"],
});

/** Alters a decision so that an attempt that was given back counts as any other one. */
const countReturned = ({ isReturned }: Pick<Outcome, "isReturned">): Alteration => ({
  put: {
    messages: (row) =>
      isReturned === true && row.endedAttempts ? { ...row, endedAttempts: row.endedAttempts - 1 } : row,
  },
});

/** Faults about messages that are pulled. */
export const pullMutants: Record<string, Commands> = {
  "an attempt that no puller received uses up a retry": alterDecision("settle", countReturned),
  "an attempt that a client gave back uses up a retry": alterDecision("reportAttempt", ({ outcome }) =>
    countReturned(outcome),
  ),
  "a message to a pulled origin is sent": alterDecision("claim", knowNoOrigin),
  "a puller holds its attempts for longer than its lease": alterInput("settle", (outcome) =>
    outcome.heldFor === undefined ? outcome : { ...outcome, heldFor: 2 * outcome.heldFor },
  ),
  "a report of an earlier attempt counts": receiverMutants["a report counts for any attempt"] ?? commands,
  "an attempt is extended after its outcome": {
    ...commands,
    extendAttempt: {
      ...ofExtend,
      decide: (input, draft, moment) => {
        try {
          return extend(input, draft, moment);
        } catch (error) {
          if (!(error instanceof Refusal)) throw error;
          return { until: moment.now + input.extension };
        }
      },
    },
  },
  "an extension counts for any attempt": {
    ...commands,
    extendAttempt: {
      ...ofExtend,
      decide: (input, draft, moment) => {
        const { attempts = 0 } = draft.get("messages", input.account, input.messageId) ?? {};
        return extend({ ...input, attempt: attempts }, draft, moment);
      },
    },
  },
  "a token that was shown is given to the next attempt": alterInput("returnLeases", ({ leases }) => ({
    leases: leases.map(({ account, messageId, attempt }) => ({ account, messageId, attempt })),
  })),
};
