import type { WaitlistHead } from "../../core/decision/command.ts";
import { laneName } from "../../core/admission/capacity.ts";
import type { AccountId, MessageId, MessageState } from "../../core/model/message.ts";

/** The known head of a waitlist: its first messages, and whether these are all. */
type KnownHead = { ids: Set<MessageId>; isWhole: boolean };

/** The heads of the waitlists that a batch has read. */
export class WaitlistHeads {
  readonly #heads = new Map<string, KnownHead>();

  /** Returns the waitlists that were not read before. */
  pickUnknown(heads: readonly WaitlistHead[]): WaitlistHead[] {
    return heads.filter(({ account, waitlist }) => !this.#heads.has(laneName(account, waitlist)));
  }

  /**
   * Records the messages that were found. If a head has fewer messages than were requested, it is the whole
   * waitlist.
   */
  record(heads: readonly WaitlistHead[], found: readonly MessageState[]): void {
    for (const { account, waitlist } of heads)
      this.#heads.set(laneName(account, waitlist), { ids: new Set(), isWhole: true });
    for (const { account, waitlist, id } of found) this.#find(account, waitlist)?.ids.add(id);
    for (const { account, waitlist, limit } of heads) {
      const head = this.#find(account, waitlist);
      if (head) head.isWhole = head.ids.size < limit;
    }
  }

  /** Adds a message to a waitlist of which all messages are known. */
  join({ account, waitlist, id }: MessageState): void {
    const head = this.#find(account, waitlist) ?? { ids: new Set(), isWhole: true };
    head.ids.add(id);
    this.#heads.set(laneName(account, waitlist ?? ""), head);
  }

  leave({ account, waitlist, id }: MessageState): void {
    this.#find(account, waitlist)?.ids.delete(id);
  }

  listIds(account: AccountId, waitlist: string): Iterable<MessageId> {
    return this.#find(account, waitlist)?.ids ?? [];
  }

  /** Reports whether all messages of a waitlist are known. Returns undefined if it was not read. */
  isWhole(account: AccountId, waitlist: string): boolean | undefined {
    return this.#find(account, waitlist)?.isWhole;
  }

  #find(account: AccountId, waitlist: string | null): KnownHead | undefined {
    return this.#heads.get(laneName(account, waitlist ?? ""));
  }
}
