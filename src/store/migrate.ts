import { readFileSync, readdirSync } from "node:fs";
import type { Connection } from "./database.ts";
import { StorageRefused } from "./store.ts";

const folder = new URL("./migrations/", import.meta.url);

type Migration = { version: number; sql: string };

/** All migrations, first to last, in the words of one database. */
function migrations(database: "sqlite" | "postgres"): Migration[] {
  const files = readdirSync(folder).filter((name) => /^\d{4}\.sql$/.test(name));
  return files.sort().map((name) => ({
    version: Number(name.slice(0, 4)),
    sql: inWordsOf(database, readFileSync(new URL(name, folder), "utf8")),
  }));
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

/**
 * Brings the tables up to this version, within the caller's transaction. Only forward: tables that are newer than this
 * program are refused untouched.
 */
export async function migrate(connection: Connection, database: "sqlite" | "postgres", run: (sql: string) => Promise<void>): Promise<void> {
  await connection.query(`create table if not exists schema_version (version integer not null)`, []);
  const [row] = await connection.query(`select max(version) as version from schema_version`, []);
  const present = typeof row?.version === "number" ? row.version : 0;
  const all = migrations(database);
  const newest = all.at(-1)?.version ?? 0;
  if (present > newest) {
    throw new StorageRefused(
      `the data has schema version ${present}, this program knows up to ${newest}: start the version of waypost that wrote it, or a newer one`,
    );
  }
  for (const { version, sql } of all.filter((migration) => migration.version > present)) {
    await run(sql);
    await connection.query(`insert into schema_version (version) values (?)`, [version]);
  }
}
