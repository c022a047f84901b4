import { StorageRefused } from "../store.ts";

/** Where a database may be: one URL per host, in the order in which they are tried. `mustWrite`: only one that takes changes will do. */
export type Addresses = { urls: readonly [string, ...string[]]; mustWrite: boolean };

/** Which of several servers is meant, in the words of libpq: those that take changes, or any of them. */
const meanings = new Map([
  ["any", false],
  ["read-write", true],
  ["primary", true],
]);

/** The driver takes them for `verify-full`, and warns that it will not do so for ever. */
const lesserModes = /([?&]sslmode=)(prefer|require|verify-ca)(?=[&#]|$)/;

/**
 * `postgres://user:password@one:5432,two:5432/database?target_session_attrs=read-write` as the driver understands it, which knows one
 * host only. Of several hosts the one that takes changes is meant, if not said otherwise. Throws `StorageRefused`, without a secret.
 */
export function addressesOf(url: string): Addresses {
  const [, head = "", hosts = "", tail = ""] = /^([a-z]+:\/\/(?:[^/?#]*@)?)([^/?#@]*)(.*)$/is.exec(url) ?? [];
  const [first = "", ...others] = hosts.split(",");
  const asked = /[?&]target_session_attrs=([^&#]*)/.exec(tail)?.[1];
  if (asked !== undefined && !meanings.has(asked)) {
    throw new StorageRefused(
      `target_session_attrs in the URL of the database: ${asked} is none of ${[...meanings.keys()].join(", ")}; every node writes`,
    );
  }
  // The driver would pass on to the server what it does not know.
  const known = tail.replace(/([?&])target_session_attrs=[^&#]*&?/, "$1").replace(/[?&](?=#|$)/, "");
  const rest = /[?&]uselibpqcompat=true(?=[&#]|$)/.test(known) ? known : known.replace(lesserModes, "$1verify-full");
  const mustWrite = asked === undefined ? others.length > 0 : meanings.get(asked) === true;
  return { urls: [`${head}${first}${rest}`, ...others.map((host) => `${head}${host}${rest}`)], mustWrite };
}
