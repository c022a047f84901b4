import { AsyncLocalStorage } from "node:async_hooks";
import { Resolver, lookup as systemLookup } from "node:dns/promises";
import { readFile, stat } from "node:fs/promises";
import { networkInterfaces } from "node:os";
import type { AccountId, Millis } from "../../core/values/basics.ts";
import { elapsed } from "../../clock/clock.ts";

/**
 * Returns all addresses of a name, as text. Rejects like Node's lookup if the name is unknown. `account` is
 * the account that needs the name.
 */
export type Resolve = (hostname: string, account?: AccountId) => Promise<readonly string[]>;

/** The account for which a connection is being opened, and its name resolved. */
export const resolvingAccount = new AsyncLocalStorage<AccountId>();

type LookupMethods = {
  /**
   * The lookup of the operating system. It blocks one of two threads until the name servers respond, which
   * can take ten seconds or more.
   */
  lookUp: Resolve;
  /**
   * Returns the addresses that the name servers give. Returns none if the name servers know none or do not
   * respond. Blocks no thread.
   */
  queryServers: Resolve;
  /** Reports whether the system knows the name without a name server. */
  isInHostsFile(hostname: string): Promise<boolean>;
};

/** After this time, no request waits for the connection any longer. */
const maxWait: Millis = 10_000;

/**
 * Returns a resolver that a silent name server cannot block.
 *
 * The system's own lookup knows all sources of names of a machine, but each lookup blocks one of two threads.
 * A few names with silent servers would stop deliveries to all other names, of all accounts. The name servers
 * are therefore asked first, which blocks no thread. The system looks up only names for which the name
 * servers give no address: one at a time, with accounts in turn, so that only one thread is blocked
 * (docs/decisions/0057).
 */
export function createResolver({ lookUp, queryServers, isInHostsFile }: LookupMethods): Resolve {
  const lookUpShared = shareLookups(lookUp);
  const queryShared = shareLookups(queryServers);
  const slowLookups = new LookupQueue(lookUp);
  return async (hostname, account = "") => {
    if (isLoopbackName(hostname) || (await isInHostsFile(hostname))) return lookUpShared(hostname);
    const found = await queryShared(hostname);
    return found.length > 0 ? found : slowLookups.lookUp(hostname, account);
  };
}

/** A name that waits for its lookup. */
type WaitingName = { hostname: string; since: Millis; answer: Promise<readonly string[]> } & Omit<
  PromiseWithResolvers<readonly string[]>,
  "promise"
>;

/** Looks names up one after another: accounts take turns, and each account's oldest name is first. */
class LookupQueue {
  readonly #lookUp: Resolve;
  /** Waiting names by account. The first account has the next turn. An account without names is removed. */
  readonly #accounts = new Map<AccountId, Map<string, WaitingName>>();
  #isBusy = false;

  constructor(lookUp: Resolve) {
    this.#lookUp = lookUp;
  }

