import type { Account } from "../../../../src/engine/core/model/account.ts";
import type { MessageState } from "../../../../src/engine/core/model/messageState.ts";
import type { ObservedBatch, AssertHolds } from "../observedBatch.ts";
import { isLease } from "../observedBatch.ts";
import type { Tables } from "../../storage/changes.ts";
import type { MessageHistory } from "../messageHistory.ts";

type LimitCheckContext = {
  assertHolds: AssertHolds;
  tables: Tables;
  messageHistories: ReadonlyMap<string, MessageHistory>;
};

/**
 * The deliveries that are counted together: all of an account, or those to one endpoint; and the limit for
 * them.
 */
type LimitScope = { account: string; name: string; limit: "globalParallelism" | "parallelism" };

/**
 * Checks account limits, in total and per endpoint: of the deliveries that started under a limit, never more
 * are in flight on all nodes together. It counts only leases, independently of the counters in the rows.
 */
export class AccountLimitChecker {
  /** Messages in flight that were counted when they started, by scope. */
  readonly #underWay = new Map<string, Set<string>>();

  check({ changes }: ObservedBatch, { assertHolds, tables, messageHistories }: LimitCheckContext): void {
    const before = new Map(changes.accounts.map(({ before }) => [before?.id, before]));
    const limitsOf = ({ account, limit }: LimitScope): [now: number, then: number] => {
      const now = tables.accounts.get(account);
      return [readLimit(now, limit), readLimit(before.get(account) ?? now, limit)];
    };
    const sharesOf = (state: MessageState | undefined): LimitScope[] =>
      state
        ? [
            { account: state.account, name: state.account, limit: "globalParallelism" },
            {
              account: state.account,
              name: `${state.account} to ${parseEndpoint(state, messageHistories)}`,
              limit: "parallelism",
            },
          ]
        : [];
    const touched = new Map<string, { share: LimitScope; had: number }>();
    for (const { before: was, after } of changes.messages) {
      for (const share of sharesOf(after ?? was)) {
        const ids = this.#getScope(share);
        if (!touched.has(share.name)) touched.set(share.name, { share, had: ids.size });
        const id = after?.id ?? was?.id ?? "";
        if (!isSent(after) || isLease(was, after)) ids.delete(id);
      }
    }
    for (const { before: was, after } of changes.messages) {
      if (!isLease(was, after)) continue;
      // If the limit was changed in the same batch, the delivery may have started before.
      for (const share of sharesOf(after))
        if (limitsOf(share).every((limit) => limit < Infinity)) this.#getScope(share).add(after.id);
    }
    for (const { share, had } of touched.values()) {
      const max = Math.max(had, ...limitsOf(share));
      const has = this.#getScope(share).size;
      assertHolds(has <= max, `an account limit is not exceeded: ${share.name} has ${has} of ${max}`);
    }
  }

  #getScope({ name }: LimitScope): Set<string> {
    const ids = this.#underWay.get(name) ?? new Set();
    this.#underWay.set(name, ids);
    return ids;
  }
}

/** Returns the endpoint that counts a delivery, from its URL and not from its row. */
export function parseEndpoint(
  { id }: Pick<MessageState, "id">,
  messageHistories: ReadonlyMap<string, MessageHistory>,
): string {
  const { origin, pathname } = new URL(messageHistories.get(id)?.message.url ?? "");
  return origin + pathname;
}

const isSent = (state: MessageState | undefined): boolean => state !== undefined && state.leasedBy !== null;

const readLimit = (account: Account | undefined, limit: LimitScope["limit"]): number =>
  account?.limits?.[limit] ?? Infinity;
