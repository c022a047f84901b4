import type { Decision, Key } from "../decision/command.ts";
import { Refusal } from "../values/errors.ts";
import { removeQueue } from "../admission/counters.ts";
import { queueGate } from "../admission/gate.ts";
import { findLimiter, readLimiter, toLimiterKey } from "../admission/limiter.ts";
import { putChanged } from "./flowControl.ts";
import type { AccountId, Limiter, MessageId } from "../model/message.ts";
import type { QueueLimit } from "../sending/quotas.ts";
import { queueQuotaNeeds, takeQueueQuota } from "../sending/quotas.ts";
import { requireActiveAccount } from "../accounts/plans.ts";
import { findParallelismRefusal } from "./publish.ts";

export type QueueName = { account: AccountId; name: string };

/** What a queue is to be. `undefined`: as it is, and for a new one one message at a time, and not paused. */
export type QueueSettings = { parallelism?: number | undefined; paused?: boolean | undefined };

/** Makes a queue, or changes it. Throws `Refusal` when it is to be more parallel than the limit, or one too many. */
export const upsertQueue: Decision<QueueName & QueueSettings & QueueLimit, Limiter> = {
  needs: ({ account, name }) => ({ accounts: [[account]], limiters: [toLimiterKey({ account, gate: queueGate(name) })] }),
  further: ({ account, name, maxQueues }, draft) => queueQuotaNeeds(draft, account, [{ queue: name }], { maxQueues }),
  decide: ({ account, name, parallelism, paused, maxQueues }, draft, moment) => {
    const owner = requireActiveAccount(draft.get("accounts", account));
    const refusal = findParallelismRefusal(owner, parallelism ?? 0);
    if (refusal) throw new Refusal(refusal.refused, refusal.message);
    takeQueueQuota(draft, owner, { name, maxQueues });
    const limiter = readLimiter(draft, moment, { account, gate: queueGate(name) });
    // Pinned, so that it is not forgotten when it is idle.
    const pinned = { ...limiter.pinned, parallelism: true };
    return putChanged(draft, moment, {
      ...limiter,
      parallelism: parallelism ?? limiter.parallelism,
      paused: paused ?? limiter.paused,
      pinned,
    });
  },
};

/**
 * Removes a queue in which no message waits or is under way; false when there are some. Of the given slots those are
 * taken out of the queue of which the message is finished: its callbacks, or its request that was called off, go on without it.
 */
export const deleteQueue: Decision<QueueName & { slots: readonly MessageId[] }, { deleted: boolean }> = {
  needs: ({ account, name, slots }) => {
    const keys = slots.map((id): Key => [account, id]);
    return { limiters: [toLimiterKey({ account, gate: queueGate(name) })], queueSlots: keys, messages: keys };
  },
  decide: ({ account, name, slots }, draft, moment) => {
    const limiter = findLimiter(draft, { account, gate: queueGate(name) });
    return { deleted: !limiter || removeQueue(draft, moment, { limiter, slots }) };
  },
};
