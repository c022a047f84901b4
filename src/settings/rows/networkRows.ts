import { shortestPassword } from "../../api/route/operator.ts";
import { defaultRefusedPerSecond } from "../../api/auth/refusedRequests.ts";
import { defaultAddress } from "../../../launch/health.cjs";
import {
  hostList,
  integer,
  listenAddress,
  onOff,
  originList,
  pattern,
  portOrNone,
  proxyList,
  publicUrl,
} from "./settingValues.ts";

/** The settings of where the server listens, and how clients reach it. */
export const addressRows = {
  port: {
    takes: integer(0, 65535),
    default: defaultAddress.port,
    value: "<n>",
    example: "9000",
    help: "port to listen on; 0 chooses a free one",
  },
  host: {
    takes: listenAddress,
    default: defaultAddress.host,
    value: "<address>",
    example: "0.0.0.0",
    help: "address to listen on; 0.0.0.0 listens on all",
  },
  accountPort: {
    takes: portOrNone,
    default: "",
    value: "<n>",
    example: "8081",
    help: "additional port that serves only the account endpoints, which also stay on --port",
  },
  publicUrl: {
    takes: publicUrl,
    default: "",
    value: "<url>",
    example: "https://queue.example.com",
    help: "URL where clients reach this server; default: the address of each request",
  },
  trustProxy: {
    takes: proxyList,
    default: "",
    value: "<networks>",
    example: "10.0.0.0/8,loopback",
    help: "reverse proxies whose X-Forwarded-For header is trusted",
  },
  corsOrigin: {
    takes: originList,
    default: "",
    value: "<origins>",
    example: "https://app.example.com",
    help:
      "origins of web pages that may send requests with a token and read the responses, " +
      "such as https://app.example.com, or * for all; with waypost dev, whose token is public, * lets " +
      "every web page do so",
  },
  allowHost: {
    takes: hostList,
    default: "",
    value: "<names>",
    example: "queue.example.com",
    help:
      "further host names by which pages may reach this server: the console, " +
      "and with waypost dev every request with a token",
  },
} as const;

/** The settings of the operator, the console and wrong tokens. */
export const accessRows = {
  operatorPassword: {
    takes: pattern(
      new RegExp(`^(.{${shortestPassword},1000})?$`),
      `a password of ${shortestPassword} to 1000 characters`,
    ),
    default: "",
    value: "<password>",
    example: "correct-horse-battery",
    help: "enables the endpoints under /v2/admin for clients that send this password",
  },
  console: {
    takes: onOff,
    default: "on",
    value: "<on|off>",
    example: "off",
    help: "off: the web console at /console is not served, and no one can log in to it",
  },
  trustUserHeader: {
    takes: pattern(/^([\w-]{1,100})?$/, "the name of a header"),
    default: "",
    value: "<header>",
    example: "X-Forwarded-User",
    help:
      "header in which a proxy of --trust-proxy names the person that it has signed in; " +
      "it only names a session of the console, which still needs a login",
  },
  refusedPerSecond: {
    takes: integer(1, 1_000_000),
    default: String(defaultRefusedPerSecond),
    value: "<n>",
    example: "500",
    help:
      "how many requests per second from one address may be refused or have no valid token; " +
      "other requests are not limited",
  },
} as const;
