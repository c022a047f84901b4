import type { Account, MessageState } from "../../src/core/model/message.ts";
import type { Case, Demand } from "./batch.ts";
import { isLease } from "./batch.ts";
import type { Tables } from "./changes.ts";
import type { Life } from "./life.ts";

type Court = { demand: Demand; tables: Tables; lives: ReadonlyMap<string, Life> };

/** What is counted together: all of an account, or what it sends to one endpoint; and the limit that holds for it. */
type Share = { account: string; name: string; limit: "globalParallelism" | "parallelism" };

/**
 * What an account may have under way, in all and to each endpoint: of the deliveries that began since it has a limit, never more
 * at once than that, on all nodes together. Counted from the leases alone, whatever the rows say of being counted.
 */
export class Allowances {
  /** Messages that are being sent, and were counted when that began, by the name of the share. */
  readonly #underWay = new Map<string, Set<string>>();

  judge({ changes }: Case, { demand, tables, lives }: Court): void {
    const before = new Map(changes.accounts.map(({ before }) => [before?.id, before]));
    const limitsOf = ({ account, limit }: Share): [now: number, then: number] => {
      const now = tables.accounts.get(account);
      return [limitOf(now, limit), limitOf(before.get(account) ?? now, limit)];
    };
    const sharesOf = (state: MessageState | undefined): Share[] =>
      state
        ? [
            { account: state.account, name: state.account, limit: "globalParallelism" },
            { account: state.account, name: `${state.account} to ${endpointOf(state, lives)}`, limit: "parallelism" },
          ]
        : [];
    const touched = new Map<string, { share: Share; had: number }>();
    for (const { before: was, after } of changes.messages) {
      for (const share of sharesOf(after ?? was)) {
        const ids = this.#of(share);
        if (!touched.has(share.name)) touched.set(share.name, { share, had: ids.size });
        const id = after?.id ?? was?.id ?? "";
        if (!isSent(after) || isLease(was, after)) ids.delete(id);
      }
    }
    for (const { before: was, after } of changes.messages) {
      if (!isLease(was, after)) continue;
      // Within a batch in which the limit was changed, it may have begun before.
      for (const share of sharesOf(after)) if (limitsOf(share).every((limit) => limit < Infinity)) this.#of(share).add(after.id);
    }
    for (const { share, had } of touched.values()) {
      const most = Math.max(had, ...limitsOf(share));
      const has = this.#of(share).size;
      demand(has <= most, `an account has no more under way than it may: ${share.name} has ${has} of ${most}`);
    }
  }

  #of({ name }: Share): Set<string> {
    const ids = this.#underWay.get(name) ?? new Set();
    this.#underWay.set(name, ids);
    return ids;
  }
}

/** By what a delivery is counted, of its URL alone, whatever the row says of it. */
export function endpointOf({ id }: Pick<MessageState, "id">, lives: ReadonlyMap<string, Life>): string {
  const { origin, pathname } = new URL(lives.get(id)?.envelope.url ?? "");
  return origin + pathname;
}

const isSent = (state: MessageState | undefined): boolean => state !== undefined && state.leasedBy !== null;

const limitOf = (account: Account | undefined, limit: Share["limit"]): number => account?.limits?.[limit] ?? Infinity;
