import type { LineHead } from "../../core/decision/command.ts";
import { laneOf } from "../../core/admission/capacity.ts";
import type { AccountId, MessageId, MessageState } from "../../core/model/message.ts";

/** What is known of a line: its first messages, and whether these are all. */
type Head = { ids: Set<MessageId>; isWhole: boolean };

/** The first ones of the lines that a batch has looked at. */
export class Heads {
  readonly #heads = new Map<string, Head>();

  /** Those that were not looked at before. */
  unknown(heads: readonly LineHead[]): LineHead[] {
    return heads.filter(({ account, line }) => !this.#heads.has(laneOf(account, line)));
  }

  /** Takes what was found when these were looked for: fewer than were asked for are all there are. */
  learn(heads: readonly LineHead[], found: readonly MessageState[]): void {
    for (const { account, line } of heads) this.#heads.set(laneOf(account, line), { ids: new Set(), isWhole: true });
    for (const { account, line, id } of found) this.#of(account, line)?.ids.add(id);
    for (const { account, line, limit } of heads) {
      const head = this.#of(account, line);
      if (head) head.isWhole = head.ids.size < limit;
    }
  }

  /** One that comes to stand in a line of which all are known. */
  join({ account, line, id }: MessageState): void {
    const head = this.#of(account, line) ?? { ids: new Set(), isWhole: true };
    head.ids.add(id);
    this.#heads.set(laneOf(account, line ?? ""), head);
  }

  leave({ account, line, id }: MessageState): void {
    this.#of(account, line)?.ids.delete(id);
  }

  idsOf(account: AccountId, line: string): Iterable<MessageId> {
    return this.#of(account, line)?.ids ?? [];
  }

  /** Whether these are all that stand there. Undefined: nobody has looked. */
  isWhole(account: AccountId, line: string): boolean | undefined {
    return this.#of(account, line)?.isWhole;
  }

  #of(account: AccountId, line: string | null): Head | undefined {
    return this.#heads.get(laneOf(account, line ?? ""));
  }
}
