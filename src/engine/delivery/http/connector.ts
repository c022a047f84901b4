import type { LookupFunction } from "node:net";
import { createSecureContext, getCACertificates } from "node:tls";
import { buildConnector } from "undici";
import type { Millis } from "../../core/values/basics.ts";
import { socketReadOptions } from "./connection.ts";
import { createTunnelConnector, type ForwardProxy } from "./tunnel.ts";

/** Which certificates deliveries trust and show. All texts are in PEM form. */
export type EgressCertificates = {
  /** Authorities that are trusted in addition to those of Node.js. */
  authorities: readonly string[];
  /** The certificates that this server shows to some hosts, by the name or address of the host. */
  clients: ReadonlyMap<string, ClientCertificate>;
};
/** A certificate with its chain, and its private key. */
export type ClientCertificate = { certificate: string; key: string };

type ConnectorOptions = {
  /** Returns the error for a host that must not be called, as far as this is known without a name server. */
  refuse(hostname: string): Error | null;
  lookup: LookupFunction;
  timeout: Millis;
  certificates: EgressCertificates;
  proxy: ForwardProxy | null;
};

/** Returns a connector that opens sockets for `HttpConnection`, directly or through a proxy. */
export function createConnector(options: ConnectorOptions): buildConnector.connector {
  const { refuse, lookup, timeout, certificates, proxy } = options;
  // An address has 500 ms to respond before the next one is tried. Node's 250 ms are too short for distant
  // continents. HTTP/2 is off on purpose: an attempt is one request on one connection, and its end does not
  // affect another attempt.
  const settings = {
    lookup,
    timeout,
    ...socketReadOptions,
    allowH2: false,
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: 500,
  };
  const connectPlain = buildConnector(settings);
  const connectSecure = createSecureConnector(settings, certificates);
  const connectDirectly: buildConnector.connector = (target, callback) =>
    (target.protocol === "https:" ? connectSecure : connectPlain)(target, callback);
  const open = proxy
    ? createTunnelConnector({ proxy, lookup, timeout, secure: connectSecure })
    : connectDirectly;
  return (target, callback) => {
    const refusal = refuse(target.hostname);
    // The connector returns the socket, which is closed if the caller stops waiting.
    if (refusal === null) return open(target, callback);
    queueMicrotask(() => callback(refusal, null));
  };
}

/** Returns a connector with one TLS context for all hosts: making one loads all root certificates. */
function createSecureConnector(
  settings: buildConnector.BuildOptions,
  { authorities, clients }: EgressCertificates,
): buildConnector.connector {
  const connectors = new Map<ClientCertificate | undefined, buildConnector.connector>();
  const create = (client: ClientCertificate | undefined): buildConnector.connector =>
    buildConnector({
      ...settings,
      secureContext: createSecureContext({
        ...(authorities.length > 0 && { ca: [...getCACertificates("default"), ...authorities] }),
        ...(client && { cert: client.certificate, key: client.key }),
      }),
    });
  return (target, callback) => {
    const client = clients.get(target.hostname);
    const connector = connectors.get(client) ?? create(client);
    connectors.set(client, connector);
    return connector(target, callback);
  };
}
