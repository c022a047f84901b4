import type { Delivery } from "../../../src/engine/core/model/delivery.ts";
import type { AssertHolds, ObservedBatch } from "./observedBatch.ts";

/** How an attempt must be handed over. `either`: the declaration changed at the moment of its lease. */
type Way = "sent" | "pulled" | "either";

/**
 * Checks where each attempt goes. An attempt that was leased while its origin was pulled goes to a puller.
 * Any other attempt is sent. No two deliveries have the same token.
 */
export class HandoverChecker {
  /** The hosts of the pulled origins of each account. */
  readonly #declared = new Map<string, ReadonlySet<string>>();
  /** When a host of an account was last declared or removed. */
  readonly #changedAt = new Map<string, number>();
  readonly #ways = new Map<string, Way>();
  /** For how long the pullers hold the attempts that were handed over to them. Null: it was sent. */
  readonly #leases = new Map<string, number | null>();
  readonly #withToken = new Set<string>();

  check({ changes, result }: ObservedBatch, now: number): void {
    for (const { before, after } of changes.accounts) {
      const account = (after ?? before)?.id ?? "";
      const earlier = this.#declared.get(account) ?? new Set<string>();
      const hosts = new Set((after?.pulled?.origins ?? []).map((origin) => new URL(origin).host));
      for (const host of [...earlier, ...hosts])
        if (earlier.has(host) !== hosts.has(host)) this.#changedAt.set(`${account} ${host}`, now);
      this.#declared.set(account, hosts);
    }
    for (const { message, attempt } of result.deliveries) {
      const { host } = new URL(message.url);
      const isPulled = this.#declared.get(message.account)?.has(host) === true;
      const isUnclear = this.#changedAt.get(`${message.account} ${host}`) === now;
      this.#ways.set(toKey(message.id, attempt), isUnclear ? "either" : isPulled ? "pulled" : "sent");
    }
  }

  /** Called when an attempt is sent, or given to a puller that holds it for the time of a lease. */
  begin({ message, attempt, pullKey }: Delivery, lease: number | null, assertHolds: AssertHolds): void {
    const key = toKey(message.id, attempt);
    const way = this.#ways.get(key);
    assertHolds(
      way === "either" || way === (lease === null ? "sent" : "pulled"),
      `an attempt is pulled if its origin is, and else sent: ${key} of ${message.url}`,
    );
    this.#leases.set(key, lease);
    if (message.ackKey === undefined && pullKey === undefined) return;
    assertHolds(!this.#withToken.has(key), `no two deliveries have the same attempt token: ${key}`);
    this.#withToken.add(key);
  }

  /** Returns for how long a puller holds an attempt. Null: it was sent. Undefined: it was not handed over. */
  readLease = (messageId: string, attempt: number): number | null | undefined =>
    this.#leases.get(toKey(messageId, attempt));
}

const toKey = (messageId: string, attempt: number): string => `${messageId} #${attempt}`;
