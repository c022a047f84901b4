import type { Draft } from "../decision/command.ts";
import type { DestinationResponse } from "../model/attempt.ts";
import type { Cause } from "../model/cause.ts";
import { findRunCause } from "../model/cause.ts";
import { findFailedStep } from "../model/failureText.ts";
import type { StoredMessage, WithoutBody } from "../model/message.ts";
import { toStepId } from "../model/stepId.ts";

/** A failed call to the endpoint of a run, and its last response. `url` is that of the workflow. */
type FailedCall = DestinationResponse & { message: WithoutBody<StoredMessage>; url: string };

/** Returns the cause of the failure of a run, which ended with this call. */
export function findCallCause(draft: Draft, { message, ...failed }: FailedCall): Cause {
  const { account, redaction, run: part } = message;
  const step = part && draft.inspectWithoutBody("steps", account, toStepId(part.run, part.stepKey));
  const failedStep = findFailedStep(part?.stepKey, step?.head, failed.headers);
  return findRunCause({ ...failed, step: failedStep, redaction });
}
