import { z } from "zod";
import { shortestPassword } from "../api/route/operator.ts";
import { defaultRefusedPerSecond } from "../api/auth/refusedRequests.ts";
import { createEgress } from "../delivery/http/egress.ts";
import { parseDuration } from "../core/values/duration.ts";
import { limits } from "../core/values/limits.ts";
import { planNames } from "../core/accounts/plans.ts";
import type { PlanName } from "../core/model/accountTerms.ts";
import { parseKeyRing } from "../store/sql/keyRing.ts";
import { minute } from "../core/values/time.ts";

const integer = (min: number, max: number) =>
  z.coerce
    .number({ error: "must be a number" })
    .int("must be a whole number")
    .min(min, `must be at least ${min}`)
    .max(max, `must be at most ${max}`);

const duration = (min: number) =>
  z.string().transform((text, context) => {
    const value = parseDuration(text);
    if (value !== null && value >= min) return value;
    context.addIssue({ code: "custom", message: `must be a duration such as 30s, 12h or 7d, of at least ${min / 1000}s` });
    return z.NEVER;
  });

const price = z.coerce.number({ error: "must be a number" }).min(0, "must be at least 0").max(1_000_000, "must be at most 1000000");

/** `paid=10,fixed_1m=180`: plans with their prices. */
const planPrices = z.string().transform((text, context) => {
  const prices: Partial<Record<PlanName, number>> = {};
  for (const item of text.split(",").filter((piece) => piece.trim() !== "")) {
    const [name = "", priceText = ""] = item.split("=").map((piece) => piece.trim());
    const plan = planNames.find((one) => one === name);
    const { data: dollars } = price.safeParse(priceText === "" ? undefined : priceText);
    if (plan === undefined || dollars === undefined || prices[plan] !== undefined) {
      const message = `${JSON.stringify(item.slice(0, 100))} is not a plan and its price; write it as paid=10,fixed_1m=180, each of ${planNames.join(", ")} at most once`;
      context.addIssue({ code: "custom", message });
      return z.NEVER;
    }
    prices[plan] = dollars;
  }
  return prices;
});

const textList = z.string().transform((text) =>
  text
    .split(",")
    .map((item) => item.trim())
    .filter(Boolean),
);

const networkList = textList.superRefine((allow, context) => {
  try {
    createEgress({ allow });
  } catch (error) {
    context.addIssue({ code: "custom", message: error instanceof Error ? error.message : String(error) });
  }
});

/** As a browser says it in the header `Origin`: no path, and no port that is the usual one. */
function isOrigin(text: string): boolean {
  if (/^https?:/i.test(text)) return URL.canParse(text) && new URL(text).origin === text;
  return /^[a-z][a-z0-9+.-]*:\/\/[\w.:-]+$/.test(text);
}

const originList = textList.superRefine((originTexts, context) => {
  const invalid = originTexts.find((one) => one !== "*" && !isOrigin(one));
  const problem =
    invalid !== undefined
      ? `${JSON.stringify(invalid.slice(0, 200))} is not an origin; write it as https://app.example.com, in lower case and without a path, or * for all`
      : originTexts.includes("*") && originTexts.length > 1
        ? "* is every origin; leave out the others"
        : null;
  if (problem !== null) context.addIssue({ code: "custom", message: problem });
});

/** What can be said of proxies besides networks. */
const proxyNames = ["loopback", "linklocal", "uniquelocal"];

const proxyList = textList.superRefine((proxyTexts, context) => {
  const everyone = proxyTexts.find((name) => /\/0+$/.test(name));
  if (everyone !== undefined)
    context.addIssue({ code: "custom", message: `${JSON.stringify(everyone)} is everybody, who could then claim any address` });
  try {
    createEgress({ allow: proxyTexts.filter((name) => !proxyNames.includes(name)) });
  } catch (error) {
    context.addIssue({
      code: "custom",
      message: `${error instanceof Error ? error.message : String(error)}, or one of ${proxyNames.join(", ")}`,
    });
  }
});

const keyRing = z.string().superRefine((keysText, context) => {
  try {
    if (keysText !== "") parseKeyRing(keysText, "the setting");
  } catch (error) {
    context.addIssue({ code: "custom", message: error instanceof Error ? error.message : String(error) });
  }
});

