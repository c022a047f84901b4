import type { Retention } from "../core/retention.ts";
import type { Millis } from "../core/message.ts";
import type { Store } from "../store/store.ts";
import type { Clock } from "./clock.ts";

/** Something the server does by itself. It is not called without need: `nextAt` says when there may be something to do. */
export type Duty = { name: string; nextAt(): Promise<Millis>; run(): Promise<void> };

/** Between two turns of a duty there is at least so much time. */
const shortestPause = 10 * 60 * 1000;
const afterTrouble = 60 * 1000;
const expireLimit = 500;

/** Does all duties, each when its time has come. A duty that fails is tried again; it never ends the others. */
export class Timers {
  readonly #duties: readonly Duty[];
  readonly #clock: Clock;
  readonly #trouble: (what: string, error: unknown) => void;
  readonly #end = new AbortController();
  #loops: Promise<void>[] = [];

  constructor(parts: { duties: readonly Duty[]; clock: Clock; trouble: (what: string, error: unknown) => void }) {
    this.#duties = parts.duties;
    this.#clock = parts.clock;
    this.#trouble = parts.trouble;
  }

  start(): void {
    this.#loops = this.#duties.map((duty) => this.#loop(duty));
  }

  /** Ends after the turn that is under way. */
  async stop(): Promise<void> {
    this.#end.abort();
    await Promise.all(this.#loops);
  }

  async #loop(duty: Duty): Promise<void> {
    let earliest = this.#clock.now();
    while (!this.#end.signal.aborted) {
      try {
        const at = Math.max(earliest, await duty.nextAt());
        await this.#clock.sleep(at, this.#end.signal);
        if (this.#end.signal.aborted) return;
        await duty.run();
        earliest = this.#clock.now() + shortestPause;
      } catch (error) {
        this.#trouble(`${duty.name} failed; trying again in a minute`, error);
        await this.#clock.sleep(this.#clock.now() + afterTrouble, this.#end.signal);
      }
    }
  }
}

/** Removes history that is past its time, some hundred rows per transaction, so that it never holds anybody up. */
export function retentionDuty({ store, clock, retention }: { store: Store; clock: Clock; retention: Retention }): Duty {
  return {
    name: "retention",
    nextAt: async () => {
      const accounts = await store.read.accounts();
      const times = await Promise.all(accounts.map(({ id }) => store.read.nextExpiryAt(id, retention)));
      // What is made from now on is not past its time before the shortest retention has passed.
      const none = clock.now() + Math.min(retention.log, retention.deadLetters);
      return times.reduce<Millis>((least, at) => Math.min(least, at ?? none), none);
    },
    run: async () => {
      for (const { id: account } of await store.read.accounts()) {
        let more = true;
        while (more) ({ more } = await store.execute("expire", { account, retention, now: clock.now(), limit: expireLimit }));
      }
    },
  };
}