  lookUp(hostname: string, account: AccountId): Promise<readonly string[]> {
    const own = this.#accounts.get(account) ?? new Map<string, WaitingName>();
    const pending = own.get(hostname);
    if (pending) return pending.answer;
    const { promise: answer, ...ends } = Promise.withResolvers<readonly string[]>();
    own.set(hostname, { hostname, since: elapsed(), answer, ...ends });
    this.#accounts.set(account, own);
    if (!this.#isBusy) void this.#work();
    return answer;
  }

  async #work(): Promise<void> {
    this.#isBusy = true;
    for (let next = this.#takeNext(); next; next = this.#takeNext()) {
      const { hostname, since, reject } = next;
      if (elapsed() - since > maxWait) {
        reject(
          Object.assign(new Error(`the name servers of ${hostname} do not answer`), { code: "EAI_AGAIN" }),
        );
        continue;
      }
      try {
        const addresses = await this.#lookUp(hostname);
        for (const waiting of [next, ...this.#takeOthers(hostname)]) waiting.resolve(addresses);
      } catch (error) {
        for (const waiting of [next, ...this.#takeOthers(hostname)]) waiting.reject(error);
      }
    }
    this.#isBusy = false;
  }

  #takeNext(): WaitingName | undefined {
    const [first] = this.#accounts;
    if (!first) return undefined;
    const [account, names] = first;
    const [waiting] = names.values();
    this.#accounts.delete(account);
    if (waiting) names.delete(waiting.hostname);
    if (names.size > 0) this.#accounts.set(account, names);
    return waiting;
  }

  /** Returns other accounts' requests for the same name, which share the result. */
  #takeOthers(hostname: string): WaitingName[] {
    const found: WaitingName[] = [];
    for (const [account, names] of [...this.#accounts]) {
      const waiting = names.get(hostname);
      if (!waiting) continue;
      found.push(waiting);
      names.delete(hostname);
      if (names.size === 0) this.#accounts.delete(account);
    }
    return found;
  }
}

/** Reports whether a name means this machine, so that no name server is asked for it. */
export const isLoopbackName = (hostname: string): boolean => /(^|\.)localhost\.?$/i.test(hostname);

/** Returns a resolver in which concurrent requests for a name share one lookup. */
export function shareLookups(resolve: Resolve): Resolve {
  const running = new Map<string, Promise<readonly string[]>>();
  return (hostname, account) => {
    const pending = running.get(hostname);
    if (pending) return pending;
    const answer = resolve(hostname, account).finally(() => running.delete(hostname));
    running.set(hostname, answer);
    return answer;
  };
}

/**
 * How a short name is completed (resolv.conf). A name with fewer dots than `dots` is first tried with each
 * domain, and then without one. Any other name is first tried without a domain.
 */
export type SearchList = { domains: readonly string[]; dots: number };

/** Returns the search list of a resolv.conf. */
export function parseSearchList(text: string): SearchList {
  const lines = text.split("\n").map((line) => line.trim().split(/\s+/));
  const domains = lines.findLast(([word]) => word === "search" || word === "domain")?.slice(1) ?? [];
  const dots = lines
    .flatMap(([word, ...options]) => (word === "options" ? options : []))
    .findLast((option) => /^ndots:\d+$/.test(option));
  return {
    domains: domains.filter((domain) => domain !== "."),
    dots: Math.min(15, Number(dots?.slice("ndots:".length) ?? 1)),
  };
}

/** Returns the names that the system would try for a name, in order. */
export function listCandidates(hostname: string, { domains, dots }: SearchList): string[] {
  if (hostname.endsWith(".")) return [hostname];
  const completed = domains.map((domain) => `${hostname}.${domain}`);
  return hostname.split(".").length > dots ? [hostname, ...completed] : [...completed, hostname];
}

/** Returns the names that a hosts file lists, in lower case. */
export const parseHostsFile = (text: string): ReadonlySet<string> =>
  new Set(
    text.split("\n").flatMap((line) => (line.split("#")[0] ?? "").trim().toLowerCase().split(/\s+/).slice(1)),
  );

/** Returns a reader that reads a file again only if it has changed. An unreadable file counts as empty. */
function createFileReader<T>(path: string, read: (text: string) => T): () => Promise<T> {
  let cached: { version: string; value: T } | null = null;
  return async () => {
    const version = await stat(path).then(
      ({ mtimeMs, size, ino }) => `${mtimeMs} ${size} ${ino}`,
      () => "",
    );
    if (cached?.version !== version)
      cached = { version, value: read(await readFile(path, "utf8").catch(() => "")) };
    return cached.value;
  };
}

const hostsFile = process.platform === "win32" ? "C:\\Windows\\System32\\drivers\\etc\\hosts" : "/etc/hosts";

/** Returns a function that reports whether the hosts file of this machine lists a name. */
export function createHostsCheck(path = hostsFile): LookupMethods["isInHostsFile"] {
  const names = createFileReader(path, parseHostsFile);
  return async (hostname) => (await names()).has(hostname.toLowerCase().replace(/\.$/, ""));
}

type NameServers = { resolver: Resolver; search: SearchList };

/**
 * Returns a lookup that asks the name servers of the system, or `servers`, and completes short names as the
 * system does.
 */
export function createServerLookup(
  servers?: readonly string[],
  path = "/etc/resolv.conf",
): LookupMethods["queryServers"] {
  const makeServers = (text: string): NameServers => {
    const resolver = new Resolver({ timeout: 1_000, tries: 2 });
    if (servers) resolver.setServers(servers);
    return { resolver, search: parseSearchList(text) };
  };
  const current = createFileReader(path, makeServers);
  return async (hostname) => {
    const { resolver, search } = await current();
    for (const name of listCandidates(hostname, search)) {
      const { addresses, isSilent } = await queryAddresses(resolver, name);
      if (addresses.length > 0 || isSilent) return addresses;
    }
    return [];
  };
}

async function queryAddresses(
  resolver: Resolver,
  name: string,
): Promise<{ addresses: string[]; isSilent: boolean }> {
  let isSilent = false;
  const noAddresses = (error: NodeJS.ErrnoException): string[] => {
    isSilent ||= error.code === "ETIMEOUT";
    return [];
  };
  const [ipv4, ipv6] = await Promise.all([
    resolver.resolve4(name).catch(noAddresses),
    resolver.resolve6(name).catch(noAddresses),
  ]);
  const [first, second] = prefersIpv6() ? [ipv6, ipv4] : [ipv4, ipv6];
  const addresses = Array.from({ length: Math.max(first.length, second.length) }, (_, at) =>
    [first[at] ?? [], second[at] ?? []].flat(),
  );
  return { addresses: addresses.flat(), isSilent };
}

/** Reports whether this machine has a global IPv6 address, and therefore prefers IPv6 (RFC 6724). */
const prefersIpv6 = (): boolean =>
  Object.values(networkInterfaces())
    .flat()
    .some((one) => one !== undefined && one.family === "IPv6" && /^[23]/.test(one.address));

/** Looks a name up as the system does. Blocks a thread until the result is known. */
export async function lookUpWithSystem(hostname: string): Promise<readonly string[]> {
  const answers = await systemLookup(hostname, { all: true });
  return answers.map(({ address }) => address);
}
