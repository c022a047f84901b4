import type { WaitlistHead } from "../../core/decision/command.ts";
import { laneName } from "../../core/admission/capacity.ts";
import type { AccountId, MessageId, MessageState } from "../../core/model/message.ts";

/** What is known of a line: its first messages, and whether these are all. */
type KnownHead = { ids: Set<MessageId>; isWhole: boolean };

/** The first ones of the lines that a batch has looked at. */
export class WaitlistHeads {
  readonly #heads = new Map<string, KnownHead>();

  /** Those that were not looked at before. */
  pickUnknown(heads: readonly WaitlistHead[]): WaitlistHead[] {
    return heads.filter(({ account, waitlist }) => !this.#heads.has(laneName(account, waitlist)));
  }

  /** Takes what was found when these were looked for: fewer than were asked for are all there are. */
  record(heads: readonly WaitlistHead[], found: readonly MessageState[]): void {
    for (const { account, waitlist } of heads) this.#heads.set(laneName(account, waitlist), { ids: new Set(), isWhole: true });
    for (const { account, waitlist, id } of found) this.#find(account, waitlist)?.ids.add(id);
    for (const { account, waitlist, limit } of heads) {
      const head = this.#find(account, waitlist);
      if (head) head.isWhole = head.ids.size < limit;
    }
  }

  /** One that comes to stand in a line of which all are known. */
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

  /** Whether these are all that stand there. Undefined: nobody has looked. */
  isWhole(account: AccountId, waitlist: string): boolean | undefined {
    return this.#find(account, waitlist)?.isWhole;
  }

  #find(account: AccountId, waitlist: string | null): KnownHead | undefined {
    return this.#heads.get(laneName(account, waitlist ?? ""));
  }
}
