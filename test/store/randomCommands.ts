import type { CommandName, InputOf } from "../../src/core/commands.ts";
import { spans } from "../../src/core/limits.ts";
import type { Delivery, Letter, Millis } from "../../src/core/message.ts";
import { accountNamed, bytes, callbackTo, letterTo, outcomeOf } from "./world.ts";

/** A command with what it is given: plain data, the same for every store. */
export type Given = { [N in CommandName]: { name: N; input: InputOf<N> } }[CommandName];

const accounts = ["a", "b"];
const hosts = ["https://one.example/x", "https://two.example:8443/y?z=1", "https://three.example/"];
const retention = { log: 400_000, deadLetters: 300_000 };

/**
 * Commands by chance, from what is known of earlier answers: often with an effect, sometimes stale, doubled, aimed at
 * another account or at nothing.
 */
export class RandomCommands {
  readonly #random: () => number;
  readonly #messageIds: string[] = [];
  readonly #dlqIds: string[] = [];
  #running: Delivery[] = [];
  readonly #past: Delivery[] = [];

  constructor(random: () => number) {
    this.#random = random;
  }

  /** What is to run together. The time is the same for all. */
  batch(now: Millis): Given[] {
    return Array.from({ length: 1 + this.#below(5) }, () => this.#one(now));
  }

  /** How far the clock goes before the next batch. */
  pause(): Millis {
    return this.#of([0, 1, 20, 900, spans.lineCheck, 12_500, spans.lease, 160_000]);
  }

  learn({
    messageIds,
    dlqIds,
    deliveries,
  }: {
    messageIds: readonly string[];
    dlqIds: readonly string[];
    deliveries: readonly Delivery[];
  }): void {
    this.#messageIds.push(...messageIds);
    this.#dlqIds.push(...dlqIds);
    this.#running.push(...deliveries);
    this.#past.push(...deliveries);
  }

  #one(now: Millis): Given {
    const account = this.#of(accounts);
    const kind = this.#below(100);
    if (kind < 30) return { name: "publish", input: { account: this.#rarely() ? "none" : account, letters: this.#letters(now) } };
    if (kind < 45) return { name: "claim", input: { limit: 1 + this.#below(8) } };
    if (kind < 75) return this.#settle();
    if (kind < 79) return { name: "renew", input: { held: this.#held() } };
    if (kind < 82) return { name: "giveBack", input: { held: this.#held() } };
    if (kind < 84) return { name: "reclaim", input: { node: this.#of(["nod_a", "nod_b"]), limit: 1 + this.#below(4) } };
    if (kind < 88) return { name: "cancel", input: { account, messageIds: this.#some(this.#messageIds) } };
    return this.#seldom(account, now);
  }

  #seldom(account: string, now: Millis): Given {
    const dlqIds = this.#some(this.#dlqIds);
    const given: Given[] = [
      {
        name: "retryDeadLetters",
        input: { account, dlqIds, logRetention: retention.log, overrides: this.#rarely() ? { retries: 1e9 } : { retries: 1 } },
      },
      { name: "deleteDeadLetters", input: { account, dlqIds, logRetention: retention.log } },
      { name: "createAccount", input: accountNamed(account) },
      { name: "rotateKeys", input: { account: this.#rarely() ? "none" : account } },
      { name: "expire", input: { account, retention, now, limit: this.#of([1, 3, 100]) } },
    ];
    return this.#of(given);
  }

  #settle(): Given {
    const delivery = this.#rarely() ? this.#past.at(-1 - this.#below(10)) : this.#taken();
    if (!delivery) return { name: "claim", input: { limit: 5 } };
    const status = this.#of([200, 200, 204, 404, 489, 500, 503, null]);
    const headers = this.#of([[], [["Retry-After", "3"]], [["Svc-Nonretryable-Error", "true"]]] as const);
    return {
      name: "settle",
      input: outcomeOf(delivery, { status, headers, error: status === null ? "no answer" : null, body: bytes(`s${status}\0`) }),
    };
  }

  #taken(): Delivery | undefined {
    const delivery = this.#running[this.#below(this.#running.length)];
    this.#running = this.#running.filter((one) => one !== delivery);
    return delivery;
  }

  #held() {
    const deliveries = [...this.#some(this.#running), ...(this.#rarely() ? this.#past.slice(-2) : [])];
    return deliveries.map(({ message: { account, id }, attempt }) => ({ account, messageId: id, attempt }));
  }

  #letters(now: Millis): Letter[] {
    return Array.from({ length: 1 + this.#below(4) }, () => {
      const at = this.#of([
        { delay: null },
        { delay: null },
        { delay: 1 + this.#below(20_000) },
        { notBefore: now - 5 + this.#below(3_000) },
      ]);
      return letterTo({
        ...{ url: this.#of(hosts), brand: this.#of(["svc", "upstash"] as const), body: bytes("b".repeat(this.#below(40))), ...at },
        ...{
          deduplication: this.#rarely() ? `d${this.#below(4)}` : null,
          retries: this.#of([null, 0, 0, 1, 2_000]),
          labels: this.#some(["l", "m\ud800"]),
        },
        callback: this.#rarely() ? callbackTo(this.#of(hosts)) : null,
        failureCallback: this.#rarely() ? callbackTo(this.#of(hosts)) : null,
      });
    });
  }

  #some<T>(list: readonly T[]): T[] {
    return list.length === 0 ? [] : Array.from({ length: this.#below(4) }, () => this.#of(list.slice(-12)));
  }

  #rarely(): boolean {
    return this.#random() < 0.12;
  }

  #below(count: number): number {
    return Math.floor(this.#random() * count);
  }

  #of<T>(list: readonly T[]): T {
    const one = list[this.#below(list.length)];
    if (one === undefined) throw new Error("nothing to choose from");
    return one;
  }
}
