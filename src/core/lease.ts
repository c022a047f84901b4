import type { Draft, Key, Moment } from "./command.ts";
import { defaults, spans } from "./limits.ts";
import type { Account, AccountId, Envelope, Letter, LogRow, MessageState } from "./message.ts";
import { hostOf, noBytes } from "./message.ts";

/**
 * Takes in a message: writes its envelope, and its state. When it is due now, overtakes nobody, and this node has a
 * free hand for its host, it is leased and handed over at once; otherwise it waits for a claim. The caller has asked
 * for the line of its host (`linesTo`).
 */
export function accept(draft: Draft, moment: Moment, account: Account, letter: Letter): Envelope {
  const host = hostOf(letter.url);
  const size = letter.body.byteLength;
  const { delay, ...kept } = letter;
  const dueAt = Math.max(moment.now, letter.notBefore ?? moment.now + (delay ?? 0));
  const startedAtOnce = dueAt <= moment.now && isNext(draft, account.id, host) && draft.takeHand(account.id, host, size);
  const envelope: Envelope = {
    ...kept,
    account: account.id,
    id: moment.newId("msg"),
    createdAt: moment.now,
    notBefore: dueAt,
    retries: letter.retries ?? defaults.retries,
    timeout: letter.timeout ?? defaults.timeout,
    startedAtOnce,
  };
  const state: MessageState = {
    account: account.id,
    id: envelope.id,
    state: "pending",
    dueAt,
    attempts: 0,
    lost: 0,
    leasedBy: null,
    host,
    size,
    tells: letter.callback !== null || letter.tells !== null,
  };
  draft.put("envelopes", envelope);
  if (startedAtOnce) lease(draft, moment, { account, envelope, state });
  else draft.put("messages", state);
  return envelope;
}

/**
 * Nobody stands in line for the host. While others are due and not claimed yet, it is not known for whom; then only a
 * newcomer gets a hand at once, so that a backlog of one host does not hold up the others.
 */
const isNext = (draft: Draft, account: AccountId, host: string): boolean =>
  !draft.get("lines", account, host) && (!draft.behind() || draft.isNewcomer(account, host));

/** The lines that messages to these URLs may have to stand in. */
export const linesTo = (account: AccountId, urls: readonly string[]): Key[] =>
  [...new Set(urls.map(hostOf))].map((host) => [account, host] as const);

/** Leases a message to this node and hands it to the dispatcher. The caller has taken a hand for it. */
export function lease(draft: Draft, moment: Moment, of: { account: Account; envelope: Envelope; state: MessageState }): void {
  const { account, envelope, state } = of;
  draft.put("messages", { ...state, state: "active", dueAt: moment.now + spans.lease, leasedBy: moment.node });
  draft.deliver({ message: envelope, attempt: state.attempts, signingKey: account.signingKeys.current });
}

/** A line of the log, with nothing in it but what is given. */
export function logRow(moment: Moment, of: Pick<MessageState, "account" | "id">, what: Pick<LogRow, "states"> & Partial<LogRow>): LogRow {
  return {
    account: of.account,
    id: moment.newId("log"),
    messageId: of.id,
    time: moment.now,
    error: null,
    nextDueAt: null,
    status: null,
    headers: [],
    body: noBytes,
    dlqId: null,
    ...what,
  };
}

/** An attempt that a node says it has the lease of. */
export type Held = { account: AccountId; messageId: string; attempt: number };

/** The message, if this node still holds the lease of this very attempt. A lease that was lost is never honoured. */
export function fenced(draft: Draft, moment: Moment, { account, messageId, attempt }: Held): MessageState | null {
  const state = draft.get("messages", account, messageId);
  const holds = state && state.state === "active" && state.leasedBy === moment.node && state.attempts === attempt;
  return holds ? state : null;
}
