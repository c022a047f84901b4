import type { Decision, Draft, Moment } from "../decision/command.ts";
import { Refusal } from "../values/errors.ts";
import type { LimiterGate } from "../admission/gate.ts";
import { hasLimiter, keyGate, parseGate } from "../admission/gate.ts";
import type { LimiterName } from "../admission/limiter.ts";
import { findLimiter, putLimiter, readLimiter, readWindow, toLimiterKey } from "../admission/limiter.ts";
import type { AccountId, Limiter, Millis } from "../model/message.ts";
import type { QueueLimit } from "../sending/quotas.ts";
import { queueQuotaNeeds, takeQueueQuota } from "../sending/quotas.ts";
import { requireAccount } from "../accounts/plans.ts";
import { findFlowControlRefusal } from "./publish.ts";

/** A queue or a key, by the id of its limiter. */
export type LimiterRef = { account: AccountId; id: string };
export type FlowControlKeyRef = { account: AccountId; key: string };

const limiterNeeds = ({ account, id }: LimiterRef) => ({ limiters: [[account, id] as const] });
const keyLimiterNeeds = (name: FlowControlKeyRef) => ({ limiters: [toLimiterKey(toLimiterName(name))] });

const toLimiterName = ({ account, key }: FlowControlKeyRef): LimiterName => ({ account, gate: keyGate(key) });

function parseLimiterGate(id: string): LimiterGate {
  const gate = parseGate(id);
  if (!hasLimiter(gate)) throw new Error(`limiter ${id}: this gate has none`);
  return gate;
}

/**
 * Lets nothing more begin in a queue or under a key, known or not yet. What has begun goes on. Throws `Refusal` for a queue that would be
 * one too many.
 */
export const pauseLimiter: Decision<LimiterRef & QueueLimit, Limiter> = {
  needs: ({ account, id }) => ({ accounts: [[account]], limiters: [[account, id]] }),
  further: ({ account, id, maxQueues }, draft) => queueQuotaNeeds(draft, account, [{ queue: readQueueName(id) }], { maxQueues }),
  decide: ({ account, id, maxQueues }, draft, moment) => {
    const queue = readQueueName(id);
    if (queue !== null) takeQueueQuota(draft, requireAccount(draft.get("accounts", account)), { name: queue, maxQueues });
    return setPaused(draft, moment, readLimiter(draft, moment, { account, gate: parseLimiterGate(id) }), true);
  },
};

/** Returns the name of a queue by the id of its limiter, or null if the limiter is that of another gate. */
function readQueueName(id: string): string | null {
  const { kind, name } = parseGate(id);
  return kind === "queue" ? name : null;
}

/** Lets a queue or a key go on, oldest message first. Null: it is not known, so nothing holds it back. */
export const resumeLimiter: Decision<LimiterRef, Limiter | null> = {
  needs: limiterNeeds,
  decide: ({ account, id }, draft, moment) => {
    const limiter = draft.get("limiters", account, id);
    return limiter ? setPaused(draft, moment, limiter, false) : null;
  },
};

const setPaused = (draft: Draft, moment: Moment, limiter: Limiter, paused: boolean): Limiter =>
  limiter.paused === paused && draft.get("limiters", limiter.account, limiter.id)
    ? limiter
    : putChanged(draft, moment, { ...limiter, paused });

/** Writes a flow that somebody has changed by hand, and answers it as it is then. */
export function putChanged(draft: Draft, moment: Moment, limiter: Limiter): Limiter {
  putLimiter(draft, moment, { ...limiter, updatedAt: moment.now });
  return draft.get("limiters", limiter.account, limiter.id) ?? limiter;
}

/** What is to be pinned. `undefined`: not given. `period` in milliseconds. */
export type PinnedLimits = { parallelism?: number | undefined; rate?: number | undefined; period?: Millis | undefined };

/**
 * Sets limits of a key, known or not yet, that messages cannot change until they are unpinned. Rate and period are
 * pinned together, and a new window begins. Throws `Refusal` for limits beyond those of `core/values/limits.ts`, and for a
 * period without a rate.
 */
export const pinFlowControl: Decision<FlowControlKeyRef & PinnedLimits, Limiter> = {
  needs: keyLimiterNeeds,
  decide: ({ account, key, parallelism, rate, period }, draft, moment) => {
    const refusal = findFlowControlRefusal({ parallelism: parallelism ?? null, rate: rate ?? null, period: period ?? null });
    if (refusal) throw new Refusal(refusal.refused, refusal.message);
    const limiter = readLimiter(draft, moment, { account, gate: keyGate(key) });
    if (period !== undefined && rate === undefined && limiter.rate === null)
      throw new Refusal("invalid", "period: the key has no rate that it could be the period of; give rate as well");
    const pinsRate = rate !== undefined || period !== undefined;
    const rateLimit = { rate: rate ?? limiter.rate, period: period ?? limiter.period, windowStart: moment.now, windowUsed: 0 };
    return putChanged(draft, moment, {
      ...limiter,
      ...(parallelism === undefined ? {} : { parallelism }),
      ...(pinsRate ? rateLimit : {}),
      pinned: { parallelism: limiter.pinned.parallelism || parallelism !== undefined, rate: limiter.pinned.rate || pinsRate },
    });
  },
};

/** Lets messages change limits of a key again. They stay as they are until one does. Null: the key is not known. */
export const unpinFlowControl: Decision<FlowControlKeyRef & { parallelism: boolean; rate: boolean }, Limiter | null> = {
  needs: keyLimiterNeeds,
  decide: ({ account, key, parallelism, rate }, draft, moment) => {
    const limiter = findLimiter(draft, { account, gate: keyGate(key) });
    if (!limiter) return null;
    const pinned = { parallelism: limiter.pinned.parallelism && !parallelism, rate: limiter.pinned.rate && !rate };
    return putChanged(draft, moment, { ...limiter, pinned });
  },
};

/** Begins a new window of a key, in which nothing has begun yet. Null: the key is not known. */
export const resetRate: Decision<FlowControlKeyRef, Limiter | null> = {
  needs: keyLimiterNeeds,
  decide: ({ account, key }, draft, moment) => {
    const limiter = findLimiter(draft, { account, gate: keyGate(key) });
    return limiter ? putChanged(draft, moment, { ...limiter, windowStart: moment.now, windowUsed: 0 }) : null;
  },
};

/** A flow with its window as it is now. */
export const withCurrentWindow = (limiter: Limiter, now: Millis): Limiter => ({ ...limiter, ...readWindow(limiter, now) });
