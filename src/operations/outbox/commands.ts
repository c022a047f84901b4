import { assertActive, requireAccount, requireActiveAccount } from "../../engine/core/accounts/plans.ts";
import { publish } from "../../engine/core/commands/publish.ts";
import type { Decision, Draft, Moment } from "../../engine/core/decision/command.ts";
import type { QueueLimit } from "../../engine/core/limits/rowLimits.ts";
import type { Account } from "../../engine/core/model/account.ts";
import type { MessageInput } from "../../engine/core/model/message.ts";
import type { Scope } from "../../engine/core/model/rights.ts";
import { assertVerb, toScope } from "../../engine/core/model/rights.ts";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import type { ErrorCode } from "../../engine/core/values/errors.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import type { Mark, OutboxSetting, OutboxState, OutboxStatus } from "./outbox.ts";
import { leaseTime, maxOutboxes, newState } from "./outbox.ts";

type Named = { account: AccountId; name: string };

/** Adds an outbox to an account, or replaces the one with this name. Throws `Refusal`. */
export const setOutbox: Decision<{ account: AccountId } & OutboxSetting, OutboxSetting> = {
  decide: ({ account: id, ...setting }, draft) => {
    const account = requireActiveAccount(draft.get("accounts", id));
    const others = (account.outboxes ?? []).filter(({ name }) => name !== setting.name);
    if (others.length >= maxOutboxes)
      throw new Refusal(
        "limit-exceeded",
        `outboxes: there are ${others.length}, and the limit is ${maxOutboxes}; delete one`,
      );
    draft.put("accounts", { ...account, outboxes: [...others, setting] });
    const state = draft.get("outboxes", id, setting.name);
    draft.put("outboxes", state ? { ...state, error: null, errorAt: null } : newState(id, setting));
    return setting;
  },
};

/** Removes an outbox. The rows in the database of the user stay. */
export const deleteOutbox: Decision<Named, { deleted: boolean }> = {
  decide: ({ account: id, name }, draft) => {
    const { outboxes = [], ...account }: Account = requireAccount(draft.get("accounts", id));
    const others = outboxes.filter((one) => one.name !== name);
    if (draft.get("outboxes", id, name)) draft.drop("outboxes", id, name);
    if (others.length === outboxes.length) return { deleted: false };
    draft.put("accounts", others.length === 0 ? account : { ...account, outboxes: others });
    return { deleted: true };
  },
};

/**
 * Takes the lease of an outbox for this node. `isAlone`: no other node can have it now. Null: another node
 * has it, or it does not exist. Each lease has a number, and work under an earlier number is refused.
 */
export const takeOutbox: Decision<Named & { isAlone: boolean }, OutboxState | null> = {
  decide: ({ account, name, isAlone }, draft, { now, node }) => {
    const state = draft.get("outboxes", account, name);
    if (!state || (!isAlone && state.lease && state.lease.node !== node && state.lease.until > now))
      return null;
    const number = (state.lease?.number ?? 0) + 1;
    const taken = { ...state, lease: { node, number, until: now + leaseTime } };
    draft.put("outboxes", taken);
    return taken;
  },
};

type Leased = Named & { number: number };

/** Returns the state of an outbox if this node still has the lease with this number. */
function findLeased(draft: Draft, { account, name, number }: Leased, { node }: Moment): OutboxState | null {
  const state = draft.get("outboxes", account, name);
  return state?.lease?.node === node && state.lease.number === number ? state : null;
}

/** Keeps the lease and notes what was found, or gives the lease back. Returns false if it was lost. */
export const noteOutbox: Decision<
  Leased & { status: Partial<OutboxStatus>; isEnd?: boolean },
  { isKept: boolean }
> = {
  decide: ({ status, isEnd = false, ...leased }, draft, moment) => {
    const state = findLeased(draft, leased, moment);
    if (!state?.lease) return { isKept: false };
    // The number stays, so that it is never used twice.
    const until = isEnd ? 0 : moment.now + leaseTime;
    draft.put("outboxes", { ...state, ...status, lease: { ...state.lease, until } });
    return { isKept: true };
  },
};

