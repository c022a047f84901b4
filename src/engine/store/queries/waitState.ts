import type { AccountId, MessageId } from "../../core/values/basics.ts";
import { findPulledOrigin } from "../../core/accounts/pulledOrigins.ts";
import type { Account } from "../../core/model/account.ts";
import type { StoredMessage, WithoutBody } from "../../core/model/message.ts";
import type { LogRow } from "../../core/model/logRow.ts";
import type { MessageState } from "../../core/model/messageState.ts";
import { isUnfinished } from "../../core/model/messageState.ts";
import { readFailureMessage } from "../../core/model/failureText.ts";
import type { LimiterGate } from "../../core/admission/gate.ts";
import { formatGate, isAccountLimit, keyGate, queueGate, readWaitlist } from "../../core/admission/gate.ts";
import { toLimiterKey } from "../../core/admission/limiter.ts";
import type { Key } from "../../core/decision/command.ts";
import type { Limiter } from "../../core/model/limiter.ts";
import type { WaitState } from "../../core/explain/whyWaiting.ts";
import { maxCounted, maxSlotsShown } from "../../core/explain/whyWaiting.ts";
import type { StorageReads } from "../layout/storageReads.ts";
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
  const limiters = await readLimiters(storageReads, [state]);
  const owner = await readOwner(storageReads, [state]);
  return {
    state,
    retries: message.retries,
    timeout: message.timeout,
    createdAt: message.createdAt,
    notBefore: message.notBefore,
    lastEntry: lastEntry ? { ...lastEntry, ...readReported(message, lastEntry) } : null,
    ...pickLimiters(state, limiters),
    ...pickPulledOrigin(state, owner),
    waitingAhead: state.waitlist === null ? 0 : await storageReads.countAhead(state, maxCounted + 1),
    slotHolders: await readSlotHolders(storageReads, state),
  };
}

/**
 * The number of log entries among which the last result of a message is. An attempt in flight has its own
 * entry.
 */
const entriesOfAttempt = 2;

/**
 * Returns why each message waits, with the result of its last attempt. The reads do not depend on the number
 * of messages, so nothing is counted for single messages, and nobody who holds a slot is named.
 */
export async function readWaitStates(
  storageReads: StorageReads,
  account: AccountId,
  messages: readonly { state: MessageState; message: StoredMessage }[],
): Promise<Map<MessageId, WaitState>> {
  if (messages.length === 0) return new Map();
  const states = messages.map(({ state }) => state);
  const [limiters, owner, entries] = await Promise.all([
    readLimiters(storageReads, states),
    readOwner(storageReads, states),
    withKeptLog(storageReads).messageLogs({
      account,
      messageIds: states.map(({ id }) => id),
      limit: entriesOfAttempt,
    }),
  ]);
  const entriesOf = Map.groupBy(entries, ({ messageId }) => messageId);
  return new Map(
    messages.map(({ state, message }) => {
      const newestFirst = (entriesOf.get(state.id) ?? []).toSorted((a, b) => (a.id < b.id ? 1 : -1));
      const waitState = {
        state,
        retries: message.retries,
        timeout: message.timeout,
        createdAt: message.createdAt,
        notBefore: message.notBefore,
        lastEntry: newestFirst[0] ?? null,
        lastResult: newestFirst.find(({ states }) => states.includes("ERROR")) ?? null,
        ...pickLimiters(state, limiters),
        ...pickPulledOrigin(state, owner),
        waitingAhead: null,
        slotHolders: [],
      };
      return [state.id, waitState] as const;
    }),
  );
}

/** Returns the account of messages, if one of them waits for delivery capacity or for a puller. */
async function readOwner(
  storageReads: StorageReads,
  states: readonly MessageState[],
): Promise<Account | null> {
  const waiting = states.find((state) => readWaitlist(state)?.kind === "capacity");
  const [owner] = waiting ? await storageReads.rows("accounts", [[waiting.account]]) : [];
  return owner ?? null;
}

function pickPulledOrigin({ host }: MessageState, owner: Account | null): Pick<WaitState, "pulledOrigin"> {
  const pulledOrigin = owner ? findPulledOrigin(owner, host) : undefined;
  return pulledOrigin === undefined ? {} : { pulledOrigin };
}

/** Returns the limiters of the gates that messages wait at or will meet, by their ids. */
async function readLimiters(
  storageReads: StorageReads,
  states: readonly MessageState[],
): Promise<Map<string, Limiter>> {
  const keys = new Map<string, Key>();
  for (const state of states)
    for (const gate of listGates(state)) {
      const key = toLimiterKey({ account: state.account, gate });
      keys.set(key.join(" "), key);
    }
  const rows = keys.size === 0 ? [] : await storageReads.rows("limiters", [...keys.values()]);
  return new Map(rows.map((row) => [row.id, row]));
}

function listGates(state: MessageState): LimiterGate[] {
  const waitlist = readWaitlist(state);
  return [
    ...(state.queue === null ? [] : [queueGate(state.queue)]),
    ...(state.flowControlKey === null ? [] : [keyGate(state.flowControlKey)]),
    ...(waitlist !== null && isAccountLimit(waitlist) ? [waitlist] : []),
  ];
}

function pickLimiters(
  state: MessageState,
  limiters: ReadonlyMap<string, Limiter>,
): Pick<WaitState, "queue" | "key" | "accountLimiter"> {
  const byKind = new Map(
    listGates(state).map((gate) => [gate.kind, limiters.get(formatGate(gate)) ?? null] as const),
  );
  return {
    queue: byKind.get("queue") ?? null,
    key: byKind.get("key") ?? null,
    accountLimiter: byKind.get("endpoint") ?? byKind.get("account") ?? null,
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
  const slots = await storageReads.queueSlots({ account, queue, limit: maxSlotsShown });
  return Promise.all(
    slots.map(async ({ id }) => ({
      messageId: id,
      holders: await storageReads.slotHolders(account, id, maxSlotsShown),
    })),
  );
}
