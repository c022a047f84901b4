import { closeSync, existsSync, openSync, rmSync, writeSync } from "node:fs";
import { resolve } from "node:path";
import { systemClock } from "../engine/clock/clock.ts";
import type { Api } from "./api.ts";
import { apiPath } from "./apiPath.ts";
import type { GivenSource, GivenToken } from "./applySchema.ts";
import { compareSettings, listSettings, mergeSettings } from "./applySettings.ts";
import type { ApplyStep } from "./applySteps.ts";
import { compareVerification } from "./applyVerification.ts";
import { compareFields, hiddenDifference, jsonRequest } from "./applySteps.ts";
import { endlessPages } from "./listCommand.ts";
import { CommandFailed } from "./terminal/commandFailed.ts";
import type { Fields } from "./terminal/fields.ts";
import { isObject, readLine, readNumber, readObject, readObjects, readRaw } from "./terminal/fields.ts";
import { toSafeLine } from "./terminal/safeText.ts";

// A server shows the text of a token and the URL of a source once, when it creates them. They go to a file
// that only this user can read, never to the terminal or the log of a pipeline.

/** Reads all pages of a list. */
export async function readAll(api: Api, path: string, rows: string): Promise<Fields[]> {
  const all: Fields[] = [];
  let cursor = "";
  for (let pages = 0; pages < 1_000; pages++) {
    const query = cursor === "" ? {} : { cursor };
    const page = await api.read({ path, query, needs: { one: { [rows]: "objects" } } });
    all.push(...readObjects(page, rows));
    const next = readRaw(page, "cursor");
    if (next === "") return all;
    if (next === cursor) break;
    cursor = next;
  }
  throw endlessPages();
}

/** The sources or tokens that exist, and the folder to which paths are relative. */
export type SecretContext = { api: Api; existing: readonly Fields[]; folder: string };

/** Returns the only one with a name, or null. Fails if there are several. */
function findByName(resource: string, name: string, existing: readonly Fields[]): Fields | null {
  const [found, ...others] = existing.filter((one) => one["name"] === name);
  if (others.length > 0)
    throw new CommandFailed(
      "failed",
      `${toSafeLine(resource)}: ${others.length + 1} have this name; delete the others, or rename one`,
    );
  return found ?? null;
}

/** Returns the steps for a source. `sendsSecrets`: the secrets of an existing source are sent again. */
export function planSource(
  { api, existing, folder }: SecretContext,
  name: string,
  { given, sendsSecrets }: { given: GivenSource; sendsSecrets: boolean },
): ApplyStep[] {
  const resource = `sources.${name}`;
  const { urlFile, settings = new Map(), verification, ...plain } = given;
  const found = findByName(resource, name, existing);
  const shown = found ?? {};
  const verified = verification === undefined ? [] : compareVerification(verification, shown["verification"]);
  const isSecretSent = sendsSecrets && isObject(verification) && verified.length === 0;
  const shownSettings = readObject(shown, "settings");
  const changed = compareSettings(settings, shownSettings).differences;
  const fields = compareFields(plain, shown);
  const differences = [
    ...fields,
    ...verified,
    ...(isSecretSent ? [hiddenDifference("verification", true)] : []),
    ...changed,
  ];
  if (found === null) {
    const path = freeFile(resource, folder, urlFile);
    const body = { ...plain, name, settings: listSettings(settings), verification: verification ?? null };
    const run = (): Promise<void> =>
      saveOnce(path, async () => {
        const made = await api.read({
          ...jsonRequest("POST", "/v2/sources", body),
          needs: { one: { sourceId: "string", url: "string" } },
        });
        return {
          text: readRaw(made, "url"),
          undo: () => remove(api, apiPath`/v2/sources/${readRaw(made, "sourceId")}`),
        };
      });
    return [{ resource, action: "create", differences, run }];
  }
  if (differences.length === 0) return [];
  const request = jsonRequest("PATCH", apiPath`/v2/sources/${readRaw(found, "sourceId")}`, {
    ...Object.fromEntries(fields.map(({ field }) => [field, plain[field as keyof typeof plain]])),
    ...((verified.length > 0 || isSecretSent) && { verification }),
    ...(changed.length > 0 && { settings: mergeSettings(settings, shownSettings) }),
  });
  const run = (): Promise<unknown> => api.read({ ...request, needs: { one: { sourceId: "string" } } });
  return [{ resource, action: "change", differences, run }];
}

/** Returns the steps for a token. A token that exists is not changed, because a server cannot do that. */
export function planToken(
  { api, existing, folder }: SecretContext,
  name: string,
  given: GivenToken,
): ApplyStep[] {
  const resource = `tokens.${name}`;
  const { file, expires, ...rights } = given;
  const found = findByName(resource, name, existing.filter(isValid));
  if (found !== null) {
    const [difference] = compareFields(toSorted(rights), toSorted(found));
    if (!difference) return [];
    throw new CommandFailed(
      "failed",
      `${toSafeLine(resource)}: exists with other ${difference.field}, and a token cannot be changed; ` +
        `revoke ${readLine(found, "tokenId")}, or use another name`,
    );
  }
  const path = freeFile(resource, folder, file);
  const body = { name, ...rights, ...(expires !== undefined && { expires }) };
  const run = (): Promise<void> =>
    saveOnce(path, async () => {
      const made = await api.read({
        ...jsonRequest("POST", "/v2/tokens", body),
        needs: { one: { tokenId: "string", token: "string" } },
      });
      return {
        text: readRaw(made, "token"),
        undo: () => remove(api, apiPath`/v2/tokens/${readRaw(made, "tokenId")}`),
      };
    });
  return [{ resource, action: "create", differences: compareFields({ ...rights, expires }, {}), run }];
}

const isValid = (token: Fields): boolean => (readNumber(token, "expiresAt") ?? Infinity) > systemClock.now();

/** Returns the rights of a token, in an order that does not depend on how they were given. */
const toSorted = ({ verbs, destinations }: Fields): Fields => {
  const sort = (list: unknown): string[] => (Array.isArray(list) ? list.map(String).toSorted() : []);
  return { verbs: sort(verbs), destinations: sort(destinations) };
};

const remove = (api: Api, path: string): Promise<unknown> =>
  api.read({ method: "DELETE", path, needs: { one: {} } });

/** Returns the path of a file that does not exist. Its text may still be in use, so it is not replaced. */
function freeFile(resource: string, folder: string, file: string): string {
  const path = resolve(folder, file);
  if (!existsSync(path)) return path;
  throw new CommandFailed(
    "usage",
    `${toSafeLine(resource)}: does not exist on the server, but ${toSafeLine(path)} does; ` +
      "move the file away, or name another",
  );
}

type Made = { text: string; undo(): Promise<unknown> };

/** Writes a secret that is made now into a new file. If it cannot be written, its making is undone. */
async function saveOnce(path: string, make: () => Promise<Made>): Promise<void> {
  const file = open(path);
  let made: Made | null = null;
  try {
    made = await make();
    writeSync(file, `${made.text}\n`);
    closeSync(file);
  } catch (error) {
    rmSync(path, { force: true });
    if (made === null) throw error;
    await made.undo();
    throw toUnwritable(path, error);
  }
}

function open(path: string): number {
  try {
    return openSync(path, "wx", 0o600);
  } catch (error) {
    throw toUnwritable(path, error);
  }
}

function toUnwritable(path: string, error: unknown): CommandFailed {
  const reason = error instanceof Error ? error.message : String(error);
  return new CommandFailed("failed", `${toSafeLine(path)}: cannot be written (${toSafeLine(reason)})`);
}
