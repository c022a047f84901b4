import type { StoredMessage } from "../../core/model/message.ts";
import type { Step } from "../../core/model/run.ts";
import { toStepId } from "../../core/model/stepId.ts";
import type { AccountId } from "../../core/values/basics.ts";
import type { StorageReads } from "../layout/storageReads.ts";
import { toKeys } from "../layout/storageReads.ts";

/** Returns the id of the step that a message of a run belongs to; empty for any other message. */
export const toFailedStepId = ({ run }: StoredMessage): string => (run ? toStepId(run.run, run.stepKey) : "");

/** Returns the steps of messages of runs, without their bodies, by their ids. */
export async function readFailedSteps(
  storageReads: StorageReads,
  account: AccountId,
  messages: Iterable<StoredMessage>,
): Promise<Map<string, Step>> {
  const ids = [...messages].flatMap((message) => (message.run ? toFailedStepId(message) : []));
  const steps = await storageReads.rows("steps", toKeys(account, ids), { bodies: false });
  return new Map(steps.map((step) => [step.id, step]));
}
