import type { Decision, Key } from "../decision/command.ts";
import { Refusal } from "../values/errors.ts";
import { removeQueue } from "../admission/counters.ts";
import { queueGate } from "../admission/gate.ts";
import { findLimiter, readLimiter, toLimiterKey } from "../admission/limiter.ts";
import { changed } from "./flowControl.ts";
import type { AccountId, Flow, MessageId } from "../model/message.ts";
import type { MostQueues } from "../sending/quotas.ts";
import { needsOfQueues, takeQueue } from "../sending/quotas.ts";
import { acting } from "../accounts/plans.ts";
import { parallelismBrokenBy } from "./publish.ts";

export type QueueName = { account: AccountId; name: string };

/** What a queue is to be. `undefined`: as it is, and for a new one one message at a time, and not paused. */
export type QueueSettings = { parallelism?: number | undefined; paused?: boolean | undefined };

/** Makes a queue, or changes it. Throws `Refusal` when it is to be more parallel than the limit, or one too many. */
export const upsertQueue: Decision<QueueName & QueueSettings & MostQueues, Flow> = {
  needs: ({ account, name }) => ({ accounts: [[account]], flows: [toLimiterKey({ account, gate: queueGate(name) })] }),
  further: ({ account, name, mostQueues }, draft) => needsOfQueues(draft, account, [{ queue: name }], { mostQueues }),
  decide: ({ account, name, parallelism, paused, mostQueues }, draft, moment) => {
    const owner = acting(draft.get("accounts", account));
    const broken = parallelismBrokenBy(owner, parallelism ?? 0);
    if (broken) throw new Refusal(broken.refused, broken.message);
    takeQueue(draft, owner, { name, mostQueues });
    const flow = readLimiter(draft, moment, { account, gate: queueGate(name) });
    // Pinned, so that it is not forgotten when it is idle.
    const pinned = { ...flow.pinned, parallelism: true };
    return changed(draft, moment, { ...flow, parallelism: parallelism ?? flow.parallelism, paused: paused ?? flow.paused, pinned });
  },
};

/**
 * Removes a queue in which no message waits or is under way; false when there are some. Of the given slots those are
 * taken out of the queue of which the message is finished: its callbacks, or its request that was called off, go on without it.
 */
export const deleteQueue: Decision<QueueName & { slots: readonly MessageId[] }, { deleted: boolean }> = {
  needs: ({ account, name, slots }) => {
    const keys = slots.map((id): Key => [account, id]);
    return { flows: [toLimiterKey({ account, gate: queueGate(name) })], slots: keys, messages: keys };
  },
  decide: ({ account, name, slots }, draft, moment) => {
    const limiter = findLimiter(draft, { account, gate: queueGate(name) });
    return { deleted: !limiter || removeQueue(draft, moment, { limiter, slots }) };
  },
};