/** A port, or none. */
const portOrNone = z.union([z.literal("").transform(() => null), integer(0, 65535)], { error: "must be a whole number from 0 to 65535" });

/** A folder, a URL, an address: text that is used as it is. */
const text = z.string().min(1, "must not be empty");

/**
 * Every setting of the server: its flag, its environment variable (`WAYPOST_` and the name in capitals), its default,
 * what it takes. The help and the guide are made of these rows.
 */
export const serverSettings = {
  port: { takes: integer(0, 65535), default: "8080", value: "<n>", help: "port to listen on; 0 takes a free one" },
  host: { takes: text, default: "127.0.0.1", value: "<address>", help: "address to listen on; 0.0.0.0 listens on all" },
  accountPort: {
    takes: portOrNone,
    default: "",
    value: "<n>",
    help: "another port, at which there are only the requests about accounts; they stay where they are besides",
  },
  operatorPassword: {
    takes: z.string().regex(new RegExp(`^(.{${shortestPassword},1000})?$`), `must have ${shortestPassword} characters or more`),
    default: "",
    value: "<password>",
    help: "turns on the requests under /v2/admin, for whoever has it",
  },
  data: { takes: text, default: "./data", value: "<folder>", help: "folder of the embedded store; one server per folder" },
  databaseUrl: {
    takes: z.string().regex(/^$|^postgres(ql)?:\/\//, "must begin with postgres://"),
    default: "",
    value: "<url>",
    help: "postgres://… keeps everything in PostgreSQL instead of a folder",
  },
  keys: {
    takes: keyRing,
    default: "",
    value: "<keys>",
    help: "what secrets are sealed with, as waypost keys new prints it; several as 2:…,1:…, of which the first seals",
  },
  keysFile: { takes: z.string(), default: "", value: "<file>", help: "the same in a file; without it, the file keys in the data folder" },
  databasePooling: {
    takes: z.enum(["session", "transaction"], { error: "must be session or transaction" }),
    default: "session",
    value: "<mode>",
    help: "transaction: between this server and PostgreSQL is a pooler in transaction mode, such as PgBouncer",
  },
  egressAllow: {
    takes: networkList,
    default: "",
    value: "<networks>",
    help: "networks that may be called although they are not public, such as 10.0.0.0/8,::1/128",
  },
  hands: { takes: integer(1, 100_000), default: "1024", value: "<n>", help: "deliveries running at once, in all" },
  handsPerHost: { takes: integer(1, 100_000), default: "512", value: "<n>", help: "deliveries running at once to one host" },
  connectTimeout: { takes: duration(100), default: "10s", value: "<duration>", help: "how long a connection to a destination may take" },
  responseLimit: {
    takes: integer(0, 64 * 1024 * 1024),
    default: "1048576",
    value: "<bytes>",
    help: "dead letters keep response bodies up to this size",
  },
  logRetention: { takes: duration(minute), default: "3d", value: "<duration>", help: "how long message logs are kept" },
  dlqRetention: { takes: duration(minute), default: "7d", value: "<duration>", help: "how long dead letters are kept" },
  auditRetention: { takes: duration(minute), default: "90d", value: "<duration>", help: "how long the audit log is kept" },
  grace: { takes: duration(0), default: "10s", value: "<duration>", help: "how long running deliveries may take when the server stops" },
  maxQueues: { takes: integer(1, 1_000_000), default: String(limits.queues), value: "<n>", help: "queues that an account may have" },
  brand: {
    takes: z.enum(["svc", "upstash"], { error: "must be svc or upstash" }),
    default: "svc",
    value: "<name>",
    help: "whose names deliveries have (Svc-Signature or Upstash-Signature), where the publish shows neither",
  },
  region: {
    takes: z
      .string()
      .toUpperCase()
      .pipe(z.enum(["EU-CENTRAL-1", "US-EAST-1"], { error: "must be eu-central-1 or us-east-1" })),
    default: "us-east-1",
    value: "<name>",
    help: "what deliveries and the records of accounts name as the region: eu-central-1 or us-east-1",
  },
  sendsFrom: {
    takes: networkList,
    default: "",
    value: "<networks>",
    help: "public networks that deliveries come from, for those who ask at /v2/svc/ipv4",
  },
  messagePrice: { takes: price, default: "0", value: "<dollars>", help: "what statistics tell that 100,000 messages cost" },
  workflowPrice: { takes: price, default: "0", value: "<dollars>", help: "the same of messages of workflows" },
  bandwidthPrice: { takes: price, default: "0", value: "<dollars>", help: "the same of a gigabyte of bodies, in or out" },
  reservedPrices: {
    takes: planPrices,
    default: "",
    value: "<plan=dollars,…>",
    help: "what the records of accounts name as the price of their plan, such as paid=10,fixed_1m=180",
  },
  publicUrl: {
    takes: z
      .string()
      .regex(/^$|^https?:\/\/[^/?#\s]+(\/[^?#\s]*)?$/, "must be a URL with http:// or https://, without a query")
      .transform((url) => url.replace(/\/+$/, "")),
    default: "",
    value: "<url>",
    help: "where others reach this server; without it, wherever a request was addressed to",
  },
  corsOrigin: {
    takes: originList,
    default: "",
    value: "<origins>",
    help: "origins of web pages that may send with a token and read the answers, such as https://app.example.com, or * for all",
  },
  refusedPerSecond: {
    takes: integer(1, 1_000_000),
    default: String(defaultRefusedPerSecond),
    value: "<n>",
    help: "requests of one address that may be refused, or have no valid token, in a second; others are not limited",
  },
  fastPath: {
    takes: z.enum(["on", "off"], { error: "must be on or off" }).transform((given) => given === "on"),
    default: "on",
    value: "<on|off>",
    help: "off: plain publishes go through the HTTP framework too, with the same responses and about 15 % more CPU time per message",
  },
  trustProxy: { takes: proxyList, default: "", value: "<networks>", help: "reverse proxies whose X-Forwarded-For is believed" },
  logLevel: {
    takes: z.enum(["trace", "debug", "info", "warn", "error", "silent"], { error: "must be trace, debug, info, warn, error or silent" }),
    default: "info",
    value: "<level>",
    help: "debug logs each request and each attempt",
  },
} as const;

export type ServerSettingName = keyof typeof serverSettings;
export type ServerConfig = { [N in ServerSettingName]: z.output<(typeof serverSettings)[N]["takes"]> };

export const serverSettingNames: readonly ServerSettingName[] = Object.keys(serverSettings).filter(
  (name): name is ServerSettingName => name in serverSettings,
);

const toKebabCase = (name: string): string => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
export const toFlag = (name: ServerSettingName): string => `--${toKebabCase(name)}`;
export const toVariable = (name: ServerSettingName): string => `WAYPOST_${toKebabCase(name).replaceAll("-", "_").toUpperCase()}`;

/** The settings are not usable; the text says which, where it was set, and what it may be. */
export class ConfigRefused extends Error {}

/** Reads all settings: a flag wins over the environment, that over the default. Unknown `WAYPOST_` variables are refused. */
export function readConfig(flags: Partial<Record<ServerSettingName, string>>, environment: NodeJS.ProcessEnv): ServerConfig {
  const known = new Set<string>(serverSettingNames.map(toVariable));
  const unknown = Object.keys(environment).find((name) => name.startsWith("WAYPOST_") && !known.has(name) && !clientVariables.has(name));
  if (unknown) throw new ConfigRefused(`${unknown}: there is no such setting; see waypost start --help`);
  const readSetting = (name: ServerSettingName): unknown => {
    const flag = flags[name];
    const variable = environment[toVariable(name)];
    const result = serverSettings[name].takes.safeParse(flag ?? variable ?? serverSettings[name].default);
    if (result.success) return result.data;
    const where = flag === undefined ? toVariable(name) : toFlag(name);
    throw new ConfigRefused(`${where}: ${result.error.issues.map(({ message }) => message).join("; ")}`);
  };
  return Object.fromEntries(serverSettingNames.map((name) => [name, readSetting(name)])) as ServerConfig;
}

/** What `waypost credentials` prints for clients may stand in the same environment. */
const clientVariables: ReadonlySet<string> = new Set([
  ...["WAYPOST_URL", "WAYPOST_TOKEN", "WAYPOST_CURRENT_SIGNING_KEY", "WAYPOST_NEXT_SIGNING_KEY"],
  ...["WAYPOST_ACCOUNT_ID", "WAYPOST_USER", "WAYPOST_PASSWORD", "WAYPOST_SEED"],
]);
