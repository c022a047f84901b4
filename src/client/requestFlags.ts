import { readFileSync } from "node:fs";
import { CommandFailed } from "./terminal/commandFailed.ts";

/** Collects the values of a flag that may be repeated. */
export const collectValues = (value: string, before: readonly string[] = []): string[] => [...before, value];

/**
 * Returns the headers of a request: those that other flags set, and those of flags such as `Svc-Retries: 5`.
 * A header that is not a setting is sent to the destination. A header that is given twice is sent twice, so
 * that the server refuses two values of one setting.
 */
export function toRequestHeaders(
  headerFlags: readonly string[],
  set: Readonly<Record<string, string | undefined>> = {},
): Record<string, string[]> {
  const headers: Record<string, string[]> = {};
  const add = (name: string, value: string): void => {
    (headers[name.toLowerCase()] ??= []).push(value);
  };
  for (const [name, value] of Object.entries(set)) if (value !== undefined) add(name, value);
  for (const text of headerFlags) {
    const [, name = "", value = ""] = /^([\w!#$%&'*+.^`|~-]+):[ \t]*(.*)$/.exec(text) ?? [];
    if (name === "")
      throw new CommandFailed("usage", `--header: "${text}" is not a header such as 'Svc-Retries: 5'`);
    const isSetting = /^(svc|upstash)-/i.test(name);
    add(isSetting ? name : `Svc-Forward-${name}`, value.trim());
  }
  return headers;
}

/** Returns the content of a file, or of the input if the file is "-". */
function readBodyFile(path: string): Buffer {
  try {
    return readFileSync(path === "-" ? 0 : path);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new CommandFailed("usage", `--body-file: ${path} cannot be read (${reason})`);
  }
}

/** Returns a body that is given as a string or as a file, or undefined. */
export function readBody(body: string | undefined, file: string | undefined): Buffer | string | undefined {
  if (body !== undefined && file !== undefined)
    throw new CommandFailed("usage", "--body and --body-file: name only one of the two");
  return file === undefined ? body : readBodyFile(file);
}
