import { StorageRefused } from "../store.ts";

/** Where a database may be: one URL per host, in the order in which they are tried. `mustWrite`: only one that takes changes will do. */
export type DatabaseHosts = { urls: readonly [string, ...string[]]; mustWrite: boolean };

/** Which of several servers is meant, in the words of libpq: those that take changes, or any of them. */
const targetSessionAttributes = new Map([
  ["any", false],
  ["read-write", true],
  ["primary", true],
]);

/** The driver takes them for `verify-full`, and warns that it will not do so for ever. */
const weakSslModes = /([?&]sslmode=)(prefer|require|verify-ca)(?=[&#]|$)/;

/**
 * `postgres://user:password@one:5432,two:5432/database?target_session_attrs=read-write` as the driver understands it, which knows one
 * host only. Of several hosts the one that takes changes is meant, if not said otherwise. Throws `StorageRefused`, without a secret.
 */
export function parseDatabaseUrl(url: string): DatabaseHosts {
  const [, head = "", hosts = "", tail = ""] = /^([a-z]+:\/\/(?:[^/?#]*@)?)([^/?#@]*)(.*)$/is.exec(url) ?? [];
  const [first = "", ...others] = hosts.split(",");
  const requested = /[?&]target_session_attrs=([^&#]*)/.exec(tail)?.[1];
  if (requested !== undefined && !targetSessionAttributes.has(requested)) {
    throw new StorageRefused(
      `target_session_attrs in the URL of the database: ${requested} is none of ${[...targetSessionAttributes.keys()].join(", ")}; every node writes`,
    );
  }
  // The driver would pass on to the server what it does not know.
  const withoutTarget = tail.replace(/([?&])target_session_attrs=[^&#]*&?/, "$1").replace(/[?&](?=#|$)/, "");
  const rest = /[?&]uselibpqcompat=true(?=[&#]|$)/.test(withoutTarget)
    ? withoutTarget
    : withoutTarget.replace(weakSslModes, "$1verify-full");
  const mustWrite = requested === undefined ? others.length > 0 : targetSessionAttributes.get(requested) === true;
  return { urls: [`${head}${first}${rest}`, ...others.map((host) => `${head}${host}${rest}`)], mustWrite };
}
