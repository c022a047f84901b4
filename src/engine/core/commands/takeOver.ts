import type { Decision } from "../decision/command.ts";
import { spans } from "../values/limits.ts";
import type { Millis } from "../values/basics.ts";
import { nodeEndedDueAt } from "../cluster/takeover.ts";
import type { NodeMembership } from "../cluster/takeover.ts";

/**
 * Makes the messages that a node has leased due, if the node still has the membership that was seen gone. The
 * next claim counts each attempt as lost. `now` may be wrong by the duration of a lease. If it is wrong by
 * more, messages may be missed; these are sent when their leases expire.
 */
export const takeOver: Decision<NodeMembership & { now: Millis; limit: number }, { reclaimed: number }> = {
  decide: ({ node, membership, now, limit }, draft) => {
    const span = { number: membership, after: now - spans.lease, until: now + 2 * spans.lease };
    const states = draft
      .leasedByOthers({ node, limit, membership: span })
      .filter(({ leasedBy }) => leasedBy === node);
    for (const state of states) draft.put("messages", { ...state, dueAt: nodeEndedDueAt });
    return { reclaimed: states.length };
  },
};
