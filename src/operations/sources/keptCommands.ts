import { publish } from "../../engine/core/commands/publish.ts";
import type { PublishResult } from "../../engine/core/commands/publish.ts";
import type { Decision } from "../../engine/core/decision/command.ts";
import type { QueueLimit } from "../../engine/core/limits/rowLimits.ts";
import type { MessageInput } from "../../engine/core/model/message.ts";
import type { WebhookSource } from "../../engine/core/model/webhookSource.ts";
import type { AccountId } from "../../engine/core/values/basics.ts";
import { keptCallKey } from "./keptCall.ts";

type Named = { account: AccountId; id: string };

/**
 * Publishes a kept call of a source, and removes the kept call in the same transaction, so that it is
 * published once. Returns null if the call is not kept any more.
 */
export const sendKeptCall: Decision<
  Named & { number: number; input: MessageInput } & QueueLimit,
  PublishResult | null
> = {
  hint: ({ account, id, number, input }) => ({
    ...publish.hint?.({ account, inputs: [input] }),
    sources: [[account, id]],
    keptCalls: [keptCallKey({ account, id }, number)],
  }),
  decide: ({ account, id, number, input, maxQueues }, draft, moment) => {
    const source = draft.get("sources", account, id);
    const key = keptCallKey({ account, id }, number);
    const call = draft.get("keptCalls", ...key);
    if (!source || !call || call.dueAt <= moment.now) return null;
    const [result] = publish.decide({ account, inputs: [input], source: id, maxQueues }, draft, moment);
    if (!result || "refused" in result) return result ?? null;
    draft.drop("keptCalls", ...key);
    draft.put("sources", withoutKept(source, number));
    return result;
  },
};

/** Removes kept calls whose time is over. */
export const removeKeptCalls: Decision<{ account: AccountId; ids: readonly string[] }, { removed: number }> =
  {
    decide: ({ account, ids }, draft, { now }) => {
      const old = ids
        .flatMap((id) => draft.get("keptCalls", account, id) ?? [])
        .filter(({ dueAt }) => dueAt <= now);
      for (const { id } of old) {
        draft.drop("keptCalls", account, id);
        const [sourceId = "", number] = id.split("/");
        const source = draft.get("sources", account, sourceId);
        if (source) draft.put("sources", withoutKept(source, Number(number)));
      }
      return { removed: old.length };
    },
  };

function withoutKept({ keptCalls, ...source }: WebhookSource, number: number): WebhookSource {
  const left = keptCalls?.filter((one) => one.number !== number) ?? [];
  return left.length === 0 ? source : { ...source, keptCalls: left };
}
