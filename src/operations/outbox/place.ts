import { Refusal } from "../../engine/core/values/errors.ts";

/** Where a database is. It is read from a URL, and has nothing that the driver would read from files. */
export type Place = {
  host: string;
  port: number;
  user: string;
  password: string;
  database: string;
  tls: "off" | "unverified" | "verified";
};

const tlsModes: Readonly<Record<string, Place["tls"]>> = {
  disable: "off",
  "no-verify": "unverified",
  require: "verified",
  "verify-ca": "verified",
  "verify-full": "verified",
};

const refuse = (problem: string): never => {
  throw new Refusal("invalid", `databaseUrl: ${problem}`);
};

/** Reads the URL of a database. Throws `Refusal`, whose text does not repeat the URL. */
export function parseOutboxUrl(text: string): Place {
  const url = URL.parse(text);
  if (!url || !/^postgres(ql)?:$/.test(url.protocol) || url.hostname === "" || url.pathname.length < 2)
    return refuse("is not postgres://user:password@host:5432/database?sslmode=verify-full");
  const unknown = [...url.searchParams.keys()].find((name) => name !== "sslmode");
  if (unknown !== undefined)
    refuse(`the parameter ${unknown.slice(0, 40)} is not supported; use only sslmode`);
  const mode = url.searchParams.get("sslmode") ?? "verify-full";
  const tls = Object.hasOwn(tlsModes, mode) ? tlsModes[mode] : undefined;
  if (tls === undefined) return refuse(`sslmode must be one of ${Object.keys(tlsModes).join(", ")}`);
  if (url.port === "0") refuse("the port must not be 0");
  return {
    host: readHost(url),
    port: Number(url.port || 5432),
    user: readPart("user", url.username),
    password: readPart("password", url.password),
    database: readPart("database", url.pathname.slice(1)),
    tls,
  };
}

/**
 * Returns the host in the form that a URL of HTTP has. The check of allowed hosts and the connection both use
 * this text, so they cannot mean different hosts.
 */
function readHost({ hostname }: URL): string {
  const host = URL.parse(`http://${hostname}`)?.hostname ?? "";
  if (host === "" || host.includes("%")) return refuse("the host is not a name or an address");
  return host.replace(/^\[|\]$/g, "");
}

/** The driver would replace an empty part by a variable of the environment. */
function readPart(name: string, encoded: string): string {
  let part: string;
  try {
    part = decodeURIComponent(encoded);
  } catch {
    return refuse("has a % that encodes nothing; write it as %25");
  }
  if (part === "" || part.includes("\0")) refuse(`needs a ${name}`);
  return part;
}
