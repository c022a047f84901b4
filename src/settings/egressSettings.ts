import { createPrivateKey, X509Certificate } from "node:crypto";
import { isIP } from "node:net";
import { dirname, resolve } from "node:path";
import { z } from "zod";
import type { ReportedEgress } from "../api/fields/egress.ts";
import type { ServerConfig } from "./config.ts";
import { toVariable } from "./config.ts";
import { ConfigRefused, readText } from "./configSources.ts";
import type { ClientCertificate } from "../engine/delivery/http/connector.ts";
import { createEgress, type Egress } from "../engine/delivery/http/egress.ts";
import type { OnRefusedHost } from "../engine/core/values/refusedHost.ts";
import { parseUrl } from "../engine/core/values/url.ts";

/** The settings of outgoing connections. */
export type EgressSettings = Pick<ServerConfig, (typeof egressNames)[number] | "connectTimeout">;

/** The settings of outgoing connections that a flag of another process can replace. */
export const egressNames = ["egressAllow", "egressProxy", "egressCa", "egressClientCertificates"] as const;

/** Returns the settings of outgoing connections, in a form that another process of this machine can use. */
export function pickEgressSettings(settings: EgressSettings): EgressSettings {
  const { egressAllow, egressProxy, connectTimeout } = settings;
  const toAbsolute = (file: string): string => (file === "" ? "" : resolve(file));
  return {
    ...{ egressAllow, egressProxy, connectTimeout },
    egressCa: toAbsolute(settings.egressCa),
    egressClientCertificates: toAbsolute(settings.egressClientCertificates),
  };
}

/** Returns the settings of outgoing connections for the API, without the credentials of the proxy. */
export const toReportedEgress = (settings: EgressSettings): ReportedEgress => ({
  ...pickEgressSettings(settings),
  egressProxy: formatProxy(settings),
});

/**
 * Returns the rules and certificates for outgoing connections. Reads the files that the settings name. Throws
 * `ConfigRefused` if one cannot be used. `onRefusal` is called with each host that is refused.
 */
export const openEgress = (
  settings: Omit<EgressSettings, "connectTimeout">,
  onRefusal?: OnRefusedHost,
): Egress =>
  createEgress({
    ...(onRefusal && { onRefusal }),
    allow: settings.egressAllow,
    proxy: settings.egressProxy,
    certificates: {
      authorities: readAuthorities(settings.egressCa),
      clients: readClientCertificates(settings.egressClientCertificates),
    },
  });

/** Returns the setting with one more entry, as a variable of the environment. */
export const formatEgressAllow = (
  { egressAllow }: Pick<EgressSettings, "egressAllow">,
  entry: string,
): string => `${toVariable("egressAllow")}=${[...egressAllow, entry].join(",")}`;

/** Returns the proxy without its credentials, as text for people, or null. */
export const formatProxy = ({ egressProxy }: Pick<EgressSettings, "egressProxy">): string | null => {
  if (egressProxy === null) return null;
  const { hostname, port } = egressProxy;
  return `${isIP(hostname) === 6 ? `[${hostname}]` : hostname}:${port}`;
};

/** The effect of a proxy, in the log of the start and in the checks. */
export const proxyWarning =
  "deliveries go through a proxy, which resolves names; Waypost checks only addresses in URLs, " +
  "so the proxy must refuse private addresses";

function readAuthorities(file: string): string[] {
  const source = toVariable("egressCa");
  return file === "" ? [] : readCertificates(file, source);
}

/** Returns the certificates in a file in PEM form, each as its own text. */
function readCertificates(file: string, source: string): string[] {
  const found =
    readText(file, source).match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g) ?? [];
  if (found.length === 0)
    throw new ConfigRefused(
      `${source}: ${file} has no certificate; name a file with -----BEGIN CERTIFICATE-----`,
    );
  for (const [at, text] of found.entries())
    if (parseCertificate(text) === null)
      throw new ConfigRefused(`${source}: certificate ${at + 1} of ${file} is damaged; write the file again`);
  return found;
}

function parseCertificate(text: string): X509Certificate | null {
  try {
    return new X509Certificate(text);
  } catch {
    return null;
  }
}

const clientsSchema = z.record(z.string(), z.strictObject({ certificate: z.string(), key: z.string() }));

/** Returns the client certificates by host. Paths in the file are relative to its folder. */
function readClientCertificates(file: string): Map<string, ClientCertificate> {
  const source = toVariable("egressClientCertificates");
  if (file === "") return new Map();
  const parsed = clientsSchema.safeParse(parseJson(readText(file, source)));
  if (!parsed.success)
    throw new ConfigRefused(
      `${source}: ${file} is not an object of hosts; ` +
        'write it as {"api.example.com": {"certificate": "client.pem", "key": "client.key"}}',
    );
  const entries = Object.entries(parsed.data).map(([host, { certificate, key }]) => {
    const place = `${source}: ${file}: ${JSON.stringify(host.slice(0, 100))}`;
    const paths = [certificate, key].map((path) => resolve(dirname(file), path));
    return [readHost(host, place), readClientCertificate(paths, place)] as const;
  });
  return new Map(entries);
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Returns a host in the form that a URL has. */
function readHost(host: string, place: string): string {
  const hostname = parseUrl(`https://${host}/`)?.hostname ?? "";
  if (hostname === "" || hostname !== host.toLowerCase())
    throw new ConfigRefused(`${place}: is not a host; use a name such as api.example.com, without a port`);
  return hostname.replace(/^\[|\]$/g, "");
}

function readClientCertificate(
  [certificateFile = "", keyFile = ""]: readonly string[],
  place: string,
): ClientCertificate {
  const certificates = readCertificates(certificateFile, place);
  const key = readText(keyFile, place);
  if (!isKeyOf(certificates[0] ?? "", key))
    throw new ConfigRefused(
      `${place}: ${keyFile} is not the key of ${certificateFile}; ` +
        "name the key of its first certificate, in PEM form and without a password",
    );
  return { certificate: certificates.join("\n"), key };
}

function isKeyOf(certificate: string, key: string): boolean {
  try {
    return new X509Certificate(certificate).checkPrivateKey(createPrivateKey(key));
  } catch {
    return false;
  }
}
