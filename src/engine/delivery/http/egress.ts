import { BlockList, isIP, type LookupFunction, type Socket } from "node:net";
import { callbackify } from "node:util";
import type { buildConnector } from "undici";
import type { AccountId, Millis } from "../../core/values/basics.ts";
import type { FindHostRefusal, OnRefusedHost } from "../../core/values/refusedHost.ts";
import { createNameCheck, parseAllowedName } from "./allowedNames.ts";
import { createConnector, type EgressCertificates } from "./connector.ts";
import { openSocket } from "./plainSocket.ts";
import type { Resolve } from "./dns.ts";
import {
  createResolver,
  createServerLookup,
  isLoopbackName,
  createHostsCheck,
  lookUpWithSystem,
  resolvingAccount,
  shareLookups,
} from "./dns.ts";
import type { ForwardProxy } from "./tunnel.ts";
import { BoundedMap } from "../../core/caches/boundedMap.ts";

/** Decides which addresses may be called. All requests that leave the server use its connector. */
export type Egress = {
  /**
   * Reports whether an IP address may be called. Returns false for anything that is not an IP address. With
   * `name`, the name in a URL that has the address, also reports true if the rules allow the name.
   */
  mayCall(address: string, name?: string): boolean;
  /**
   * Returns why the server will not call a host; null if it may. Without a lookup, only addresses, loopback
   * names, and names whose last lookup was refused are known.
   */
  findHostRefusal: FindHostRefusal;
  /**
   * Returns the entry of WAYPOST_EGRESS_ALLOW that would allow a refused address of a host; null if allowing
   * it is never advised. It is for the operator, because it shows what kind of address a name has.
   */
  findAllowEntry(address: string, host: string): string | null;
  /**
   * Returns a connector that opens sockets for `HttpConnection`. The connector resolves a name once per
   * connection. If any address of the name may not be called, it calls none. Otherwise it calls one of
   * exactly these addresses, so changing the name in between has no effect.
   *
   * It uses a proxy only if `EgressOptions` names one, and ignores `HTTPS_PROXY` and similar variables. A
   * proxy resolves the name itself, so only addresses and loopback names in the URL are refused.
   */
  connector(connectTimeout: Millis): buildConnector.connector;
  /**
   * Opens a connection for another protocol than HTTP, by the same rules. Rejects if there is a proxy, which
   * carries HTTP alone.
   */
  open(target: PlainTarget): Promise<Socket>;
  /** Authorities that are trusted in addition to those of Node.js, in PEM form. */
  readonly authorities: readonly string[];
};

/** Where a connection leads that is not for HTTP, and the account that needs it. */
export type PlainTarget = { host: string; port: number; account: AccountId; timeout: Millis };

/**
 * `allow` lists networks (`10.0.0.0/8`, `::1/128`) and addresses that may be called although they are not
 * public, and names (`app.internal`, `*.internal`) that may have such addresses. Loopback, link-local and
 * metadata addresses are only allowed by an address or a network, so that a record of an allowed name cannot
 * lead there. Without `proxy`, connections are direct.
 */
export type EgressOptions = {
  allow: readonly string[];
  resolve?: Resolve;
  certificates?: EgressCertificates;
  proxy?: ForwardProxy | null;
  /** Called each time that a connection is refused because of its address. */
  onRefusal?: OnRefusedHost;
};

/**
 * Thrown if a connection was refused because of its address. The text may be shown to the publisher. It
 * contains no address from a name server, because internal names are not public.
 */
export class EgressRefusal extends Error {
  /** `allow`: the entry of WAYPOST_EGRESS_ALLOW that would allow the host, or null. */
  constructor(address: string, hostname: string, allow: string | null) {
    const isKnown = address === hostname || isLoopbackName(hostname);
    const subject = address === hostname ? address : isKnown ? `${address} of ${hostname}` : `of ${hostname}`;
    const advice = allow === null ? neverAllowedAdvice : `allow it with WAYPOST_EGRESS_ALLOW=${allow}`;
    super(`address ${subject} is not public: ${isKnown ? advice : adviseOperator(allow)}`);
    this.name = "EgressRefusal";
  }
}

const adviseOperator = (allow: string | null): string =>
  "the operator of the server can look it up, and allow " +
  (allow === null
    ? "it with WAYPOST_EGRESS_ALLOW"
    : `the name with WAYPOST_EGRESS_ALLOW=${allow}; a loopback address needs its own entry`);

