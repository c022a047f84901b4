import { readLaneAccount } from "../core/admission/capacity.ts";
import type { AccountId } from "../core/values/basics.ts";

/**
 * The maximum number of hosts noted per account. The waitlists of further hosts are served when they are due.
 */
const maxHosts = 10_000;
/** The maximum number of waitlists that one command wakes. */
const maxWokenAtOnce = 256;

type Denied = { hosts: Set<string>; ended: number; isWaking: boolean };

/**
 * Hosts whose messages wait because their account uses its whole share of this node. Each delivery that ends
 * wakes the waitlist of one such host. A host of the same account comes first, then a host of an account that
 * may use the capacity. Capacity is therefore never idle while messages wait for it.
 */
export class WaitingHosts {
  readonly #wake: (account: AccountId, hosts: readonly string[]) => Promise<unknown>;
  readonly #byAccount = new Map<AccountId, Denied>();

  /** `wake` makes the store look at the waitlists of these hosts. */
  constructor(wake: (account: AccountId, hosts: readonly string[]) => Promise<unknown>) {
    this.#wake = wake;
  }

  /** Reports whether no host waits. */
  get isEmpty(): boolean {
    return this.#byAccount.size === 0;
  }

  /** Notes a lane (`laneName`) that got no delivery. */
  note(lane: string): void {
    const account = readLaneAccount(lane);
    const denied = this.#byAccount.get(account) ?? { hosts: new Set(), ended: 0, isWaking: false };
    this.#byAccount.set(account, denied);
    if (denied.hosts.size < maxHosts) denied.hosts.add(lane.slice(account.length + 1));
  }

  /**
   * Reports that a delivery of an account has ended. `mayTake` reports whether an account may begin one more
   * delivery.
   */
  async ended(endedAccount: AccountId, mayTake: (account: AccountId) => boolean): Promise<void> {
    const account = this.#byAccount.has(endedAccount) ? endedAccount : this.#byAccount.keys().find(mayTake);
    const denied = account === undefined ? undefined : this.#byAccount.get(account);
    if (account === undefined || !denied) return;
    denied.ended++;
    if (denied.isWaking) return;
    denied.isWaking = true;
    while (denied.ended > 0 && denied.hosts.size > 0) {
      const hosts = [...denied.hosts.values().take(Math.min(denied.ended, maxWokenAtOnce))];
      denied.ended = Math.max(0, denied.ended - hosts.length);
      for (const host of hosts) denied.hosts.delete(host);
      await this.#wake(account, hosts);
    }
    denied.isWaking = false;
    denied.ended = 0;
    if (denied.hosts.size === 0) this.#byAccount.delete(account);
  }
}
