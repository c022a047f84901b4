import { resolve } from "node:path";
import type { Command } from "commander";
import { systemClock } from "../../engine/clock/clock.ts";
import {
  resolveDataFolder,
  FolderTaken,
  hasStore,
  toStorePath,
  lockDataFolder,
} from "../../settings/dataFolder.ts";
import type { MoveEndpoint } from "./move.ts";
import { move } from "./move.ts";
import { openSqliteForMove } from "./sqlite.ts";

/** Thrown if a store cannot be moved from here, or to here. The text is for the operator. */
export class MoveRefused extends Error {}

/** Adds the command `waypost migrate-store`, which moves everything from one kind of store to the other. */
export function addMoveCommand(program: Command, { print }: { print(line: string): void }): void {
  program
    .command("migrate-store")
    .description(
      "move everything into another store while no server uses either; " +
        "run it again to continue after an interruption",
    )
    .requiredOption("--from <store>", "sqlite:<folder> or postgres://…")
    .requiredOption("--to <store>", "sqlite:<folder> or postgres://…, empty")
    .option("--force", "move a store again from which everything was moved before")
    .action(async ({ from, to, force = false }: { from: string; to: string; force?: boolean }) => {
      if (from === to) throw new MoveRefused("--from and --to are the same store");
      const source = await openEndpoint(from, { option: "--from", isTarget: false });
      try {
        const target = await openEndpoint(to, { option: "--to", isTarget: true });
        try {
          await move({ from: source, to: target, report: print, now: () => systemClock.now(), force });
          if (await hasEncryptedSecrets(target)) print(formatKeyNotice(source, target));
          print(
            `moved everything from ${source.name} to ${target.name}; ` +
              `start no server on ${source.name} again: it would send unfinished messages a second time, ` +
              "so a server starts there only with --force",
          );
        } finally {
          await target.close();
        }
      } finally {
        await source.close();
      }
    });
}

/** Reports whether a store has encrypted secrets. A move copies them unchanged, without their keys. */
async function hasEncryptedSecrets({ query }: MoveEndpoint): Promise<boolean> {
  // One after another: a connection to PostgreSQL makes one query at a time.
  for (const table of ["accounts", "sources", "server_settings"])
    if ((await query(`select 1 from ${table} where detail like '%"sealed":"%' limit 1`, [])).length > 0)
      return true;
  return false;
}

const formatKeyNotice = (from: MoveEndpoint, to: MoveEndpoint): string =>
  `secrets stay encrypted: servers of ${to.name} need the keys of ${from.name}, ` +
  'from the file "keys" of the data folder, WAYPOST_KEYS_FILE or WAYPOST_KEYS';

/** Opens a store to move from or to. `isTarget`: everything is moved to it. */
async function openEndpoint(
  store: string,
  { option, isTarget }: { option: string; isTarget: boolean },
): Promise<MoveEndpoint> {
  if (/^postgres(ql)?:\/\//.test(store)) {
    const { openPostgresForMove } = await import("./postgres.ts");
    return openPostgresForMove(store, { name: redactUrl(store), isTarget, clock: systemClock });
  }
  const [, path] = /^sqlite:(.+)$/s.exec(store) ?? [];
  if (path === undefined)
    throw new MoveRefused(`${option}: use sqlite:<folder> or postgres://…, such as sqlite:./data`);
  const folder = resolveDataFolder(path);
  if (!isTarget && !hasStore(folder)) throw new MoveRefused(`${option}: no store found in ${folder}`);
  const release = lockFolder(folder);
  try {
    const name = `sqlite:${resolve(folder)}`;
    const endpoint = await openSqliteForMove(toStorePath(folder), { name, isTarget });
    return { ...endpoint, close: () => endpoint.close().finally(release) };
  } catch (error) {
    release();
    throw error;
  }
}

function lockFolder(folder: string): () => void {
  try {
    return lockDataFolder(folder);
  } catch (error) {
    if (error instanceof FolderTaken)
      throw new MoveRefused(`${folder}: in use by a waypost server; stop the server first`);
    throw error;
  }
}

/** Returns a URL without user, password and options: a password must not get into a log. */
const redactUrl = (url: string): string => url.replace(/^(\w+:\/\/)([^/?#]*@)?([^?#]*).*$/s, "$1$3");
