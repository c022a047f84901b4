import type { Account, MessageState } from "../../src/core/message.ts";
import type { Case, Demand } from "./batch.ts";
import { isLease } from "./batch.ts";
import type { Tables } from "./storage.ts";

type Court = { demand: Demand; tables: Tables };

/**
 * What an account may have under way: of the deliveries that began since it has a limit, never more at once than that, on
 * all nodes together. Counted from the leases alone, whatever the rows say of being counted.
 */
export class Allowances {
  /** Messages that are being sent, and were counted when that began, by account. */
  readonly #underWay = new Map<string, Set<string>>();

  judge({ changes }: Case, { demand, tables }: Court): void {
    const before = new Map(changes.accounts.map(({ before }) => [before?.id, before]));
    const touched = new Map<string, number>();
    for (const { before: was, after } of changes.messages) {
      const { account, id } = after ?? was ?? { account: "", id: "" };
      const ids = this.#underWay.get(account) ?? new Set();
      this.#underWay.set(account, ids);
      if (!touched.has(account)) touched.set(account, ids.size);
      if (!isSent(after) || isLease(was, after)) ids.delete(id);
    }
    for (const { before: was, after } of changes.messages) {
      if (!isLease(was, after)) continue;
      const now = tables.accounts.get(after.account);
      // Within a batch in which the limit was changed, it may have begun before.
      if ([now, before.get(after.account) ?? now].every((account) => limitOf(account) < Infinity)) {
        this.#underWay.get(after.account)?.add(after.id);
      }
    }
    for (const [account, had] of touched) {
      const now = tables.accounts.get(account);
      const most = Math.max(had, limitOf(now), limitOf(before.get(account) ?? now));
      const has = this.#underWay.get(account)?.size ?? 0;
      demand(has <= most, `an account has no more under way than it may: ${account} has ${has} of ${most}`);
    }
  }
}

const isSent = (state: MessageState | undefined): boolean => state !== undefined && state.leasedBy !== null;

const limitOf = (account: Account | undefined): number => account?.limits?.globalParallelism ?? Infinity;
