import type {
  AccountId,
  StoredMessage,
  LogRow,
  MessageId,
  MessageState,
  WithoutBody,
} from "../../core/model/message.ts";
import { isUnfinished } from "../../core/model/message.ts";
import { readFailureMessage } from "../../core/model/failureText.ts";
import type { LimiterGate } from "../../core/admission/gate.ts";
import {
  formatGate,
  isAccountLimit,
  keyGate,
  parseGate,
  queueGate,
  readWaitlist,
} from "../../core/admission/gate.ts";
import { toLimiterKey } from "../../core/admission/limiter.ts";
import type { WaitState } from "../../core/sending/whyWaiting.ts";
import { maxCounted, maxSlotsShown } from "../../core/sending/whyWaiting.ts";
import type { StorageReads } from "./storageReads.ts";
import { withKeptLog } from "./wholeLog.ts";

/**
 * Returns why an unfinished message waits, with a bounded number of reads. Returns null if the message is
 * finished.
 */
export async function readWaitState(
  storageReads: StorageReads,
  account: AccountId,
  id: MessageId,
): Promise<WaitState | null> {
  const [[state], [message], [lastEntry]] = await Promise.all([
    storageReads.rows("messages", [[account, id]]),
    storageReads.rows("storedMessages", [[account, id]], { bodies: false }),
    withKeptLog(storageReads).messageLog(id, { account, descending: true, limit: 1 }),
  ]);
  if (!state || !message || !isUnfinished(state)) return null;
  const waitlist = readWaitlist(state);
  const gates: LimiterGate[] = [
    ...(state.queue === null ? [] : [queueGate(state.queue)]),
    ...(state.flowControlKey === null ? [] : [keyGate(state.flowControlKey)]),
    ...(waitlist !== null && isAccountLimit(waitlist) ? [waitlist] : []),
  ];
  const rows = await storageReads.rows(
    "limiters",
    gates.map((gate) => toLimiterKey({ account, gate })),
  );
  const limiters = new Map(rows.map((row) => [parseGate(row.id).kind, row]));
  return {
    state,
    retries: message.retries,
    createdAt: message.createdAt,
    notBefore: message.notBefore,
    lastEntry: lastEntry ? { ...lastEntry, ...readReported(message, lastEntry) } : null,
    queue: limiters.get("queue") ?? null,
    key: limiters.get("key") ?? null,
    accountLimiter: limiters.get("endpoint") ?? limiters.get("account") ?? null,
    waitingAhead: state.waitlist === null ? 0 : await storageReads.countAhead(state, maxCounted + 1),
    slotHolders: await readSlotHolders(storageReads, state),
  };
}

/**
 * Returns the error that a workflow endpoint reported for a failure, unless bodies are redacted. Responses of
 * other destinations are shown only in the log.
 */
function readReported(
  { run, redaction }: WithoutBody<StoredMessage>,
  { body }: LogRow,
): { reported?: string } {
  if (run === undefined || run.kind === "call" || redaction?.body) return {};
  const { said } = readFailureMessage(body);
  return said === undefined ? {} : { reported: said };
}

/** Returns the messages that hold the slots of a queue, if the message waits for a slot. */
async function readSlotHolders(
  storageReads: StorageReads,
  { account, queue, waitlist }: MessageState,
): Promise<WaitState["slotHolders"]> {
  if (queue === null || waitlist !== formatGate(queueGate(queue))) return [];
  const slots = await storageReads.queueSlots(account, queue, maxSlotsShown);
  return Promise.all(
    slots.map(async ({ id }) => ({
      messageId: id,
      holders: await storageReads.slotHolders(account, id, maxSlotsShown),
    })),
  );
}