/** The result of a row. `isPassing`: it stays, and is tried again. */
export type RowResult = "taken" | { reason: string; isPassing: boolean };

/** Refusals of one row that no later attempt would change. */
const lastingRefusals: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  "invalid",
  "forbidden",
  "not-found",
  "conflict",
  "too-large",
  "step-refused",
  "headers-too-large",
]);

/** Returns what a refusal means for its row. */
export const toRowResult = ({ code, message }: Pick<Refusal, "code" | "message">): RowResult => ({
  reason: message.slice(0, 1_000),
  isPassing: !lastingRefusals.has(code),
});

/**
 * Publishes rows, and marks their keys in the same transaction. A row whose key has a mark is not published
 * again. `done` are marks of rows that are gone from the database of the user. Returns the result of each
 * row, or null if the lease was lost. Throws `Refusal` if the account or the token may publish nothing now.
 */
export const publishRows: Decision<
  Leased & { inputs: readonly MessageInput[]; rows: readonly Mark[]; done: readonly Mark[] } & QueueLimit,
  RowResult[] | null
> = {
  hint: ({ account, name, inputs }) => ({
    ...publish.hint?.({ account, inputs }),
    outboxes: [[account, name]],
  }),
  decide: ({ inputs, rows, done, maxQueues, ...leased }, draft, moment) => {
    const { account: id, name } = leased;
    const state = findLeased(draft, leased, moment);
    const account = requireAccount(draft.get("accounts", id));
    const setting = account.outboxes?.find((one) => one.name === name);
    if (!state || !setting) return null;
    const scope = requireScope(draft, { account, setting, now: moment.now });
    const gone = new Set(done.map(([, key]) => key));
    const kept = state.marks.filter(([, key]) => !gone.has(key));
    const marked = new Set(kept.map(([, key]) => key));
    const marks: Mark[] = [];
    const results = inputs.map((input, at): RowResult => {
      const row = rows[at];
      if (!row || marked.has(row[1])) return "taken";
      const result = publishRow({ account: id, input, maxQueues, ...scope }, draft, moment);
      if (result === "taken") marks.push(row);
      return result;
    });
    if (marks.length + done.length > 0)
      draft.put("outboxes", {
        ...state,
        marks: [...kept, ...marks],
        taken: state.taken + marks.length,
        takenAt: marks.length > 0 ? moment.now : state.takenAt,
      });
    return results;
  },
};

type RowInput = { account: AccountId; input: MessageInput; scope?: Scope } & QueueLimit;

function publishRow({ input, ...sender }: RowInput, draft: Draft, moment: Moment): RowResult {
  try {
    const [result] = publish.decide({ ...sender, inputs: [input] }, draft, moment);
    if (result && "refused" in result) return toRowResult({ code: result.refused, message: result.message });
    return "taken";
  } catch (error) {
    // A run that may not start is refused before anything is written.
    if (error instanceof Refusal) return toRowResult(error);
    throw error;
  }
}

/** Returns the rights of the token of an outbox. Throws `Refusal` if it gives none now. */
function requireScope(
  draft: Draft,
  {
    account,
    setting: { tokenHash, tokenId },
    now,
  }: { account: Account; setting: OutboxSetting; now: Millis },
): { scope?: Scope } {
  assertActive(account);
  const token = tokenId === null ? undefined : draft.get("tokens", account.id, tokenId);
  const isKnown = tokenId === null ? account.tokenHash === tokenHash : token?.hash === tokenHash;
  if (!isKnown || (token && token.expiresAt !== null && token.expiresAt <= now))
    throw new Refusal("unauthorized", "token: revoked or expired; add the outbox again with a valid token");
  if (!token) return {};
  assertVerb(toScope(token), "publish");
  return { scope: toScope(token) };
}
