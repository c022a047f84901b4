import { spans } from "../core/values/limits.ts";
import type { Held, Millis } from "../core/model/message.ts";
import { withoutHold } from "../core/nodes/takeover.ts";
import type { Hold, Store } from "../store/store.ts";
import type { Clock } from "../clock/clock.ts";

/** Between two tries to give back. */
const pause: Millis = 1000;

/** `abortAll` ends all deliveries in flight without a report, and returns them. `resume` is called when the node may send again. */
type Parts = { hold: Hold; store: Store; clock: Clock; abortAll(): Held[]; resume(): void };

/**
 * Ends what a node is sending when it has been without its hold on its leases for 1.5 s: half a second later other nodes may send it.
 * See docs/decisions/0051.
 */
export class HoldGuard {
  readonly #parts: Parts;
  readonly #unsubscribe: () => void;
  readonly #returning = new Set<Promise<void>>();
  readonly #ended = new AbortController();
  /** How often the hold was lost or taken again. */
  #changes = 0;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#unsubscribe = parts.hold.onChange(() => void this.#changed());
  }

  /** Whether this node may send. Not while anything is given back: a second try could take back what was leased anew meanwhile. */
  get maySend(): boolean {
    return this.#parts.hold.isHeld() && this.#returning.size === 0;
  }

  /** Gives leases back as soon as the storage takes that, for as long as they last. */
  giveBack(held: readonly Held[]): void {
    const returning: Promise<void> = this.#giveBack(held).then(() => {
      this.#returning.delete(returning);
      if (this.maySend) this.#parts.resume();
    });
    this.#returning.add(returning);
  }

  /** Resolves when what is to be given back has been tried once more. */
  async end(): Promise<void> {
    this.#unsubscribe();
    this.#changes++;
    this.#ended.abort();
    await Promise.all(this.#returning);
  }

  async #changed(): Promise<void> {
    const { hold, clock, abortAll, resume } = this.#parts;
    const change = ++this.#changes;
    if (hold.isHeld()) return this.maySend ? resume() : undefined;
    await clock.sleep(clock.now() + Math.max(0, withoutHold - hold.lostFor()), this.#ended.signal);
    if (change === this.#changes) this.giveBack(abortAll());
  }

  async #giveBack(held: readonly Held[]): Promise<void> {
    const { store, clock } = this.#parts;
    const until = clock.now() + spans.lease;
    while (held.length > 0 && clock.now() < until) {
      const isLast = this.#ended.signal.aborted;
      try {
        return void (await store.execute("giveBack", { held }));
      } catch {
        if (isLast) return;
        await clock.sleep(clock.now() + pause, this.#ended.signal);
      }
    }
  }
}
