import type { Millis } from "../../engine/core/values/basics.ts";
import { type FieldsOf, integer, nullable, text, texts } from "./field.ts";

/** The settings of the outgoing connections of a server, without credentials. */
export type ReportedEgress = {
  egressAllow: readonly string[];
  /** The host and the port, or null. */
  egressProxy: string | null;
  egressCa: string;
  egressClientCertificates: string;
  connectTimeout: Millis;
};

/** The fields of the settings of outgoing connections, by the names of the settings. */
export const egressFields: FieldsOf<ReportedEgress> = {
  egressAllow: texts(
    "The non-public networks, addresses and names that deliveries may call.",
    ({ egressAllow }) => egressAllow,
  ),
  egressProxy: nullable(text)(
    "The host and port of the proxy that all deliveries go through, without its credentials. null without " +
      "a proxy.",
    ({ egressProxy }) => egressProxy,
  ),
  egressCa: text(
    "The path of the file with the additional authorities, on the machine of the server. Empty without one.",
    ({ egressCa }) => egressCa,
  ),
  egressClientCertificates: text(
    "The path of the file with the client certificates, on the machine of the server. Empty without one.",
    ({ egressClientCertificates }) => egressClientCertificates,
  ),
  connectTimeout: integer(
    "How long a connection may take to open, in milliseconds.",
    ({ connectTimeout }) => connectTimeout,
  ),
};
