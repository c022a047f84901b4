import {
  chmodSync,
  existsSync,
  mkdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { CommandFailed } from "./terminal/commandFailed.ts";
import type { ServerAddress } from "./connection.ts";
import { isObject, readRaw } from "./terminal/fields.ts";

/** Returns the file in which `waypost login` keeps the address and the token. */
export const toLoginPath = (environment: NodeJS.ProcessEnv): string =>
  join(environment["XDG_CONFIG_HOME"] || join(homedir(), ".config"), "waypost", "login.json");

/** Stores a login. Only this user can read the file. If the path is a link, its target is replaced. */
export function storeLogin(path: string, { url, token }: ServerAddress): void {
  try {
    makeFolder(dirname(path));
    const target = existsSync(path) ? realpathSync(path) : path;
    const next = `${target}.${process.pid}`;
    writeFileSync(next, `${JSON.stringify({ url, token })}\n`, { mode: 0o600, flag: "wx" });
    chmodSync(next, 0o600);
    renameSync(next, target);
  } catch (error) {
    throw new CommandFailed(
      "failed",
      `${path}: cannot be written (${toReason(error)}); set WAYPOST_URL and WAYPOST_TOKEN instead`,
    );
  }
}

/** Makes a folder and those above it. The recursive `mkdirSync` of Node does not return for some in /proc. */
function makeFolder(folder: string): void {
  if (existsSync(folder)) return;
  if (dirname(folder) !== folder) makeFolder(dirname(folder));
  mkdirSync(folder, { mode: 0o700 });
}

/**
 * Removes the login, even if it is damaged or others can read it. If the path is a link, its target is
 * removed, too. Reports whether there was a login.
 */
export function removeLogin(path: string): boolean {
  try {
    const existed = existsSync(path);
    if (existed) rmSync(realpathSync(path));
    rmSync(path, { force: true });
    return existed;
  } catch (error) {
    throw new CommandFailed("failed", `${path}: cannot be removed (${toReason(error)})`);
  }
}

/** Returns the stored login, or null. Fails if others can read its file. */
function readLogin(path: string): ServerAddress | null {
  let text: string;
  try {
    if (process.platform !== "win32" && (statSync(path).mode & 0o077) !== 0)
      throw new CommandFailed(
        "usage",
        `${path}: other users can read the token in this file; run chmod 600 on it, and replace the token`,
      );
    text = readFileSync(path, "utf8");
  } catch (error) {
    if (error instanceof CommandFailed) throw error;
    if (Reflect.get(Object(error), "code") === "ENOENT") return null;
    throw new CommandFailed("failed", `${path}: cannot be read (${toReason(error)})`);
  }
  const login = parseLogin(text);
  if (login === null)
    throw new CommandFailed("usage", `${path}: is damaged; run waypost login again to replace it`);
  return login;
}

function parseLogin(text: string): ServerAddress | null {
  try {
    const value: unknown = JSON.parse(text);
    if (!isObject(value)) return null;
    const [url, token] = [readRaw(value, "url"), readRaw(value, "token")];
    return { url: parseServerUrl("url", url), token: parseToken("token", token) };
  } catch {
    return null;
  }
}

const toReason = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** Returns the address of a server without slashes at its end. Fails if it is not an address. */
export function parseServerUrl(source: string, text: string): string {
  const url = text.trim().replace(/\/+$/, "");
  if (!/^https?:\/\/[\x21-\x7e]+$/i.test(url) || !URL.canParse(url))
    throw new CommandFailed("usage", `${source}: "${text}" is not an address such as http://127.0.0.1:8080`);
  const { username, search, hash, origin, pathname } = new URL(url);
  if (username !== "" || search !== "" || hash !== "")
    throw new CommandFailed("usage", `${source}: must be an address without a user, a query or a fragment`);
  return `${origin}${pathname.replace(/\/+$/, "")}`;
}

/** Returns a token. Fails if a header cannot contain it. */
export function parseToken(source: string, text: string): string {
  const token = text.trim();
  if (/^[\x21-\x7e]+$/.test(token)) return token;
  throw new CommandFailed(
    "usage",
    token === "" ? `${source}: is empty` : `${source}: contains characters that a token cannot have`,
  );
}

/**
 * Returns the server of a command: `WAYPOST_URL` and `WAYPOST_TOKEN`, or the stored login. The stored token
 * is sent only to the server that it was stored for.
 */
export function findServer(environment: NodeJS.ProcessEnv): ServerAddress {
  const { WAYPOST_URL: givenUrl, WAYPOST_TOKEN: givenToken } = environment;
  const stored = givenUrl && givenToken ? null : readLogin(toLoginPath(environment));
  const url = givenUrl ? parseServerUrl("WAYPOST_URL", givenUrl) : stored?.url;
  if (url === undefined)
    throw new CommandFailed(
      "usage",
      "no server is known; run waypost login <url>, or set WAYPOST_URL and WAYPOST_TOKEN",
    );
  const token = givenToken
    ? parseToken("WAYPOST_TOKEN", givenToken)
    : stored?.url === url
      ? stored.token
      : undefined;
  if (token === undefined)
    throw new CommandFailed(
      "usage",
      `no token is known for ${url}; set WAYPOST_TOKEN, or run waypost login ${url}`,
    );
  return { url, token };
}
