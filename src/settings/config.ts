import { z } from "zod";
import { shortestPassword } from "../api/route/operator.ts";
import { defaultRefusedPerSecond } from "../api/auth/refusedRequests.ts";
import type { SettingPlaces } from "./configSources.ts";
import { collectSettings, ConfigRefused, otherVariables, toFileVariable } from "./configSources.ts";
import { egressRows } from "./egressRows.ts";
import { defaultAddress } from "../../launch/health.cjs";
import { largestMessageBytes, limits } from "../engine/core/values/limits.ts";
import { minute } from "../engine/core/values/time.ts";
import {
  duration,
  hostList,
  integer,
  keyRing,
  networkList,
  originList,
  otlpEndpoint,
  otlpHeaders,
  planPrices,
  portOrNone,
  price,
  proxyList,
  publicUrl,
  text,
} from "./settingValues.ts";

/**
 * Every setting of the server: its flag, its environment variable (`WAYPOST_` and the name in capitals), its
 * default, and its values. The help and the reference are generated from these rows.
 */
export const serverSettings = {
  port: {
    takes: integer(0, 65535),
    default: defaultAddress.port,
    value: "<n>",
    help: "port to listen on; 0 chooses a free one",
  },
  host: {
    takes: text,
    default: defaultAddress.host,
    value: "<address>",
    help: "address to listen on; 0.0.0.0 listens on all",
  },
  accountPort: {
    takes: portOrNone,
    default: "",
    value: "<n>",
    help: "additional port that serves only the account endpoints, which also stay on --port",
  },
  metricsPort: {
    takes: portOrNone,
    default: "",
    value: "<n>",
    help: "additional port that serves only /metrics, without a token",
  },
  metricsHost: {
    takes: text,
    default: "127.0.0.1",
    value: "<address>",
    help: "address for --metrics-port; every client that reaches it can read figures about all accounts",
  },
  otlpEndpoint: {
    takes: otlpEndpoint,
    default: "",
    value: "<url>",
    help: "OpenTelemetry collector that receives traces at <url>/v1/traces; also OTEL_EXPORTER_OTLP_ENDPOINT",
  },
  otlpHeaders: {
    takes: otlpHeaders,
    default: "",
    value: "<headers>",
    help: "headers for --otlp-endpoint, such as api-key=secret; also OTEL_EXPORTER_OTLP_HEADERS",
  },
  operatorPassword: {
    takes: z
      .string()
      .regex(
        new RegExp(`^(.{${shortestPassword},1000})?$`),
        `must have at least ${shortestPassword} characters`,
      ),
    default: "",
    value: "<password>",
    help: "enables the endpoints under /v2/admin for clients that send this password",
  },
  data: {
    takes: text,
    default: "./data",
    value: "<folder>",
    help: "folder of the embedded store; one server per folder",
  },
  databaseUrl: {
    takes: z.string().regex(/^$|^postgres(ql)?:\/\//, "must begin with postgres://"),
    default: "",
    value: "<url>",
    help: "postgres://… stores everything in PostgreSQL instead of a folder",
  },
  keys: {
    takes: keyRing,
    default: "",
    value: "<keys>",
    help:
      "keys that encrypt secrets, as printed by waypost keys new; " +
      "several as 2:…,1:…, of which the first encrypts",
  },
  replicate: {
    takes: z.string(),
    default: "",
    value: "<folder>",
    help: "folder on another disk, in which the server keeps a second copy of a folder store",
  },
  keysFile: {
    takes: z.string(),
    default: "",
    value: "<file>",
    help: "file with the keys that encrypt secrets; default: the file named keys in the data folder",
  },
  databasePooling: {
    takes: z.enum(["session", "transaction"], { error: "must be session or transaction" }),
    default: "session",
    value: "<mode>",
    help: "transaction if PostgreSQL is behind a pooler in transaction mode, such as PgBouncer",
  },
  ...egressRows,
  maxBody: {
    takes: integer(1024, largestMessageBytes),
    default: String(limits.messageBytes),
    value: "<bytes>",
    help: "size up to which bodies of messages are accepted, at most 64 MiB",
  },
  logRetention: {
    takes: duration(minute),
    default: "3d",
    value: "<duration>",
    help: "how long message logs are kept",
  },
  dlqRetention: {
    takes: duration(minute),
    default: "7d",
    value: "<duration>",
    help: "how long dead letters are kept",
  },
  auditRetention: {
    takes: duration(minute),
    default: "90d",
    value: "<duration>",
    help: "how long the audit log is kept",
  },
  grace: {
    takes: duration(0),
    default: "10s",
    value: "<duration>",
    help: "time that running deliveries get to finish when the server stops",
  },
  maxQueues: {
    takes: integer(1, 1_000_000),
    default: String(limits.queues),
    value: "<n>",
    help: "queues that an account may have",
  },
  brand: {
    takes: z.enum(["svc", "upstash"], { error: "must be svc or upstash" }),
    default: "svc",
    value: "<name>",
    help: "header prefix of deliveries (Svc- or Upstash-) if the publish request uses neither",
  },
  region: {
    takes: z
      .string()
      .toUpperCase()
      .pipe(z.enum(["EU-CENTRAL-1", "US-EAST-1"], { error: "must be eu-central-1 or us-east-1" })),
    default: "us-east-1",
    value: "<name>",
    help: "region named in deliveries and accounts: eu-central-1 or us-east-1",
  },
  sendsFrom: {
    takes: networkList,
    default: "",
    value: "<networks>",
    help: "public networks that deliveries come from, as listed at /v2/svc/ipv4",
  },
  messagePrice: {
    takes: price,
    default: "0",
    value: "<dollars>",
    help: "price of 100,000 messages in statistics and budgets, in dollars",
  },
  workflowPrice: {
    takes: price,
    default: "0",
    value: "<dollars>",
    help: "price of 100,000 workflow messages in statistics and budgets, in dollars",
  },
  bandwidthPrice: {
    takes: price,
    default: "0",
    value: "<dollars>",
    help: "price of 1 GB of bodies, in or out, in statistics and budgets, in dollars",
  },
  reservedPrices: {
    takes: planPrices,
    default: "",
    value: "<plan=dollars,…>",
    help: "prices of plans shown in accounts, such as paid=10,fixed_1m=180",
  },
  publicUrl: {
    takes: publicUrl,
    default: "",
    value: "<url>",
    help: "URL where clients reach this server; default: the address of each request",
  },
  corsOrigin: {
    takes: originList,
    default: "",
    value: "<origins>",
    help:
      "origins of web pages that may send requests with a token and read the responses, " +
      "such as https://app.example.com, or * for all; with waypost dev, whose token is public, * lets " +
      "every web page do so",
  },
  allowHost: {
    takes: hostList,
    default: "",
    value: "<names>",
    help:
      "further host names by which pages may reach this server: the console, " +
      "and with waypost dev every request with a token",
  },
  refusedPerSecond: {
    takes: integer(1, 1_000_000),
    default: String(defaultRefusedPerSecond),
    value: "<n>",
    help:
      "requests per second from one address that may be refused or have no valid token; " +
      "other requests are not limited",
  },
  fastPath: {
    takes: z.enum(["on", "off"], { error: "must be on or off" }).transform((given) => given === "on"),
    default: "on",
    value: "<on|off>",
    help:
      "off: plain publishes go through the HTTP framework, " +
      "with the same responses and about 15 % more CPU time per message",
  },
  trustProxy: {
    takes: proxyList,
    default: "",
    value: "<networks>",
    help: "reverse proxies whose X-Forwarded-For header is trusted",
  },
  console: {
    takes: z.enum(["on", "off"], { error: "must be on or off" }).transform((given) => given === "on"),
    default: "on",
    value: "<on|off>",
    help: "off: the web console at /console is not served, and no one can log in to it",
  },
  trustUserHeader: {
    takes: z.string().regex(/^([\w-]{1,100})?$/, "must be the name of a header"),
    default: "",
    value: "<header>",
    help:
      "header in which a proxy of --trust-proxy names the person that it has signed in; " +
      "it only names a session of the console, which still needs a login",
  },
  selfCheck: {
    takes: z.enum(["on", "off"], { error: "must be on or off" }).transform((given) => given === "on"),
    default: "on",
    value: "<on|off>",
    help: "off: the server does not look for stuck work, and repairs none",
  },
  logFormat: {
    takes: z.enum(["auto", "json", "text"], { error: "must be auto, json or text" }),
    default: "auto",
    value: "<format>",
    help:
      "format of the log and of the lines of a start; auto: text on a terminal, JSON elsewhere, " +
      "except the first lines of waypost dev",
  },
  logLevel: {
    takes: z.enum(["trace", "debug", "info", "warn", "error", "silent"], {
      error: "must be trace, debug, info, warn, error or silent",
    }),
    default: "info",
    value: "<level>",
    help: "log level; debug logs each request and each attempt",
  },
} as const;

/** The name of a setting, as in `serverSettings`. */
export type ServerSettingName = keyof typeof serverSettings;
/** The values of all settings. */
export type ServerConfig = { [N in ServerSettingName]: z.output<(typeof serverSettings)[N]["takes"]> };

/** The names of all settings, in the order of the help. */
export const serverSettingNames: readonly ServerSettingName[] = Object.keys(serverSettings).filter(
  (name): name is ServerSettingName => name in serverSettings,
);

const toKebabCase = (name: string): string => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
/** Returns the flag of a setting, such as `--account-port`. */
export const toFlag = (name: ServerSettingName): string => `--${toKebabCase(name)}`;
/** Returns the environment variable of a setting, such as `WAYPOST_ACCOUNT_PORT`. */
export const toVariable = (name: ServerSettingName): string =>
  `WAYPOST_${toKebabCase(name).replaceAll("-", "_").toUpperCase()}`;

/** Secrets. They are hidden, and a variable with the ending `_FILE` may name a file with the value. */
const secrets: ReadonlySet<ServerSettingName> = new Set([
  "operatorPassword",
  "databaseUrl",
  "egressProxy",
  "otlpHeaders",
]);
/** The keys already have a setting that names their file. */
const isHidden = (name: ServerSettingName): boolean => secrets.has(name) || name === "keys";

/** Variables of OpenTelemetry, which its users already set. */
const standardVariables: Partial<Record<ServerSettingName, string>> = {
  otlpEndpoint: "OTEL_EXPORTER_OTLP_ENDPOINT",
  otlpHeaders: "OTEL_EXPORTER_OTLP_HEADERS",
};

const places: readonly SettingPlaces[] = serverSettingNames.map((name) => ({
  name,
  flag: toFlag(name),
  variable: toVariable(name),
  default: serverSettings[name].default,
  isSecret: secrets.has(name),
  ...(name in standardVariables && { standardVariable: standardVariables[name] }),
}));

/** Flags as texts. `config` names a configuration file. */
type SettingFlags = Partial<Record<ServerSettingName | "config", string>>;

/**
 * Reads all settings. A flag overrides an environment variable, which overrides the configuration file, which
 * overrides the default. Unknown `WAYPOST_` variables are refused.
 */
export function readConfig(flags: SettingFlags, environment: NodeJS.ProcessEnv): ServerConfig {
  requireKnownVariables(environment);
  const given = collectSettings(places, { flags, environment });
  const readSetting = (name: ServerSettingName): unknown => {
    const { text, from } = given.get(name) ?? { text: serverSettings[name].default, from: null };
    const result = serverSettings[name].takes.safeParse(text);
    if (result.success) return result.data;
    const problem = result.error.issues.map(({ message }) => message).join("; ");
    throw new ConfigRefused(`${from ?? toVariable(name)}: ${problem}`);
  };
  const config = Object.fromEntries(
    serverSettingNames.map((name) => [name, readSetting(name)]),
  ) as ServerConfig;
  if (config.trustUserHeader !== "" && config.trustProxy.length === 0)
    throw new ConfigRefused(
      `${toFlag("trustUserHeader")}: requires ${toFlag("trustProxy")}; name the proxies that set the header`,
    );
  return config;
}

function requireKnownVariables(environment: NodeJS.ProcessEnv): void {
  const known = new Set([
    ...places.flatMap(({ variable, isSecret }) =>
      isSecret ? [variable, toFileVariable(variable)] : [variable],
    ),
    ...otherVariables,
  ]);
  const unknown = Object.keys(environment).find((name) => name.startsWith("WAYPOST_") && !known.has(name));
  if (unknown !== undefined) throw new ConfigRefused(`${unknown}: unknown setting; see waypost start --help`);
}

/** A setting as people see it: secrets are hidden. `from` is where it was set, or null for a default. */
export type ExplainedSetting = { name: ServerSettingName; value: string; from: string | null };

/** Returns every setting with its value and where it was set. Throws `ConfigRefused` if one is unusable. */
export function explainConfig(flags: SettingFlags, environment: NodeJS.ProcessEnv): ExplainedSetting[] {
  readConfig(flags, environment);
  const given = collectSettings(places, { flags, environment });
  return serverSettingNames.map((name) => {
    const { text, from } = given.get(name) ?? { text: "", from: null };
    return { name, value: isHidden(name) && text !== "" ? "(hidden)" : text, from };
  });
}
