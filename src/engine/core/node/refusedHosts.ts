import { BoundedMap } from "../caches/boundedMap.ts";
import type { AccountId, Millis } from "../values/basics.ts";
import type { FindHostRefusal, RefusedHost } from "../values/refusedHost.ts";
import { parseUrl } from "../values/url.ts";

/** The accounts, and the hosts of each, that a node remembers. */
const maxAccounts = 1_000;
const maxHosts = 20;

/** A host with its port, and when an account has published to it: first and last, as far as it is known. */
type Noted = { host: string; since: Millis; last: Millis };

type Refused = { host: string; since: Millis; refused: RefusedHost };

/** Returns a host without its port. */
export const toHostname = (host: string): string => parseUrl(`http://${host}/`)?.hostname ?? host;

/**
 * The hosts to which accounts have published although their addresses may not be called. A node remembers
 * what it was asked to publish, so it also knows hosts to which nothing was sent yet.
 */
export class RefusedHosts {
  readonly #accounts = new BoundedMap<AccountId, Map<string, Noted>>(maxAccounts);

  /** Adds a host, and forgets the one that was added longest ago if there are many. */
  note(account: AccountId, host: string, now: Millis): void {
    const hosts = this.#accounts.get(account) ?? new Map<string, Noted>();
    const since = hosts.get(host)?.since ?? now;
    hosts.delete(host);
    const [oldest] = hosts.keys();
    if (hosts.size >= maxHosts && oldest !== undefined) hosts.delete(oldest);
    hosts.set(host, { host, since, last: now });
    this.#accounts.set(account, hosts);
  }

  /** Returns the hosts to which an account has published after a time, and that are still refused. */
  list(account: AccountId, { after, find }: { after: Millis; find: FindHostRefusal }): Refused[] {
    return [...(this.#accounts.get(account)?.values() ?? [])].flatMap(({ host, since, last }): Refused[] => {
      const refused = last > after ? find(toHostname(host)) : null;
      return refused ? [{ host, since, refused }] : [];
    });
  }
}
