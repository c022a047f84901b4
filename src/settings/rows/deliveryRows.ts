import {
  destinationList,
  duration,
  forwardProxy,
  integer,
  networkList,
  oneOf,
  path,
  region,
} from "./settingValues.ts";

/** The settings of deliveries and their connections. */
export const deliveryRows = {
  maxDeliveries: {
    takes: integer(1, 100_000),
    default: "1024",
    value: "<n>",
    example: "2048",
    help: "deliveries that may run at once, in total",
  },
  maxDeliveriesPerHost: {
    takes: integer(1, 100_000),
    default: "512",
    value: "<n>",
    example: "100",
    help: "deliveries of one account that may run at once to one host",
  },
  connectTimeout: {
    takes: duration(100),
    default: "10s",
    value: "<duration>",
    example: "5s",
    help: "time limit for connecting to a destination",
  },
  responseLimit: {
    takes: integer(0, 64 * 1024 * 1024),
    default: "1048576",
    value: "<bytes>",
    example: "65536",
    help: "maximum number of bytes of a response body that are read, and kept in dead letters",
  },
  egressAllow: {
    takes: destinationList,
    default: "",
    value: "<networks>",
    example: "10.0.0.0/8,app,*.internal",
    help:
      "non-public networks that deliveries may call, such as 10.0.0.0/8,::1/128, and names that may have " +
      "private addresses, such as app,*.internal",
  },
  egressProxy: {
    takes: forwardProxy,
    default: "",
    value: "<url>",
    example: "http://proxy.example:3128",
    help:
      "proxy that all deliveries go through, such as http://user:password@proxy.example:3128; " +
      "it resolves names, so only addresses in URLs are checked",
  },
  egressCa: {
    takes: path("file"),
    default: "",
    value: "<file>",
    example: "/etc/waypost/authorities.pem",
    help: "certificates of authorities (PEM) that deliveries trust in addition to those of Node.js",
  },
  egressClientCertificates: {
    takes: path("file"),
    default: "",
    value: "<file>",
    example: "/etc/waypost/clients.json",
    help:
      "JSON file with the certificates that deliveries show to hosts, " +
      'such as {"api.example.com": {"certificate": "client.pem", "key": "client.key"}}',
  },
  brand: {
    takes: oneOf("svc", "upstash"),
    default: "svc",
    value: "<name>",
    example: "upstash",
    help: "header prefix of deliveries (Svc- or Upstash-) if the publish request uses neither",
  },
  region: {
    takes: region,
    default: "us-east-1",
    value: "<name>",
    example: "eu-central-1",
    help: "region named in deliveries and accounts",
  },
  sendsFrom: {
    takes: networkList,
    default: "",
    value: "<networks>",
    example: "203.0.113.0/28",
    help: "public networks that deliveries come from, as listed at /v2/svc/ipv4",
  },
} as const;
