import type { Decision, Key } from "../decision/command.ts";
import { Refusal } from "../values/errors.ts";
import { flowOf, putFlow, queueFlow } from "../sending/limiter.ts";
import { changed } from "./flowControl.ts";
import type { AccountId, Flow, MessageId } from "../model/message.ts";
import { isUnfinished } from "../model/message.ts";
import type { MostQueues } from "../sending/quotas.ts";
import { needsOfQueues, takeQueue } from "../sending/quotas.ts";
import { acting } from "../accounts/plans.ts";
import { parallelismBrokenBy } from "./publish.ts";

export type QueueName = { account: AccountId; name: string };

/** What a queue is to be. `undefined`: as it is, and for a new one one message at a time, and not paused. */
export type QueueSettings = { parallelism?: number | undefined; paused?: boolean | undefined };

/** Makes a queue, or changes it. Throws `Refusal` when it is to be more parallel than the limit, or one too many. */
export const upsertQueue: Decision<QueueName & QueueSettings & MostQueues, Flow> = {
  needs: ({ account, name }) => ({ accounts: [[account]], flows: [[account, queueFlow(name)]] }),
  further: ({ account, name, mostQueues }, draft) => needsOfQueues(draft, account, [{ queue: name }], { mostQueues }),
  decide: ({ account, name, parallelism, paused, mostQueues }, draft, moment) => {
    const owner = acting(draft.get("accounts", account));
    const broken = parallelismBrokenBy(owner, parallelism ?? 0);
    if (broken) throw new Refusal(broken.refused, broken.message);
    takeQueue(draft, owner, { name, mostQueues });
    const flow = flowOf(draft, moment, account, queueFlow(name));
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
    return { flows: [[account, queueFlow(name)]], slots: keys, messages: keys };
  },
  decide: ({ account, name, slots }, draft, moment) => {
    const flow = draft.get("flows", account, queueFlow(name));
    if (!flow) return { deleted: true };
    const left = slots.flatMap((id) => {
      const slot = draft.get("slots", account, id);
      const state = draft.get("messages", account, id);
      return slot?.queue === name && !(state && isUnfinished(state)) ? [slot] : [];
    });
    for (const slot of left) draft.put("slots", { ...slot, queue: "" });
    const running = flow.running - left.length;
    const deleted = running === 0 && flow.waiting === 0;
    if (deleted) draft.drop("flows", account, flow.id);
    else if (left.length > 0) putFlow(draft, moment, { ...flow, running });
    return { deleted };
  },
};
