import { StorageRefused } from "../layout/storageErrors.ts";

/**
 * The hosts of a database: one URL per host, in the order in which they are tried. With `mustWrite`, only a
 * host that accepts writes is used.
 */
export type DatabaseHosts = { urls: readonly [string, ...string[]]; mustWrite: boolean };

/** The values of `target_session_attrs`, as in libpq, and whether the host must accept writes. */
const targetSessionAttributes = new Map([
  ["any", false],
  ["read-write", true],
  ["primary", true],
]);

/** The driver treats these as `verify-full` and warns that this will change. */
const weakSslModes = /([?&]sslmode=)(prefer|require|verify-ca)(?=[&#]|$)/;

/**
 * Splits a URL such as `postgres://user:password@one:5432,two:5432/database?target_session_attrs=read-write`
 * into URLs for the driver, which supports one host only. If the URL names several hosts, the host must
 * accept writes, unless the URL says otherwise. Throws `StorageRefused`; the error contains no secret.
 */
export function parseDatabaseUrl(url: string): DatabaseHosts {
  const [, head = "", hosts = "", tail = ""] = /^([a-z]+:\/\/(?:[^/?#]*@)?)([^/?#@]*)(.*)$/is.exec(url) ?? [];
  const [first = "", ...others] = hosts.split(",");
  const requested = /[?&]target_session_attrs=([^&#]*)/.exec(tail)?.[1];
  if (requested !== undefined && !targetSessionAttributes.has(requested)) {
    const known = [...targetSessionAttributes.keys()].join(", ");
    throw new StorageRefused(
      `target_session_attrs in the database URL: ${requested} is not supported; use one of ${known}`,
    );
  }
  // The driver would pass an unknown parameter to the server.
  const withoutTarget = tail.replace(/([?&])target_session_attrs=[^&#]*&?/, "$1").replace(/[?&](?=#|$)/, "");
  const rest = /[?&]uselibpqcompat=true(?=[&#]|$)/.test(withoutTarget)
    ? withoutTarget
    : withoutTarget.replace(weakSslModes, "$1verify-full");
  const mustWrite =
    requested === undefined ? others.length > 0 : targetSessionAttributes.get(requested) === true;
  return { urls: [`${head}${first}${rest}`, ...others.map((host) => `${head}${host}${rest}`)], mustWrite };
}
