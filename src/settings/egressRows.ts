import { z } from "zod";
import { duration, forwardProxy, integer, networkList } from "./settingValues.ts";

/** The settings of deliveries and their connections, as rows of `serverSettings` in `config.ts`. */
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
  maxDeliveries: {
    takes: integer(1, 100_000),
    default: "1024",
    value: "<n>",
    help: "deliveries that may run at once, in total",
  },
  maxDeliveriesPerHost: {
    takes: integer(1, 100_000),
    default: "512",
    value: "<n>",
    help: "deliveries of one account that may run at once to one host",
  },
  connectTimeout: {
    takes: duration(100),
    default: "10s",
    value: "<duration>",
    help: "time limit for connecting to a destination",
  },
  responseLimit: {
    takes: integer(0, 64 * 1024 * 1024),
    default: "1048576",
    value: "<bytes>",
    help: "size up to which response bodies are read and kept in dead letters",
  },
} as const;
