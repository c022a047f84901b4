import { readFileSync, readdirSync } from "node:fs";
import type { Connection } from "./database.ts";
import { StorageRefused } from "../store.ts";

const folder = new URL("./migrations/", import.meta.url);

/** `readableBy`: the oldest version of the program that can work with the tables as they are then. */
type Migration = { version: number; readableBy: number; sql: string };

/** All migrations, first to last, in the words of one database. */
export function migrations(database: "sqlite" | "postgres"): Migration[] {
  const files = readdirSync(folder).filter((name) => /^\d{4}\.sql$/.test(name));
  return files.sort().map((name) => {
    const sql = inWordsOf(database, readFileSync(new URL(name, folder), "utf8"));
    const version = Number(name.slice(0, 4));
    return { version, readableBy: Number(/^-- Readable by (\d+)/.exec(sql)?.[1] ?? version), sql };
  });
}

/**
 * A marked comment is text for one database: it comes alive there, and stays a comment elsewhere. Texts are compared
 * by their bytes: SQLite does so by itself, PostgreSQL else by the rules of some language, by which ids do not sort by birth.
 */
function inWordsOf(database: string, sql: string): string {
  const own = sql.replace(/\/\*(sqlite|postgres):(.*?)\*\//gs, (comment, name: string, text: string) =>
    name === database ? text : comment,
  );
  return database === "postgres" ? own.replace(/^( +\w+ text)\b/gm, `$1 collate "C"`) : own;
}

/** The last version of the tables that this program knows. */
const newest = Math.max(...readdirSync(folder).map((name) => Number(/^(\d{4})\.sql$/.exec(name)?.[1] ?? 0)));

/** Which version of the program the tables demand at least: a column of a select. */
export const oldestReader = `(select max(coalesce(readable_by, version)) from schema_version) as readable_by`;

/** Why this program must leave tables alone that demand such a version; null: it need not. */
export const tooNew = (readableBy: number): string | null =>
  readableBy > newest
    ? `the data has schema version ${readableBy}, this program knows up to ${newest}: start the version of waypost that wrote it, or a newer one`
    : null;

/** The same of the tables as they are now. */
export async function tooNewAt(connection: Connection): Promise<string | null> {
  const [row] = await connection.query(`select ${oldestReader}`, []);
  return tooNew(Number(row?.readable_by));
}

/** Stands among the versions of a store into which everything of another one is being moved, until all of it is there. */
export const unfinishedMove = -1;

/**
 * Since this version of the tables programs look, with all that they change, whether those have become too new for them. The ones
 * before would go on writing, to tables that they do not know.
 */
const noticedSince = 8;

/** What migrations need of a database besides a connection. */
export type Migrating = {
  run(sql: string): Promise<void>;
  /** Whether a store is about to be moved there, or going to be. Only then tables that are half moved are not refused. */
  moves?: boolean;
  /** Keeps all programs out that are at work on these tables, until the transaction ends. They find then what has changed. */
  keepOthersOut?(): Promise<void>;
  /** Whether any program is at work on these tables. */
  hasOthers?(): Promise<boolean>;
};

/**
 * Brings the tables up to this version, within the caller's transaction. Only forward: tables that are newer than this
 * program are left alone, and refused where it could not work with them. A migration that older programs can live with says so in its first
 * line (`-- Readable by 3: …`); they go on then.
 */
export async function migrate(
  connection: Connection,
  database: "sqlite" | "postgres",
  { run, moves = false, keepOthersOut, hasOthers }: Migrating,
): Promise<void> {
  await connection.query(`create table if not exists schema_version (version integer not null)`, []);
  // The first versions had no `readable_by`.
  const versions = await connection.query(`select * from schema_version`, []);
  if (!moves && versions.some(({ version }) => version === unfinishedMove)) {
    throw new StorageRefused("only a part of a store was moved here: run the same waypost migrate-store again, which goes on with it");
  }
  const present = Math.max(0, ...versions.map(({ version }) => Number(version)));
  const trouble = tooNew(Math.max(0, ...versions.map(({ version, readable_by: by }) => Number(by ?? version))));
  if (trouble !== null) throw new StorageRefused(trouble);
  if (present > 0 && present < noticedSince && (await hasOthers?.())) {
    throw new StorageRefused(
      `the data has schema version ${present}, and servers that know no newer one are using it, which would not notice the change: stop all of them first`,
    );
  }
  const pending = migrations(database).filter(({ version }) => version > present);
  if (pending.some(({ readableBy }) => readableBy > present)) await keepOthersOut?.();
  for (const { version, sql } of pending) {
    await run(sql);
    await connection.query(`insert into schema_version (version) values (?)`, [version]);
  }
  const marked = pending.filter(({ version, readableBy }) => readableBy < version);
  for (const { version, readableBy } of marked)
    await connection.query(`update schema_version set readable_by = ? where version = ?`, [readableBy, version]);
}
