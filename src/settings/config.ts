import type { z } from "zod";
import type { SettingPlaces } from "./configSources.ts";
import { collectSettings, ConfigRefused, otherVariables, toFileVariable } from "./configSources.ts";
import { credentialRows } from "./rows/credentialRows.ts";
import { deliveryRows } from "./rows/deliveryRows.ts";
import { accessRows, addressRows } from "./rows/networkRows.ts";
import { logRows, priceRows, runningRows } from "./rows/runningRows.ts";
import { limitRows, storeRows } from "./rows/storeRows.ts";

/** The settings of the server by subject, in the order of the help. */
export const settingGroups = [
  { title: "Addresses and proxies", rows: addressRows },
  { title: "Operator and console", rows: accessRows },
  { title: "Credentials of the first account", rows: credentialRows },
  { title: "Store", rows: storeRows },
  { title: "Limits and retention", rows: limitRows },
  { title: "Deliveries", rows: deliveryRows },
  { title: "Log, metrics and traces", rows: logRows },
  { title: "Running", rows: runningRows },
  { title: "Prices", rows: priceRows },
] as const;

/**
 * Every setting of the server: its flag, its environment variable (`WAYPOST_` and the name in capitals), its
 * default, its values and an example. The help and docs/configuration.md are generated from these rows.
 */
export const serverSettings = {
  ...addressRows,
  ...accessRows,
  ...credentialRows,
  ...storeRows,
  ...limitRows,
  ...deliveryRows,
  ...logRows,
  ...runningRows,
  ...priceRows,
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

/** The credentials of the first account. */
const credentialNames = ["ownerToken", "signingKey", "nextSigningKey"] as const;

/** Secrets. They are hidden, and a variable with the ending `_FILE` may name a file with the value. */
const secrets: ReadonlySet<ServerSettingName> = new Set([
  "operatorPassword",
  ...credentialNames,
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

/**
 * Reports whether a setting has a flag. Some secrets have none, because every user of a machine can read
 * command lines.
 */
export const isFlag = (name: ServerSettingName): boolean =>
  name !== "operatorPassword" && name !== "otlpHeaders" && !credentialNames.some((one) => one === name);

/** Where each setting may be set, in the order of `serverSettingNames`. */
export const settingPlaces: readonly SettingPlaces[] = serverSettingNames.map((name) => ({
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
  assertKnownVariables(environment);
  const settingTexts = collectSettings(settingPlaces, { flags, environment });
  const readSetting = (name: ServerSettingName): unknown => {
    const { text, from } = settingTexts.get(name) ?? { text: serverSettings[name].default, from: null };
    const result = serverSettings[name].takes.safeParse(text);
    if (result.success) return result.data;
    const problem = [...new Set(result.error.issues.map(({ message }) => message))].join("; ");
    throw new ConfigRefused(`${from ?? toVariable(name)}: ${problem}`);
  };
  const config = Object.fromEntries(
    serverSettingNames.map((name) => [name, readSetting(name)]),
  ) as ServerConfig;
  if (config.trustUserHeader !== "" && config.trustProxy.length === 0)
    throw new ConfigRefused(
      `${toFlag("trustUserHeader")}: requires ${toFlag("trustProxy")}; name the proxies that set the header`,
    );
  assertWholeCredentials(config);
  return config;
}

/**
 * Refuses a part of the credentials. Clients read the variable of the next key too, so it may be set alone,
 * and then means nothing to the server.
 */
function assertWholeCredentials({ ownerToken, signingKey, nextSigningKey }: ServerConfig): void {
  const advice = '"waypost credentials --new" prints all three';
  const [token, current, next] = credentialNames.map(toVariable);
  if (ownerToken === "" && signingKey !== "")
    throw new ConfigRefused(`${current}: requires ${token}; ${advice}`);
  if (ownerToken !== "" && (signingKey === "" || nextSigningKey === ""))
    throw new ConfigRefused(`${token}: requires ${current} and ${next}; ${advice}`);
  if (ownerToken !== "" && signingKey === nextSigningKey)
    throw new ConfigRefused(`${next}: is the same key as ${current}; ${advice}`);
}

function assertKnownVariables(environment: NodeJS.ProcessEnv): void {
  const link = Object.keys(environment).find((name) => isServiceLink(name, environment[name]));
  if (link !== undefined)
    throw new ConfigRefused(
      `${link}: is set by Kubernetes for a service of this name (service links); ` +
        "set enableServiceLinks: false in the pod",
    );
  const known = new Set([
    ...settingPlaces.flatMap(({ variable, isSecret }) =>
      isSecret ? [variable, toFileVariable(variable)] : [variable],
    ),
    ...otherVariables,
  ]);
  const unknown = Object.keys(environment).find((name) => name.startsWith("WAYPOST_") && !known.has(name));
  if (unknown !== undefined) throw new ConfigRefused(`${unknown}: unknown setting; see waypost start --help`);
}

/** Reports whether Kubernetes has set a variable for a service named `waypost` or `waypost-…`. */
const isServiceLink = (name: string, text: string | undefined): boolean =>
  /^WAYPOST_(?:.+_)?SERVICE_(?:HOST|PORT(?:_.+)?)$/.test(name) ||
  (/^WAYPOST_(?:.+_)?PORT$/.test(name) && /^(?:tcp|udp|sctp):\/\//.test(text ?? ""));

/** A setting as people see it: secrets are hidden. `from` is where it was set, or null for a default. */
export type ExplainedSetting = { name: ServerSettingName; value: string; from: string | null };

/** Returns every setting with its value and where it was set. Throws `ConfigRefused` if one is unusable. */
export function explainConfig(flags: SettingFlags, environment: NodeJS.ProcessEnv): ExplainedSetting[] {
  readConfig(flags, environment);
  const settingTexts = collectSettings(settingPlaces, { flags, environment });
  return serverSettingNames.map((name) => {
    const { text, from } = settingTexts.get(name) ?? { text: "", from: null };
    return { name, value: isHidden(name) && text !== "" ? "(hidden)" : text, from };
  });
}
