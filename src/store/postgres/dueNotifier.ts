import type { Millis } from "../../core/model/message.ts";

/**
 * Announces due times. Commits that notify wait for each other across all nodes, so announcements are sent
 * outside the batches, and few are sent. They are sent one at a time, and only if the others would not look
 * in time anyway. After an announcement of a future time, the others look at that time and then find whatever
 * is due later. So 1,000 leases per second cause one announcement per lease time.
 */
export class DueNotifier {
  readonly #notify: (at: Millis) => Promise<void>;
  /** When the other nodes will look next, as far as this node has announced it. */
  #notifiedFor: Millis | null = null;
  #next: Millis | null = null;
  #isSending = false;

  constructor(notify: (at: Millis) => Promise<void>) {
    this.#notify = notify;
  }

  /** Announces that something is due at `dueAt`, unless the others will look by then anyway. */
  notifyDue(dueAt: Millis, now: Millis): void {
    if (this.#notifiedFor !== null && now < this.#notifiedFor && this.#notifiedFor <= dueAt) return;
    this.#notifiedFor = dueAt;
    this.#next = Math.min(this.#next ?? Infinity, dueAt);
    if (!this.#isSending) void this.#send();
  }

  /**
   * Repeats the announcement on a new connection. It is unknown what was lost with the old one, so this
   * announces that something is due now.
   */
  repeat(): void {
    if (this.#notifiedFor === null) return;
    this.#notifiedFor = null;
    this.notifyDue(0, 0);
  }

  async #send(): Promise<void> {
    this.#isSending = true;
    try {
      for (let at = this.#next; at !== null; at = this.#next) {
        this.#next = null;
        await this.#notify(at);
      }
    } catch {
      // The connection is lost. `repeat` is called when there is a new one.
    }
    this.#isSending = false;
  }
}
