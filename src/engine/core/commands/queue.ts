import type { Decision } from "../decision/command.ts";
import { removeQueue } from "../admission/counters.ts";
import { queueGate } from "../admission/gate.ts";
import { findLimiter, putChanged, readLimiter } from "../admission/limiter.ts";
import type { AccountId, MessageId, Millis } from "../values/basics.ts";
import type { Limiter } from "../model/limiter.ts";
import type { QueueLimit } from "../limits/rowLimits.ts";
import { takeQueueQuota } from "../limits/rowLimits.ts";
import { requireActiveAccount } from "../accounts/plans.ts";
import { findParallelismRefusal } from "../limits/sendingLimits.ts";
import { throwIfRefused } from "../values/errors.ts";

/** A queue of an account. */
export type QueueName = { account: AccountId; name: string };

/**
 * The settings of a queue. `undefined`: unchanged. A new queue sends one message at a time and is not paused.
 */
export type QueueSettings = {
  parallelism?: number | undefined;
  paused?: boolean | undefined;
  /** Null: messages without this setting have none. */
  ackTimeout?: Millis | null | undefined;
};

/**
 * Creates or changes a queue. Throws `Refusal` if its parallelism, or the number of queues, exceeds the
 * limit.
 */
export const upsertQueue: Decision<QueueName & QueueSettings & QueueLimit, Limiter> = {
  decide: ({ account, name, parallelism, paused, ackTimeout, maxQueues }, draft, moment) => {
    const owner = requireActiveAccount(draft.get("accounts", account));
    throwIfRefused(findParallelismRefusal(owner, parallelism ?? 0));
    takeQueueQuota(draft, owner, { name, maxQueues });
    const limiter = readLimiter(draft, moment, { account, gate: queueGate(name) });
    // A pinned queue is not removed when it is idle.
    const pinned = { ...limiter.pinned, parallelism: true };
    const { ackTimeout: before, ...others } = limiter;
    const after = ackTimeout === undefined ? before : (ackTimeout ?? undefined);
    return putChanged(draft, moment, {
      ...others,
      ...(after !== undefined && { ackTimeout: after }),
      parallelism: parallelism ?? limiter.parallelism,
      paused: paused ?? limiter.paused,
      pinned,
    });
  },
};

/**
 * Removes a queue if none of its messages waits or is in flight; otherwise returns false. The given slots
 * belong to finished messages. They leave the queue, and callbacks and aborted requests that still use them
 * continue without it.
 */
export const deleteQueue: Decision<QueueName & { slots: readonly MessageId[] }, { deleted: boolean }> = {
  decide: ({ account, name, slots }, draft, moment) => {
    const limiter = findLimiter(draft, { account, gate: queueGate(name) });
    return { deleted: !limiter || removeQueue(draft, moment, { limiter, slots }) };
  },
};