const neverAllowedAdvice = "it is a link-local or metadata address, which is refused";

/**
 * Returns an egress that allows public addresses and those in `allow`. Throws an Error that names a malformed
 * entry.
 */
export function createEgress({
  allow,
  resolve,
  certificates = noCertificates,
  proxy = null,
  onRefusal,
}: EgressOptions): Egress {
  const { mayCall, mayCallLoopback, findNameEntry, findHostEntry } = createRules(allow);
  const resolveOnce = resolve
    ? shareLookups(resolve)
    : createResolver({
        lookUp: lookUpWithSystem,
        queryServers: createServerLookup(),
        isInHostsFile: createHostsCheck(),
      });
  // Names whose last lookup returned a forbidden address, each with that address.
  const refused = new BoundedMap<string, string>(1_000);
  // Addresses that the rules allow. The rules never change.
  const callable = new BoundedMap<string, true>(1_000);
  const findHostRefusal: FindHostRefusal = (host) => {
    if (callable.get(host)) return null;
    const address = host.replace(/^\[|\]$/g, "");
    if (isIP(address) !== 0) {
      if (!mayCall(address)) return { address, allow: findAllowEntry(address), isResolved: false };
      callable.set(host, true);
      return null;
    }
    if (isLoopbackName(host) && !mayCallLoopback())
      return { address: host, allow: loopbackNetworks, isResolved: false };
    const denied = refused.get(host);
    return denied === undefined
      ? null
      : { address: denied, allow: findNameEntry(denied, host), isResolved: true };
  };
  const resolveAllowed = async (hostname: string): Promise<LookupAnswer[]> => {
    const addresses = await resolveOnce(hostname, resolvingAccount.getStore());
    const denied = addresses.find((address) => !mayCall(address, hostname));
    if (denied !== undefined) {
      refused.renew(hostname, denied);
      const allow = findNameEntry(denied, hostname);
      onRefusal?.(hostname, { address: denied, allow, isResolved: true });
      throw new EgressRefusal(denied, hostname, allow);
    }
    refused.delete(hostname);
    return toAnswers(hostname, addresses);
  };
  // The operator has chosen the proxy, so it may have any address.
  const resolveProxy = async (hostname: string): Promise<LookupAnswer[]> =>
    toAnswers(hostname, await resolveOnce(hostname));
  const refuse = (hostname: string): EgressRefusal | null => {
    const [first = ""] = loopback;
    const isAddress = isIP(hostname) !== 0;
    const isRefused = isAddress
      ? !mayCall(hostname)
      : proxy !== null && isLoopbackName(hostname) && !mayCallLoopback();
    if (!isRefused) return null;
    const address = isAddress ? hostname : first;
    const allow = findAllowEntry(address);
    onRefusal?.(hostname, { address, allow, isResolved: false });
    return new EgressRefusal(address, hostname, allow);
  };
  const lookup = toLookupFunction(proxy ? resolveProxy : resolveAllowed);
  return {
    ...{ mayCall, findHostRefusal, findAllowEntry: findHostEntry },
    connector: (timeout) => createConnector({ refuse, lookup, timeout, certificates, proxy }),
    open: (target) => openPlain(target, lookup, proxy ? noPlain : refuse(target.host)),
    authorities: certificates.authorities,
  };
}

const noPlain = new Error("a proxy carries only HTTP");

/** Opens a connection that is not for HTTP, unless it is refused. */
async function openPlain(
  { account, ...target }: PlainTarget,
  lookup: LookupFunction,
  refusal: Error | null,
): Promise<Socket> {
  if (refusal) throw refusal;
  return resolvingAccount.run(account, () => openSocket({ ...target, lookup }));
}

