import { damagedRefusal } from "../decision/requireUndamaged.ts";
import { assertWithinBudget } from "../limits/budget.ts";
import { requireActiveAccount } from "../accounts/plans.ts";
import { assertStorageAvailable } from "../limits/storageQuota.ts";
import { countBytes } from "../accounts/usage.ts";
import type { Decision } from "../decision/command.ts";
import type { DeadLetter } from "../model/deadLetter.ts";
import type { AccountId, Bytes, HeaderList } from "../values/basics.ts";
import type { MessageInput } from "../model/message.ts";
import type { Scope } from "../model/rights.ts";
import { findScopeRefusal, assertVerb } from "../model/rights.ts";
import { accept } from "../sending/createMessage.ts";
import { Refusal, throwIfRefused } from "../values/errors.ts";
import { applyRetryOverrides, toMessageInput } from "../deadLetters/dlq.ts";
import type { Retried } from "../deadLetters/dlq.ts";
import type { Overrides } from "../deadLetters/overrides.ts";
import { findRedactedRefusal } from "../deadLetters/redactedParts.ts";
import { findBodyRefusal, findSendingRefusal } from "../limits/sendingLimits.ts";

/** The parts of a message that a replay replaces. `headers` replace all headers of the message. */
export type ReplayChange = { url?: string; headers?: HeaderList; body?: Bytes };

/** `scope` has the rights of a limited token. It is absent for other callers. */
type ReplayInput = {
  account: AccountId;
  dlqId: string;
  change: ReplayChange;
  overrides: Overrides;
  scope?: Scope;
};

/** The maximum number of replays that a dead letter names. The newest ones are kept. */
const maxNamedReplays = 20;

/**
 * Sends a dead letter again with changes, as a new message. The dead letter stays and names the new message,
 * and the new message names the dead letter. Throws `Refusal` if the dead letter does not exist, if it
 * belongs to a run, or if redacted parts would be sent to another URL.
 */
export const replayDeadLetter: Decision<ReplayInput, Retried> = {
  decide: ({ account: id, dlqId, change, overrides, scope }, draft, moment) => {
    if (scope) assertVerb(scope, "read", " to send a dead letter with changes");
    const account = requireActiveAccount(draft.get("accounts", id));
    assertWithinBudget(account, moment.now);
    assertStorageAvailable(account, { continuesRun: false, isDiskLow: moment.isDiskLow });
    const deadLetter = draft.inspect("deadLetters", id, dlqId);
    const message = deadLetter && draft.inspect("storedMessages", id, deadLetter.messageId);
    if (!deadLetter || !message)
      throw new Refusal("not-found", `dlqId: there is no dead letter ${JSON.stringify(dlqId.slice(0, 100))}`);
    if (deadLetter.run) throw runReplayRefusal(dlqId);
    if (deadLetter.damaged || message.damaged) throw damagedRefusal("deadLetters", dlqId);
    const input = {
      ...applyRetryOverrides(applyChange(toMessageInput(message), change), overrides),
      replayOf: { messageId: message.id, dlqId },
    };
    throwIfRefused(
      findRedactedRefusal(message, { ...change, overrides }) ??
        (scope && findScopeRefusal(scope, input)) ??
        // The stored body may be larger than the present limit.
        (change.body && findBodyRefusal(account, change.body, moment)) ??
        findSendingRefusal(account, input, moment.now),
    );
    const accepted = accept(draft, moment, { account, input });
    countBytes(draft, id, { bytesIn: change.body?.byteLength ?? 0 });
    draft.put("deadLetters", withReplay(deadLetter, accepted.id));
    return { dlqId, messageId: accepted.id };
  },
};

const runReplayRefusal = (dlqId: string): Refusal =>
  new Refusal("invalid", `dlqId: ${dlqId.slice(0, 100)} is a workflow run, which cannot be replayed`, {
    remedy: { remedy: "resume-run", dlqId: dlqId.slice(0, 100) },
  });

/** Returns the input with the change. A message to another URL no longer belongs to a URL group. */
const applyChange = (input: MessageInput, { url, headers, body }: ReplayChange): MessageInput => ({
  ...input,
  ...(url === undefined || url === input.url ? {} : { url, group: null, endpoint: null }),
  ...(headers === undefined ? {} : { headers }),
  ...(body === undefined ? {} : { body }),
});

const withReplay = (deadLetter: DeadLetter, messageId: string): DeadLetter => ({
  ...deadLetter,
  replays: [...(deadLetter.replays ?? []), messageId].slice(-maxNamedReplays),
});
