import type { Decision, Draft } from "../decision/command.ts";
import type { Cause } from "../model/cause.ts";
import { findCause } from "../model/cause.ts";
import type { DeadLetter } from "../model/deadLetter.ts";
import type { StoredMessage, WithoutBody } from "../model/message.ts";
import { toTag } from "../search/tags.ts";
import type { AccountId } from "../values/basics.ts";
import { findCallCause } from "../workflows/runCause.ts";

/** Adds their causes to dead letters that were written before dead letters had any. Skips other ids. */
export const tagCauses: Decision<{ account: AccountId; dlqIds: readonly string[] }, { tagged: number }> = {
  decide: ({ account, dlqIds }, draft) => {
    let tagged = 0;
    for (const id of dlqIds) {
      const deadLetter = draft.inspect("deadLetters", account, id);
      const message = deadLetter && draft.inspectWithoutBody("storedMessages", account, deadLetter.messageId);
      if (!message || deadLetter.cause !== undefined) continue;
      if (deadLetter.damaged || message.damaged) continue;
      const { tag, cause } = findTaggedCause(draft, deadLetter, message);
      draft.put("deadLetters", { ...deadLetter, cause: cause.error, tags: [...deadLetter.tags, tag] });
      tagged++;
    }
    return { tagged };
  },
};

/** Returns the cause of a dead letter of a message or of a run, and its tag. */
function findTaggedCause(
  draft: Draft,
  deadLetter: DeadLetter,
  message: WithoutBody<StoredMessage>,
): { tag: string; cause: Cause } {
  const { run } = deadLetter;
  if (run) {
    const cause = findCallCause(draft, { ...deadLetter, message, url: run.url });
    return { tag: toTag.runCause(cause.id), cause };
  }
  const { url, redaction } = message;
  const cause = findCause({ ...deadLetter, url, redaction });
  return { tag: toTag.cause(cause.id), cause };
}
