import { requireActiveAccount } from "../accounts/plans.ts";
import { damagedHistoryRefusal, requireFailedRun, noHistoryRefusal } from "../deadLetters/resume.ts";
import type { Decision } from "../decision/command.ts";
import type { AccountId, Millis } from "../values/basics.ts";
import { Refusal } from "../values/errors.ts";
import { sendFailureCallback, reportedStepsNeed } from "../workflows/runOutcome.ts";

type Named = { account: AccountId; dlqId: string };

/** Calls the failure callback of a failed run again. Throws `Refusal` unless that callback has failed. */
export const repeatFailureCallback: Decision<Named, { runId: string; createdAt: Millis }> = {
  decide: ({ account: id, dlqId }, draft, moment) => {
    const account = requireActiveAccount(draft.get("accounts", id));
    requireFailedRun(draft, id, dlqId);
    const deadLetter = draft.get("deadLetters", id, dlqId);
    const run = deadLetter?.run && draft.get("runs", id, deadLetter.run.key);
    const message = deadLetter && draft.inspectWithoutBody("storedMessages", id, deadLetter.messageId);
    const callback = run?.settings.failureCallback;
    if (
      !deadLetter ||
      !run ||
      !message ||
      !callback ||
      deadLetter.failureCallback?.state !== "CALLBACK_FAIL"
    ) {
      const problem = deadLetter?.failureCallback
        ? `is in state ${deadLetter.failureCallback.state}`
        : "does not exist";
      throw new Refusal(
        "invalid",
        `dlqId: the failure callback of ${dlqId.slice(0, 100)} ${problem}; ` +
          "only a failed callback can be called again",
      );
    }
    const reportedSteps = reportedStepsNeed(run);
    const steps = draft.listSteps(id, run.id, reportedSteps.stepKey);
    if (message.damaged || steps.some(({ damaged }) => damaged)) throw damagedHistoryRefusal(dlqId);
    const keptSteps = steps.length;
    if (keptSteps < (reportedSteps.stepKey === undefined ? run.steps : 1)) throw noHistoryRefusal(dlqId);
    // The dead letter may have kept only the beginning of the response.
    const outcome = deadLetter.digest === undefined ? deadLetter : { ...deadLetter, cut: true as const };
    sendFailureCallback(draft, moment, { account, run, deadLetter, outcome, message, callback });
    return { runId: run.runId, createdAt: run.createdAt };
  },
};
