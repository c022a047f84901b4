import { z } from "zod";
import { forwardProxy, networkList } from "./settingValues.ts";

/** The settings of outgoing connections, as rows of `serverSettings` in `config.ts`. */
export const egressRows = {
  egressAllow: {
    takes: networkList,
    default: "",
    value: "<networks>",
    help: "non-public networks that deliveries may call, such as 10.0.0.0/8,::1/128",
  },
  egressProxy: {
    takes: forwardProxy,
    default: "",
    value: "<url>",
    help:
      "proxy that all deliveries go through, such as http://user:password@proxy.example:3128; " +
      "it resolves names, so only addresses in URLs are checked",
  },
  egressCa: {
    takes: z.string(),
    default: "",
    value: "<file>",
    help: "certificates of authorities (PEM) that deliveries trust in addition to those of Node.js",
  },
  egressClientCertificates: {
    takes: z.string(),
    default: "",
    value: "<file>",
    help:
      "JSON file with the certificates that deliveries show to hosts, " +
      'such as {"api.example.com": {"certificate": "client.pem", "key": "client.key"}}',
  },
} as const;
