import type { Decision, Draft, Moment } from "../decision/command.ts";
import { Refusal, throwIfRefused } from "../values/errors.ts";
import type { LimiterGate } from "../admission/gate.ts";
import { hasLimiter, keyGate, parseGate } from "../admission/gate.ts";
import { findLimiter, putChanged, readLimiter, readWindow, restartWindow } from "../admission/limiter.ts";
import type { AccountId, Millis } from "../values/basics.ts";
import type { Limiter } from "../model/limiter.ts";
import type { QueueLimit } from "../limits/rowLimits.ts";
import { takeQueueQuota } from "../limits/rowLimits.ts";
import { requireAccount } from "../accounts/plans.ts";
import { findFlowControlRefusal } from "../limits/sendingLimits.ts";

/** A queue or a key, by the id of its limiter. */
export type LimiterRef = { account: AccountId; id: string };
/** A flow-control key by its name. */
export type FlowControlKeyRef = { account: AccountId; key: string };

function parseLimiterGate(id: string): LimiterGate {
  const gate = parseGate(id);
  if (!hasLimiter(gate)) throw new Error(`gate ${id} has no limiter`);
  return gate;
}

/**
 * Pauses a queue or a key, which need not exist. Messages in flight are not affected. Throws `Refusal` if the
 * queue would exceed the account's limit of queues.
 */
export const pauseLimiter: Decision<LimiterRef & QueueLimit, Limiter> = {
  decide: ({ account, id, maxQueues }, draft, moment) => {
    const queue = readQueueName(id);
    if (queue !== null)
      takeQueueQuota(draft, requireAccount(draft.get("accounts", account)), { name: queue, maxQueues });
    const limiter = readLimiter(draft, moment, { account, gate: parseLimiterGate(id) });
    return setPaused(draft, moment, { limiter, paused: true });
  },
};

/**
 * Returns the name of a queue by the id of its limiter, or null if the limiter does not belong to a queue.
 */
function readQueueName(id: string): string | null {
  const { kind, name } = parseGate(id);
  return kind === "queue" ? name : null;
}

/**
 * Resumes a queue or a key; its oldest message goes first. Null: the queue or key does not exist, so it was
 * not paused.
 */
export const resumeLimiter: Decision<LimiterRef, Limiter | null> = {
  decide: ({ account, id }, draft, moment) => {
    const limiter = draft.get("limiters", account, id);
    return limiter ? setPaused(draft, moment, { limiter, paused: false }) : null;
  },
};

function setPaused(
  draft: Draft,
  moment: Moment,
  { limiter, paused }: { limiter: Limiter; paused: boolean },
): Limiter {
  const isUnchanged = limiter.paused === paused && draft.get("limiters", limiter.account, limiter.id);
  return isUnchanged ? limiter : putChanged(draft, moment, { ...limiter, paused });
}

/** The limits to pin. `undefined`: not given. `period` is in milliseconds. */
export type PinnedLimits = {
  parallelism?: number | undefined;
  rate?: number | undefined;
  period?: Millis | undefined;
};

/**
 * Pins limits of a key: messages cannot change them until they are unpinned. Creates the key if it does not
 * exist. Rate and period are pinned together and start a new window. Throws `Refusal` for limits beyond those
 * of `engine/core/values/limits.ts`, and for a period without a rate.
 */
export const pinFlowControl: Decision<FlowControlKeyRef & PinnedLimits, Limiter> = {
  decide: ({ account, key, parallelism, rate, period }, draft, moment) => {
    throwIfRefused(
      findFlowControlRefusal({
        parallelism: parallelism ?? null,
        rate: rate ?? null,
        period: period ?? null,
      }),
    );
    const limiter = readLimiter(draft, moment, { account, gate: keyGate(key) });
    if (period !== undefined && rate === undefined && limiter.rate === null)
      throw new Refusal("invalid", "period: requires rate, because this key has none");
    const pinsRate = rate !== undefined || period !== undefined;
    const pinnedRate = { rate: rate ?? limiter.rate, period: period ?? limiter.period };
    return putChanged(draft, moment, {
      ...(pinsRate ? { ...restartWindow(limiter, moment.now), ...pinnedRate } : limiter),
      ...(parallelism === undefined ? {} : { parallelism }),
      pinned: {
        parallelism: limiter.pinned.parallelism || parallelism !== undefined,
        rate: limiter.pinned.rate || pinsRate,
      },
    });
  },
};

/**
 * Unpins limits of a key, so that messages can change them again. The limits stay as they are until a message
 * changes them. Null: the key does not exist.
 */
export const unpinFlowControl: Decision<
  FlowControlKeyRef & { parallelism: boolean; rate: boolean },
  Limiter | null
> = {
  decide: ({ account, key, parallelism, rate }, draft, moment) => {
    const limiter = findLimiter(draft, { account, gate: keyGate(key) });
    if (!limiter) return null;
    const pinned = {
      parallelism: limiter.pinned.parallelism && !parallelism,
      rate: limiter.pinned.rate && !rate,
    };
    return putChanged(draft, moment, { ...limiter, pinned });
  },
};

/** Starts a new window of a key, in which no message has started. Null: the key does not exist. */
export const resetRate: Decision<FlowControlKeyRef, Limiter | null> = {
  decide: ({ account, key }, draft, moment) => {
    const limiter = findLimiter(draft, { account, gate: keyGate(key) });
    return limiter ? putChanged(draft, moment, restartWindow(limiter, moment.now)) : null;
  },
};

/** Returns a limiter with its window as it is now. */
export const withCurrentWindow = (limiter: Limiter, now: Millis): Limiter => ({
  ...limiter,
  ...readWindow(limiter, now),
});
