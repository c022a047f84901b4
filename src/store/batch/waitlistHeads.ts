import type { WaitlistHead } from "../../core/decision/command.ts";
import { laneName } from "../../core/admission/capacity.ts";
import type { AccountId, MessageId, MessageState } from "../../core/model/message.ts";

/**
 * The known head of a waitlist: its first messages, whether these are all, and how many were requested in
 * all.
 */
type KnownHead = { ids: Set<MessageId>; isWhole: boolean; requested: number };

/** The heads of the waitlists that a batch has read. */
export class WaitlistHeads {
  readonly #heads = new Map<string, KnownHead>();

  /** Returns each waitlist once, with the sum of the messages that are wanted of it beyond the known ones. */
  merge(heads: readonly WaitlistHead[]): WaitlistHead[] {
    const merged = new Map<string, WaitlistHead>();
    for (const head of heads) {
      const name = laneName(head.account, head.waitlist);
      const others = merged.get(name);
      const more = head.limit - this.requested(head.account, head.waitlist);
      merged.set(name, { ...head, limit: others ? others.limit + more : head.limit });
    }
    return [...merged.values()];
  }

  /**
   * Records the messages that were found. If a head has fewer messages than were requested, it is the whole
   * waitlist.
   */
  record(heads: readonly WaitlistHead[], found: readonly MessageState[]): void {
    for (const { account, waitlist, limit } of heads)
      this.#heads.set(laneName(account, waitlist), { ids: new Set(), isWhole: true, requested: limit });
    for (const { account, waitlist, id } of found) this.#find(account, waitlist)?.ids.add(id);
    for (const { account, waitlist, limit } of heads) {
      const head = this.#find(account, waitlist);
      if (head) head.isWhole = head.ids.size < limit;
    }
  }

  /** Adds a message to a waitlist of which all messages are known. */
  join({ account, waitlist, id }: MessageState): void {
    const head = this.#find(account, waitlist) ?? { ids: new Set(), isWhole: true, requested: 0 };
    head.ids.add(id);
    this.#heads.set(laneName(account, waitlist ?? ""), head);
  }

  leave({ account, waitlist, id }: MessageState): void {
    this.#find(account, waitlist)?.ids.delete(id);
  }

  listIds(account: AccountId, waitlist: string): Iterable<MessageId> {
    return this.#find(account, waitlist)?.ids ?? [];
  }

  /** Returns how many messages of a waitlist were requested. */
  requested(account: AccountId, waitlist: string): number {
    return this.#find(account, waitlist)?.requested ?? 0;
  }

  /** Reports whether all messages of a waitlist are known. Returns undefined if it was not read. */
  isWhole(account: AccountId, waitlist: string): boolean | undefined {
    return this.#find(account, waitlist)?.isWhole;
  }

  #find(account: AccountId, waitlist: string | null): KnownHead | undefined {
    return this.#heads.get(laneName(account, waitlist ?? ""));
  }
}
