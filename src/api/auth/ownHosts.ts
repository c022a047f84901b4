import { isIP } from "node:net";
import { memoize } from "../../engine/core/caches/memoize.ts";
import { Refusal } from "../../engine/core/values/errors.ts";

/** The hosts by which pages may reach this server, in addition to loopback names and IP addresses. */
export type OwnHosts = {
  publicUrl: string;
  listensOn: string;
  /** Further names, in lower case. */
  allowed: readonly string[];
  /**
   * Whether this is a development server: its token is public, and it has the local names that no stranger
   * can point at it.
   */
  isDevelopment: boolean;
};

/**
 * Throws `Refusal` if a host, as in the header Host, could be a name of a stranger that points here (DNS
 * rebinding).
 */
export function assertOwnHost(host: string, hosts: OwnHosts): void {
  if (isOwnHost(host, hosts)) return;
  const name = readHostName(host) ?? "<name>";
  throw new Refusal(
    "forbidden",
    `host: ${JSON.stringify(host.slice(0, 200))} is not an address of this server; if it is one, start the ` +
      `server with --allow-host ${name.slice(0, 200)}, or with --public-url`,
  );
}

/** Reports whether a host, with or without a port, is one of this server. */
function isOwnHost(host: string, { publicUrl, listensOn, allowed, isDevelopment }: OwnHosts): boolean {
  const name = readHostName(host);
  if (name === null) return false;
  return (
    // A rebinding attack needs a name. An address cannot point elsewhere.
    isAddress(name) ||
    isLoopbackName(name) ||
    name === readHostName(URL.parse(publicUrl)?.host ?? "") ||
    name === listensOn.toLowerCase() ||
    allowed.includes(name) ||
    (isDevelopment && (!name.includes(".") || localName.test(name)))
  );
}

/** Names that belong to a machine or a local network, and that no one can register. */
const localName = /\.(internal|local)$/;

/** Reports whether a host, with or without a port, is this machine. */
export function isLoopback(host: string): boolean {
  const name = readHostName(host);
  return name !== null && (isLoopbackName(name) || name === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(name));
}

/** Reports whether two hosts have the same name. Their ports may differ, as within one site. */
export function hasSameName(one: string, other: string): boolean {
  const name = readHostName(one);
  return name !== null && name === readHostName(other);
}

const isLoopbackName = (name: string): boolean => name === "localhost" || name.endsWith(".localhost");

const isAddress = (name: string): boolean => isIP(name.replace(/^\[|\]$/g, "")) !== 0;

/** Returns the host without its port, in lower case, or null if it is malformed. */
const readHostName = memoize((host: string): string | null => {
  if (!/^(\[[\da-f:.]+\]|[\w.-]+)(:\d+)?$/i.test(host)) return null;
  return URL.parse(`http://${host}`)?.hostname.replace(/\.$/, "") ?? null;
}, 100);
