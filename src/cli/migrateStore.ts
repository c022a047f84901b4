import type { Command } from "commander";
import { systemClock } from "../clock/clock.ts";
import { dataFolderAt, FolderTaken, hasStore, storePath, takeDataFolder } from "../server/dataFolder.ts";
import type { Side } from "../store/move/move.ts";
import { move } from "../store/move/move.ts";
import { sqliteSide } from "../store/move/sqlite.ts";

/** A store cannot be moved from there, or to there; the text is for people. */
export class MoveRefused extends Error {}

/** `waypost migrate-store`: moves everything from one kind of store to the other. */
export function moveCommand(program: Command, { print }: { print(line: string): void }): void {
  program
    .command("migrate-store")
    .description("move everything into another store, while no server uses either; run again, it goes on where it was interrupted")
    .requiredOption("--from <store>", "sqlite:<folder> or postgres://…")
    .requiredOption("--to <store>", "the same; what is there must be empty")
    .action(async ({ from, to }: { from: string; to: string }) => {
      if (from === to) throw new MoveRefused("--from and --to are the same store");
      const source = await open(from, { option: "--from", moves: false });
      try {
        const target = await open(to, { option: "--to", moves: true });
        try {
          await move({ from: source, to: target, say: print });
          if (await isSealed(target)) print(keysOf(source, target));
          print(
            `moved everything from ${source.name} to ${target.name}; start no server on ${source.name} again, or what is not finished is sent twice`,
          );
        } finally {
          await target.close();
        }
      } finally {
        await source.close();
      }
    });
}

/** Whether anything secret there is sealed. It was moved as it was, and no key with it. */
async function isSealed({ query }: Side): Promise<boolean> {
  const found = await Promise.all(
    ["accounts", "sources"].map((table) => query(`select 1 from ${table} where detail like '%"sealed":"%' limit 1`, [])),
  );
  return found.some((rows) => rows.length > 0);
}

const keysOf = (from: Side, to: Side): string =>
  `what is secret stays sealed: servers of ${to.name} need the keys that those of ${from.name} had, from the file "keys" of the data folder, ` +
  `WAYPOST_KEYS_FILE or WAYPOST_KEYS`;

/** `moves`: it is what everything is moved to. */
async function open(store: string, { option, moves }: { option: string; moves: boolean }): Promise<Side> {
  if (/^postgres(ql)?:\/\//.test(store)) {
    const { postgresSide } = await import("../store/move/postgres.ts");
    return postgresSide(store, { name: withoutSecrets(store), moves, clock: systemClock });
  }
  const [, asked] = /^sqlite:(.+)$/s.exec(store) ?? [];
  if (asked === undefined) throw new MoveRefused(`${option}: must be sqlite:<folder> or postgres://…, such as sqlite:./data`);
  const folder = dataFolderAt(asked);
  if (!moves && !hasStore(folder)) throw new MoveRefused(`${option}: there is no store in ${folder}`);
  const release = takeFolder(folder);
  try {
    const side = await sqliteSide(storePath(folder), { name: store, moves });
    return { ...side, close: () => side.close().finally(release) };
  } catch (error) {
    release();
    throw error;
  }
}

function takeFolder(folder: string): () => void {
  try {
    return takeDataFolder(folder);
  } catch (error) {
    if (error instanceof FolderTaken) throw new MoveRefused(`${folder}: a waypost server is using it; stop that one first`);
    throw error;
  }
}

/** Where it is, without who asks and how: a password must not get into a log. */
const withoutSecrets = (url: string): string => url.replace(/^(\w+:\/\/)([^/?#]*@)?([^?#]*).*$/s, "$1$3");
