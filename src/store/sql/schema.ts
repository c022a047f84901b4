import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import type { DatabaseConnection } from "./database.ts";
import { StorageRefused } from "../store.ts";

type DatabaseKind = "sqlite" | "postgres";

/** The schema for one database. `hash`: SHA-256 of what it says, in hex. */
type Schema = { sql: string; hash: string };

/**
 * The version of what is stored in a way that `schema.sql` does not show, such as the JSON in a column or the parts of an id. Raise it with
 * every change of that.
 */
const format = 2;

const text = readFileSync(new URL("./schema.sql", import.meta.url), "utf8");

const schemas = { sqlite: readSchema("sqlite"), postgres: readSchema("postgres") };

/** Returns the schema for one database. */
const schemaFor = (database: DatabaseKind): Schema => schemas[database];

/** Comments and the form of the text do not count, so that a store stays usable when only these change. */
function readSchema(database: DatabaseKind): Schema {
  const sql = toDialect(database, text)
    .replace(/--[^\n]*|\/\*.*?\*\//gs, "")
    .replace(/\s+/g, " ")
    .trim();
  return { sql, hash: createHash("sha256").update(`${format}\n${sql}`).digest("hex") };
}

/**
 * Returns the text for one database: its marked comments become statements. Text is compared byte by byte: SQLite does that by
 * default, and PostgreSQL with the collation C. The rules of a language would not sort ids by time.
 */
function toDialect(database: DatabaseKind, sql: string): string {
  const own = sql.replace(/\/\*(sqlite|postgres):(.*?)\*\//gs, (comment, name: string, content: string) =>
    name === database ? content : comment,
  );
  return database === "postgres" ? own.replace(/^( +\w+ text)\b/gm, `$1 collate "C"`) : own;
}

/** The table that names the schemas by which programs may work with the tables. It has a row for each of them; today there is one. */
const schemaTable = "store_schema";

const versions =
  "another development version of Waypost; the schema may change without a migration until 0.1.0, so this version cannot use it";

/** Returns why the store cannot be opened. `name`: the file of the store, or "the database". `place`: what to begin with instead. */
const refusal = ({ name, place }: StoreName): string => `${name}: was created by ${versions}; start with ${place}, or use that version`;

/** Said by a server that finds, while it runs, that the tables are no longer those that it created. */
export const replacedSchema = `the tables of the database were replaced by those of ${versions}; start that version`;

/** A column of a select: 1 if this program may work with the tables as they are now. */
export const isSchemaKnown = (database: DatabaseKind): string =>
  `(select count(*) from ${schemaTable} where hash = '${schemaFor(database).hash}') as is_schema_known`;

/** Reports whether a row has the column `isSchemaKnown`, and it says no. */
export const isReplaced = (row: Readonly<Record<string, unknown>> | undefined): boolean => Number(row?.is_schema_known) === 0;

/** The names of a store and of an empty one, in the words of an error. */
export type StoreName = { name: string; place: string };

/** The functions of a database, besides its connection, with which its tables are created. */
export type TableCreation = StoreName & {
  run(sql: string): Promise<void>;
  hasTable(name: string): Promise<boolean>;
  /** True for the target of a move: only there a store of which a part was moved is accepted. */
  isMoveTarget?: boolean;
};

/** Creates the tables of an empty database, within the caller's transaction. Throws `StorageRefused` if there are other tables of Waypost. */
export async function createTables(connection: DatabaseConnection, database: DatabaseKind, creation: TableCreation): Promise<void> {
  const { sql, hash } = schemaFor(database);
  const { run, hasTable, isMoveTarget = false } = creation;
  if (!(await hasTable(schemaTable))) {
    // All versions have this table, and hardly any other program.
    if (await hasTable("dead_letters")) throw new StorageRefused(refusal(creation));
    await run(`create table ${schemaTable} (hash text not null primary key); ${sql}`);
    await connection.query(`insert into ${schemaTable} (hash) values (?)`, [hash]);
    return;
  }
  const found = new Set((await connection.query(`select hash from ${schemaTable}`, [])).map((row) => row.hash));
  if (!found.has(hash)) throw new StorageRefused(refusal(creation));
  if (found.has(unfinishedMove) && !isMoveTarget) {
    throw new StorageRefused("only a part of a store was moved here: run the same waypost migrate-store again, which goes on with it");
  }
}

/** In the table of schemas while a store is being moved into this one, until all of it is there. */
const unfinishedMove = "unfinished move";

/** Statements for the target of a move. */
export const moveMark = {
  find: `select hash from ${schemaTable} where hash = '${unfinishedMove}'`,
  add: `insert into ${schemaTable} (hash) values ('${unfinishedMove}')`,
  remove: `delete from ${schemaTable} where hash = '${unfinishedMove}'`,
} as const;
