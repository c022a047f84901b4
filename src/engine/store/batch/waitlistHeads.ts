import type { WaitlistHead } from "../../core/decision/command.ts";
import { laneName } from "../../core/admission/capacity.ts";
import type { AccountId, MessageId } from "../../core/values/basics.ts";
import type { MessageState } from "../../core/model/messageState.ts";
import type { UndoLog } from "./undoLog.ts";

/**
 * The messages that may be in a waitlist, as far as a batch knows them. The caller looks at each of them,
 * because it may have left.
 */
export type KnownWaitlist = {
  /** Stored messages from the head, in order. */
  stored: Set<MessageId>;
  /** Messages that the batch has put into the waitlist. They are behind all stored ones. */
  joined: Set<MessageId>;
  /** How many stored messages were requested. */
  requested: number;
  /** Whether all stored messages are known. */
  isWhole: boolean;
};

/** The waitlists of a batch: what it has loaded of them, and what it has added. */
export class WaitlistHeads {
  readonly #waitlists = new Map<string, KnownWaitlist>();
  readonly #undo: UndoLog;

  constructor(undo: UndoLog) {
    this.#undo = undo;
  }

  /** Returns each waitlist once, with the sum of the messages that are wanted of it beyond the known ones. */
  merge(heads: readonly WaitlistHead[]): WaitlistHead[] {
    const merged = new Map<string, WaitlistHead>();
    for (const head of heads) {
      const name = laneName(head.account, head.waitlist);
      const limit = merged.get(name)?.limit ?? this.find(head.account, head.waitlist).requested;
      merged.set(name, { ...head, limit: limit + head.limit });
    }
    return [...merged.values()];
  }

  /** Records the stored messages that were found. Fewer than were requested are the whole waitlist. */
  record(heads: readonly WaitlistHead[], found: readonly MessageState[]): void {
    const byName = Map.groupBy(found, ({ account, waitlist }) => laneName(account, waitlist ?? ""));
    for (const { account, waitlist, limit } of heads) {
      const messages = byName.get(laneName(account, waitlist)) ?? [];
      const known = this.find(account, waitlist);
      known.stored = new Set(messages.map(({ id }) => id));
      known.requested = limit;
      known.isWhole = messages.length < limit;
    }
  }

  /** Adds a message that the batch has put into a waitlist. */
  join({ account, waitlist, id }: MessageState): void {
    const known = this.find(account, waitlist ?? "");
    if (known.joined.has(id)) return;
    known.joined.add(id);
    this.#undo.pushSilently(() => known.joined.delete(id));
  }

  /** Removes a stored message that has left its waitlist, so that later commands need not look at it. */
  leave({ account, waitlist, id }: MessageState): void {
    this.#waitlists.get(laneName(account, waitlist ?? ""))?.stored.delete(id);
  }

  find(account: AccountId, waitlist: string): KnownWaitlist {
    const name = laneName(account, waitlist);
    let known = this.#waitlists.get(name);
    if (!known) {
      known = { stored: new Set(), joined: new Set(), requested: 0, isWhole: false };
      this.#waitlists.set(name, known);
    }
    return known;
  }
}
