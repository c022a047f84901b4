import type { RunningOperation } from "../operation.ts";
import type { AccountOutbox } from "./outbox.ts";
import { lookInterval, maxOutboxes, maxRelays } from "./outbox.ts";
import type { RelayParts } from "./relay.ts";
import { Relay } from "./relay.ts";

type Worker = NonNullable<RunningOperation["worker"]>;

/** Runs a relay for each outbox. It reads one small index when an account changes, and nothing otherwise. */
export class Relays implements Worker {
  readonly #parts: RelayParts;
  readonly #relays = new Map<string, { relay: Relay; text: string }>();
  /** Relays that still end. No other one starts for the same outbox before. */
  readonly #ending = new Map<string, Promise<void>>();
  readonly #end = new AbortController();
  #stopListening: () => void = () => undefined;
  #isChanged = true;
  #wake = new AbortController();
  #loop: Promise<void> = Promise.resolve();

  constructor(parts: RelayParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#stopListening = this.#parts.store.onAccounts(() => this.#look());
    this.#loop = this.#run();
  }

  async stop(): Promise<void> {
    this.#stopListening();
    this.#end.abort();
    this.#wake.abort();
    await this.#loop;
    for (const [key, { relay }] of this.#relays) this.#stop(key, relay);
    await Promise.all(this.#ending.values());
  }

  #look(): void {
    this.#isChanged = true;
    this.#wake.abort();
  }

  async #run(): Promise<void> {
    const { clock, isShared, logFailure } = this.#parts;
    while (!this.#end.signal.aborted) {
      this.#wake = new AbortController();
      this.#isChanged = false;
      let next = isShared ? lookInterval : Infinity;
      try {
        await this.#update();
      } catch (error) {
        logFailure("outboxes cannot be read; retrying in 5 s", error);
        next = 5_000;
      }
      if (!this.#isChanged && !this.#end.signal.aborted)
        await clock.sleep(clock.now() + next, this.#wake.signal);
    }
  }

  /** Starts the relays of new outboxes, and stops those of outboxes that have changed or are gone. */
  async #update(): Promise<void> {
    const settings = await this.#readSettings();
    const texts = new Map(settings.map((one) => [toKey(one), JSON.stringify(one)]));
    const old = [...this.#relays].filter(([key, { text }]) => texts.get(key) !== text);
    for (const [key, { relay }] of old) this.#stop(key, relay);
    for (const one of settings) {
      const key = toKey(one);
      if (this.#relays.has(key) || this.#ending.has(key) || this.#end.signal.aborted) continue;
      const relay = new Relay(this.#parts, one);
      this.#relays.set(key, { relay, text: texts.get(key) ?? "" });
      relay.start();
    }
  }

  /** Stops a relay without waiting for it, so that a slow database delays only its own outbox. */
  #stop(key: string, relay: Relay): void {
    this.#relays.delete(key);
    const end = relay.stop().finally(() => {
      this.#ending.delete(key);
      this.#look();
    });
    this.#ending.set(key, end);
  }

  async #readSettings(): Promise<AccountOutbox[]> {
    const { read } = this.#parts.store;
    const states = await read.allOutboxes(Number.MAX_SAFE_INTEGER, maxRelays);
    const accounts = await Promise.all(
      [...new Set(states.map(({ account }) => account))].map((id) => read.account(id)),
    );
    return accounts.flatMap((account) => {
      if (!account || account.deletedAt !== undefined) return [];
      const { id, allowedHosts = null, outboxes = [] } = account;
      return outboxes.slice(0, maxOutboxes).map((setting) => ({ account: id, allowedHosts, setting }));
    });
  }
}

const toKey = ({ account, setting }: AccountOutbox): string => `${account} ${setting.name}`;