/** Returns what the rules say about addresses and names. */
function createRules(allow: readonly string[]) {
  const allowedNames = allow.flatMap((entry) => parseAllowedName(entry) ?? []);
  const isAllowedName = createNameCheck(allowedNames);
  const allowed = parseNetworks(
    allow.filter((entry) => parseAllowedName(entry) === null),
    "use a network such as 10.0.0.0/8, an address, or a name such as app.internal or *.internal",
  );
  const mayCall = (address: string, name?: string): boolean => {
    const ipAddress = toPlainAddress(address);
    if (ipAddress === null) return false;
    if (containsAddress(allowed, ipAddress) || isPublic(ipAddress)) return true;
    return name !== undefined && isAllowedName(name) && !containsAddress(namelessNetworks, ipAddress);
  };
  const mayCallLoopback = (): boolean => loopback.some((address) => mayCall(address));
  /**
   * Returns the entry for a refused name. It does not depend on the address, nor on the other entries,
   * because the sender of the URL must learn neither.
   */
  const findNameEntry = (address: string, hostname: string): string | null =>
    isLoopbackName(hostname) ? findAllowEntry(address) : parseAllowedName(hostname);
  const findHostEntry: Egress["findAllowEntry"] = (address, host) => {
    const hostname = host.replace(/^\[|\]$/g, "");
    if (isLoopbackName(hostname)) return loopbackNetworks;
    const ipAddress = toPlainAddress(address);
    const needsAddress = ipAddress !== null && containsAddress(namelessNetworks, ipAddress);
    return needsAddress || isIP(hostname) !== 0 ? findAllowEntry(address) : parseAllowedName(hostname);
  };
  return { mayCall, mayCallLoopback, findNameEntry, findHostEntry };
}

const noCertificates: EgressCertificates = { authorities: [], clients: new Map() };

function toAnswers(hostname: string, addresses: readonly string[]): LookupAnswer[] {
  if (addresses.length === 0)
    throw Object.assign(new Error(`${hostname} has no address`), { code: "ENOTFOUND" });
  return addresses.slice(0, maxAddresses).map((address) => ({ address, family: isIP(address) }));
}

type LookupAnswer = { address: string; family: number };

/** Addresses of a loopback name. Only the system knows which of them the name has. */
const loopback = ["127.0.0.1", "::1"];
const loopbackNetworks = "127.0.0.0/8,::1/128";

/** The maximum number of addresses of one name that are tried. */
const maxAddresses = 8;

function toLookupFunction(resolve: (hostname: string) => Promise<LookupAnswer[]>): LookupFunction {
  const ask = callbackify(resolve);
  return (hostname, { all }, callback) => {
    ask(hostname, (error, answers) => {
      if (error) callback(error, []);
      else if (all) callback(null, answers);
      else callback(null, answers[0]?.address ?? "", answers[0]?.family);
    });
  };
}

type Networks = { ipv4: BlockList; ipv6: BlockList };
type PlainAddress = { address: string; family: "ipv4" | "ipv6" };

const containsAddress = (list: Networks, { address, family }: PlainAddress): boolean =>
  list[family].check(address, family);

/** Throws an Error that names an entry that is neither a network nor an address. */
export const assertNetworks = (entries: readonly string[]): void => void parseNetworks(entries);

/**
 * Returns one list per family, because a `BlockList` with both counts every IPv4 address as part of `::/0`.
 */
function parseNetworks(
  entries: readonly string[],
  advice = "use a network such as 10.0.0.0/8, or an address",
): Networks {
  const list: Networks = { ipv4: new BlockList(), ipv6: new BlockList() };
  for (const entry of entries) {
    const [address = "", length, ...rest] = entry.trim().split("/");
    const parsed = toPlainAddress(address);
    if (parsed === null || rest.length > 0 || address.includes("%")) throw makeNetworkError(entry, advice);
    const bits = parsed.family === "ipv4" ? 32 : 128;
    if (length !== undefined && isIP(address) === 6 && bits === 32)
      throw makeNetworkError(entry, "use the IPv4 form");
    if (length !== undefined && !(/^\d{1,3}$/.test(length) && Number(length) <= bits))
      throw makeNetworkError(entry, `use a number from 0 to ${bits} after the slash`);
    list[parsed.family].addSubnet(
      parsed.address,
      length === undefined ? bits : Number(length),
      parsed.family,
    );
  }
  return list;
}

const makeNetworkError = (entry: string, advice: string): Error =>
  new Error(`"${entry}" is not a network; ${advice}`);

/**
 * Returns an address without its zone. An IPv4 address in IPv6 form (`::ffff:10.0.0.1`) becomes IPv4. Returns
 * null if the text is not an address.
 */
