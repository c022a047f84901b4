import { readFileSync } from "node:fs";
import { findNearest } from "../engine/core/values/nearest.ts";

/** Thrown for an unusable setting. The text names the setting, where it was set, and what is accepted. */
export class ConfigRefused extends Error {}

/** The value of a setting as a string, and where it was set. `from` is null for a default. */
export type FoundSetting = { text: string; from: string | null };

/** Where a setting may be set. `isSecret`: it may also be in a file that a variable names. */
export type SettingPlaces = {
  name: string;
  flag: string;
  variable: string;
  default: string;
  isSecret: boolean;
  /** A variable that other programs use as well. The setting's own variable overrides it. */
  standardVariable?: string;
};

/** The name of the variable that names a file with the value of a secret. */
export const toFileVariable = (variable: string): string => `${variable}_FILE`;

/**
 * Returns the value of every setting, and where it was set. A flag overrides an environment variable, which
 * overrides the configuration file, which overrides the default.
 */
export function collectSettings(
  settings: readonly SettingPlaces[],
  {
    flags,
    environment,
  }: { flags: Readonly<Record<string, string | undefined>>; environment: NodeJS.ProcessEnv },
): Map<string, FoundSetting> {
  const path = flags.config ?? environment.WAYPOST_CONFIG ?? "";
  const inFile = path === "" ? new Map<string, string>() : readConfigFile(path, settings);
  const find = (setting: SettingPlaces): FoundSetting => {
    const flag = flags[setting.name];
    if (flag !== undefined) return { text: flag, from: setting.flag };
    const { standardVariable: variable } = setting;
    const fromVariable =
      readVariable(setting, environment) ??
      (variable === undefined ? null : readVariable({ ...setting, variable }, environment));
    if (fromVariable) return fromVariable;
    const text = inFile.get(setting.name);
    return text === undefined
      ? { text: setting.default, from: null }
      : { text, from: `${path}: ${setting.name}` };
  };
  return new Map(settings.map((setting) => [setting.name, find(setting)]));
}

function readVariable(
  { variable, isSecret }: SettingPlaces,
  environment: NodeJS.ProcessEnv,
): FoundSetting | null {
  const text = environment[variable];
  const fileVariable = toFileVariable(variable);
  const file = isSecret ? environment[fileVariable] : undefined;
  if (text !== undefined && file !== undefined)
    throw new ConfigRefused(`${variable} and ${fileVariable}: both are set; remove one`);
  if (text !== undefined) return { text, from: variable };
  return file === undefined ? null : { text: readSecret(file, fileVariable), from: fileVariable };
}

/** Returns the value in a file. An empty file is a mistake, and not a way to turn the setting off. */
function readSecret(file: string, variable: string): string {
  const text = readText(file, variable).trim();
  if (text === "")
    throw new ConfigRefused(`${variable}: ${file} is empty; write the value into it, or remove the variable`);
  return text;
}

/** Reads a file that `source` names. Throws `ConfigRefused`. */
export function readText(path: string, source: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new ConfigRefused(`${source}: ${path} cannot be read (${reason}); name a file that can be read`);
  }
}

/** Reads a configuration file: a JSON object with the names of settings. Lists may be lists of texts. */
function readConfigFile(path: string, settings: readonly SettingPlaces[]): Map<string, string> {
  const content = parseObject(readText(path, "--config"), path);
  const names = settings.map(({ name }) => name);
  return new Map(
    Object.entries(content).map(([name, value]) => {
      if (!names.includes(name)) {
        const nearest = findNearest(name, names);
        const advice = nearest === null ? '"waypost config" lists all names' : `did you mean ${nearest}?`;
        throw new ConfigRefused(`${path}: ${JSON.stringify(name.slice(0, 100))} is not a setting; ${advice}`);
      }
      const text = toText(value);
      if (text === null)
        throw new ConfigRefused(
          `${path}: ${name}: must be a string, a number, true, false or a list of strings; change the value`,
        );
      return [name, text] as const;
    }),
  );
}

function parseObject(text: string, path: string): object {
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new ConfigRefused(`${path}: is not valid JSON (${reason}); correct the file`);
  }
  if (typeof content === "object" && content !== null && !Array.isArray(content)) return content;
  throw new ConfigRefused(`${path}: is not a JSON object; write it as {"port": 8080}`);
}

function toText(value: unknown): string | null {
  if (typeof value === "string") return value;
  if (typeof value === "number") return String(value);
  if (typeof value === "boolean") return value ? "on" : "off";
  const isList = Array.isArray(value) && value.every((item) => typeof item === "string");
  return isList ? value.join(",") : null;
}

/**
 * Other variables that may be set: those that `waypost credentials` prints for clients, and the name of the
 * configuration file.
 */
export const otherVariables: ReadonlySet<string> = new Set([
  "WAYPOST_URL",
  "WAYPOST_TOKEN",
  "WAYPOST_CURRENT_SIGNING_KEY",
  "WAYPOST_NEXT_SIGNING_KEY",
  "WAYPOST_ACCOUNT_ID",
  "WAYPOST_USER",
  "WAYPOST_PASSWORD",
  "WAYPOST_SEED",
  "WAYPOST_CONFIG",
]);
