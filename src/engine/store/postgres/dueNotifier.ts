import type { Millis } from "../../core/values/basics.ts";

/**
 * Announces due times to the other nodes. Commits that notify wait for each other across all nodes.
 * Announcements are therefore sent outside the batches, one at a time, and only if the other nodes would not
 * check in time without them. After an announcement of a future time, the other nodes check at that time, and
 * then find later due times themselves. 1,000 leases per second therefore cause one announcement per lease
 * time.
 */
export class DueNotifier {
  readonly #notify: (at: Millis) => Promise<void>;
  /** When the other nodes will check next, as far as this node has announced it. */
  #notifiedFor: Millis | null = null;
  #next: Millis | null = null;
  #isSending = false;

  constructor(notify: (at: Millis) => Promise<void>) {
    this.#notify = notify;
  }

  /** Announces that something is due at `dueAt`, unless the other nodes will check by then without it. */
  notifyDue(dueAt: Millis, now: Millis): void {
    if (this.#notifiedFor !== null && now < this.#notifiedFor && this.#notifiedFor <= dueAt) return;
    this.#notifiedFor = dueAt;
    this.#next = Math.min(this.#next ?? Infinity, dueAt);
    if (!this.#isSending) void this.#send();
  }

  /**
   * Repeats the announcement on a new connection. It is unknown which announcements were lost with the old
   * connection, so this announces that something is due now.
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
      // The connection is lost. `repeat` is called on the next connection.
    }
    this.#isSending = false;
  }
}