function toPlainAddress(text: string): PlainAddress | null {
  const family = isIP(text);
  if (family === 0) return null;
  if (family === 4) return { address: text, family: "ipv4" };
  const [address = ""] = text.split("%");
  const groups = parseIpv6Groups(address);
  if (startsWith(groups, [0, 0, 0, 0, 0, 0xffff]))
    return { address: readEmbeddedIpv4(groups), family: "ipv4" };
  return { address, family: "ipv6" };
}

function isPublic({ address, family }: PlainAddress): boolean {
  if (family === "ipv4") return !privateNetworks.ipv4.check(address, "ipv4");
  const groups = parseIpv6Groups(address);
  // NAT64 (RFC 6052): networks with only IPv6 reach all of IPv4 through it.
  if (startsWith(groups, [0x64, 0xff9b, 0, 0, 0, 0]))
    return !privateNetworks.ipv4.check(readEmbeddedIpv4(groups), "ipv4");
  return !privateNetworks.ipv6.check(address, "ipv6");
}

/**
 * Returns the entry of WAYPOST_EGRESS_ALLOW that allows an address, or null if allowing it is never advised.
 */
function findAllowEntry(address: string): string | null {
  const ipAddress = toPlainAddress(address);
  return ipAddress === null || containsAddress(neverSuggestedNetworks, ipAddress) ? null : ipAddress.address;
}

/** Returns the eight numbers of an IPv6 address. */
function parseIpv6Groups(address: string): number[] {
  // URL accepts all spellings and returns a single one: without a dotted part, with at most one `::`.
  const [head = "", tail] = new URL(`http://[${address}]`).hostname.slice(1, -1).split("::");
  const parseGroups = (part: string): number[] =>
    part === "" ? [] : part.split(":").map((group) => Number.parseInt(group, 16));
  const left = parseGroups(head);
  const right = parseGroups(tail ?? "");
  return [...left, ...Array.from({ length: 8 - left.length - right.length }, () => 0), ...right];
}

const startsWith = (groups: readonly number[], prefix: readonly number[]): boolean =>
  prefix.every((group, index) => groups[index] === group);

/** Returns the last 32 bits as an IPv4 address. */
const readEmbeddedIpv4 = (groups: readonly number[]): string =>
  groups
    .slice(6)
    .flatMap((group) => [group >> 8, group & 255])
    .join(".");

/**
 * Link-local addresses, metadata services of clouds (which give credentials to any caller), and IPv6 ranges
 * that can represent any IPv4 address, including these.
 */
const neverSuggested = [
  "100.100.100.200",
  "168.63.129.16",
  "169.254.0.0/16",
  "192.0.0.192",
  "::a9fe:0/112",
  "64:ff9b::/32",
  "2001::/32",
  "2002::/16",
  "fd00:42::42",
  "fd00:ec2::/32",
  "fd20:ce::/32",
  "fe80::/10",
];
const neverSuggestedNetworks = parseNetworks(neverSuggested);

/**
 * Addresses that the name of a destination never allows: those above, loopback, multicast, and what is
 * reserved. `::/8` has loopback and the forms that contain an IPv4 address.
 */
const namelessNetworks = parseNetworks([
  ...neverSuggested,
  "0.0.0.0/8",
  "127.0.0.0/8",
  "224.0.0.0/4",
  "240.0.0.0/4",
  "::/8",
  "ff00::/8",
]);

/**
 * The special-purpose registries of IANA (RFC 6890 and successors), except for the few entries that are
 * public.
 */
const privateNetworks = parseNetworks([
  "0.0.0.0/8",
  "10.0.0.0/8",
  "100.64.0.0/10",
  "127.0.0.0/8",
  "168.63.129.16", // reachable only by virtual machines of one cloud
  "169.254.0.0/16",
  "172.16.0.0/12",
  "192.0.0.0/24",
  "192.0.2.0/24",
  "192.88.99.0/24",
  "192.168.0.0/16",
  "198.18.0.0/15",
  "198.51.100.0/24",
  "203.0.113.0/24",
  "224.0.0.0/4",
  "240.0.0.0/4",
  // Only 2000::/3 has been assigned. The next three are the rest: loopback, fc00::/7, fe80::/10, multicast,
  // local-use NAT64 and so on.
  "::/3",
  "4000::/2",
  "8000::/1",
  "2001::/23", // Teredo, benchmarking, ORCHID
  "2001:db8::/32",
  "2002::/16", // 6to4
  "3fff::/20",
]);
