import { createHash } from "node:crypto";
import type { DatabaseConnection } from "./database.ts";
import { schemaText } from "../catalog/schemaText.ts";
import { StorageRefused } from "../layout/storageErrors.ts";
import { findMoved, movedMark, type MovedStore } from "./movedMark.ts";

type DatabaseKind = "sqlite" | "postgres";

/** The schema for one database. `hash` is the SHA-256 of its statements and of `format`, in hex. */
type Schema = { sql: string; hash: string };

/**
 * The version of the stored formats that `schema.sql` does not show, such as the JSON in a column or the
 * parts of an id. Increase it with every change of such a format.
 */
const format = 3;

const schemas = { sqlite: readSchema("sqlite"), postgres: readSchema("postgres") };

/** Returns the schema for one database. */
export const schemaFor = (database: DatabaseKind): Schema => schemas[database];

/** Comments and whitespace are not part of the schema, so a store stays usable if only these change. */
function readSchema(database: DatabaseKind): Schema {
  const sql = toDialect(database, schemaText)
    .replace(/--[^\n]*|\/\*.*?\*\//gs, "")
    .replace(/\s+/g, " ")
    .trim();
  // The order of the statements is not part of the schema: it depends on the files that they are in.
  const statements = sql.split(";").map((statement) => statement.trim());
  const text = statements.toSorted().join(";\n");
  return { sql, hash: createHash("sha256").update(`${format}\n${text}`).digest("hex") };
}

/**
 * Returns the schema for one database: the comments that are marked for it become statements. Text must be
 * compared byte by byte, so that ids sort by time. SQLite does this by default, and PostgreSQL with the
 * collation C.
 */
function toDialect(database: DatabaseKind, sql: string): string {
  const own = sql.replace(/\/\*(sqlite|postgres):(.*?)\*\//gs, (comment, name: string, content: string) =>
    name === database ? content : comment,
  );
  return database === "postgres" ? own.replace(/^( +\w+ text)\b/gm, `$1 collate "C"`) : own;
}

/** The hash of a schema, for each database. */
type SchemaHashes = Readonly<Record<DatabaseKind, string>>;

/** A change of the tables of one released version into those of a later one. All data is kept. */
export type Migration = {
  /** The version that brings the change. */
  version: string;
  /** The schemas before and after. */
  from: SchemaHashes;
  to: SchemaHashes;
  /** Statements in the language of `schema.sql`, with its comments for one of the databases. */
  sql: string;
  /** Whether nodes of the version before can use the new tables. If not, they stop changing anything. */
  allowsOlder: boolean;
};

/** All migrations since 0.1.0, the oldest first. `CONTRIBUTING.md` says how to add one. */
export const migrations: readonly Migration[] = [
  {
    // The hash no longer depends on the order of the statements. The tables are the same.
    version: "0.2.0",
    from: {
      sqlite: "7744b866aa8e75b96a2348747c4de8a1516041cd81221712dddaf3a907a4c1b1",
      postgres: "2b74143555cdb228cd2f784b38a877b9a5fcad25ca3a458ad4154a2e6129b024",
    },
    to: {
      sqlite: "0b742c79fb14380252947e2a6468bc6f8c775d8f5092aaf2b11f7bbab9020991",
      postgres: "f6fcf062269f6f4c85e7a67180c42ba00d9c384bfd6091677d3edcc0980b0e5a",
    },
    sql: "",
    allowsOlder: true,
  },
  {
    // Attempts that an operator ended, and when long attempts began.
    version: "0.2.0",
    from: {
      sqlite: "0b742c79fb14380252947e2a6468bc6f8c775d8f5092aaf2b11f7bbab9020991",
      postgres: "f6fcf062269f6f4c85e7a67180c42ba00d9c384bfd6091677d3edcc0980b0e5a",
    },
    to: {
      sqlite: "a78b9b9df336e359783cc9cbfdc056abfa138d61e04c3cbdb9902de7bb565423",
      postgres: "f69e1d46ea0bdb4d658b7ddff3dfcd5a52f0dae72e3f84a20f9a0c1ad09164de",
    },
    sql:
      "alter table messages add column ended_attempts integer; " +
      "alter table messages add column started_at bigint",
    allowsOlder: true,
  },
  {
    // Series of what became no message.
    version: "0.2.0",
    from: {
      sqlite: "a78b9b9df336e359783cc9cbfdc056abfa138d61e04c3cbdb9902de7bb565423",
      postgres: "f69e1d46ea0bdb4d658b7ddff3dfcd5a52f0dae72e3f84a20f9a0c1ad09164de",
    },
    to: {
      sqlite: "82959ed48a2b27814092c90a7d6689a0cd450e53adf281a1a2e6e0e7b671f38d",
      postgres: "c04047c69f75151365de0aad8f56ada930626e1f9d35294a787c2b88b3eb51da",
    },
    sql: `
create table series (
  account text not null,
  id text not null,
  due_at bigint,
  detail text not null,
  primary key (account, id)
) /*sqlite: without rowid */;
create index series_due on series (due_at, account, id) where due_at is not null;
`,
    allowsOlder: true,
  },
  {
    // The states of outboxes.
    version: "0.2.0",
    from: {
      sqlite: "82959ed48a2b27814092c90a7d6689a0cd450e53adf281a1a2e6e0e7b671f38d",
      postgres: "c04047c69f75151365de0aad8f56ada930626e1f9d35294a787c2b88b3eb51da",
    },
    to: {
      sqlite: "3fc55060d354b01cce0d89d508f59d19380b7dc3712b72b926297c515c550a3f",
      postgres: "1892ca9491de4fe09e5b988843b9a0c278bfa7237519a2dbeecd77765fdd2ec7",
    },
    sql: `create table outboxes (
  account text not null,
  id text not null,
  due_at bigint,
  detail text not null,
  primary key (account, id)
) /*sqlite: without rowid */;
create index outboxes_due on outboxes (due_at, account, id) where due_at is not null`,
    allowsOlder: true,
  },
  {
    // The progress of a run since its last call.
    version: "0.2.0",
    from: {
      sqlite: "3fc55060d354b01cce0d89d508f59d19380b7dc3712b72b926297c515c550a3f",
      postgres: "1892ca9491de4fe09e5b988843b9a0c278bfa7237519a2dbeecd77765fdd2ec7",
    },
    to: {
      sqlite: "58eb9b971e78546e9926d11941c24e48329c71115d6e6946a6343681103ab0bd",
      postgres: "354d86ed6797d63e02115d88308d0514128d4b5a7679d9419bff1cf1a8173a3d",
    },
    sql: "alter table active_runs add column progress text",
    allowsOlder: true,
  },
  {
    // Rejected calls that are kept whole.
    version: "0.2.0",
    from: {
      sqlite: "58eb9b971e78546e9926d11941c24e48329c71115d6e6946a6343681103ab0bd",
      postgres: "354d86ed6797d63e02115d88308d0514128d4b5a7679d9419bff1cf1a8173a3d",
    },
    to: {
      sqlite: "d2611ce9745fa5c6bb6bbc93874792fce0e8b4878f0e57e58742e7f25f7004ae",
      postgres: "8c16d6ac8edcae504f0f1ece9d7830cfa9abd08b1bf97905594a2b2adcc2df89",
    },
    sql: `
create table kept_calls (
  account text not null,
  id text not null,
  due_at bigint,
  detail text not null,
  primary key (account, id)
) /*sqlite: without rowid */;
create index kept_calls_due on kept_calls (due_at, account, id) where due_at is not null;
`,
    allowsOlder: true,
  },
];

/**
 * Returns the migrations that lead from one of the schemas of a store (`found`) to the schema `target`, in
 * order. Returns null if they do not lead there.
 */
export function findUpgrade(
  all: readonly Migration[],
  database: DatabaseKind,
  { found, target }: { found: ReadonlySet<unknown>; target: string },
): Migration[] | null {
  const path: Migration[] = [];
  for (let at = target; !found.has(at);) {
    // A migration for the other database alone leaves the schema of this one as it is.
    const step = all.find(({ from, to }) => to[database] === at && from[database] !== at);
    if (step === undefined || path.includes(step)) return null;
    path.unshift(step);
    at = step.from[database];
  }
  return path;
}

/** The table that lists the schemas of the programs that may use the tables. It has one row per schema. */
const schemaTable = "store_schema";

const versions = "another version of Waypost, which this version cannot use";

/**
 * Returns why the store cannot be opened. `name` is the file of the store, or "the database". `place` names
 * an empty store, with which the server can start instead.
 */
const refusal = ({ name, place }: StoreName): string =>
  `${name}: has tables of ${versions}: a newer one, or one before 0.1.0; start that version, ` +
  `restore the backup from before the upgrade, or start with ${place}`;

/** The error of a running server whose tables were replaced by tables of another version. */
export const replacedSchema =
  "the tables of the database were replaced by those of " + versions + "; start that version";

/** Returns a column for a select: 1 if this program may use the current tables, 0 if not. */
export const isSchemaKnown = (database: DatabaseKind): string =>
  `(select count(*) from ${schemaTable} where hash = '${schemaFor(database).hash}') as is_schema_known`;

/** Reports whether a row with the column of `isSchemaKnown` says that this program may not use the tables. */
export const isReplaced = (row: Readonly<Record<string, unknown>> | undefined): boolean =>
  Number(row?.is_schema_known) === 0;

/** The names of a store and of an empty store, for errors. */
export type StoreName = { name: string; place: string };

/** The functions, in addition to a connection, that create the tables of a database. */
export type TableCreation = StoreName & {
  run(sql: string): Promise<void>;
  hasTable(name: string): Promise<boolean>;
  /** True for the target of a move. In all other cases, a partly moved store is refused. */
  isMoveTarget?: boolean;
  /** True if the tables of an older version are only checked. */
  keepsVersion?: boolean;
  /**
   * Called before anything is changed if everything in the store was moved elsewhere. Throws if the store
   * must not be used; otherwise the mark of the move is removed. Without it, the store is used as it is.
   */
  onMoved?: OnMoved | undefined;
};

/** Decides whether a store from which everything was moved is used. */
export type OnMoved = (moved: MovedStore) => void;

/**
 * Creates the tables of an empty database within the caller's transaction, or changes the tables of an older
 * version. Throws `StorageRefused` if the database has tables of a version that this one cannot use, or of an
 * unfinished move.
 */
export async function createTables(
  connection: DatabaseConnection,
  database: DatabaseKind,
  creation: TableCreation,
): Promise<void> {
  const { sql, hash } = schemaFor(database);
  const { run, hasTable, isMoveTarget = false, keepsVersion = false, onMoved } = creation;
  if (!(await hasTable(schemaTable))) {
    // Stores of older versions have no table of schemas, but they have this table. Hardly any other program
    // has it.
    if (await hasTable("dead_letters")) throw new StorageRefused(refusal(creation));
    await run(`create table ${schemaTable} (hash text not null primary key); ${sql}`);
    await connection.query(`insert into ${schemaTable} (hash) values (?)`, [hash]);
    return;
  }
  const found = new Set(
    (await connection.query(`select hash from ${schemaTable}`, [])).map((row) => row.hash),
  );
  const upgrade = findUpgrade(migrations, database, { found, target: hash });
  if (upgrade === null) throw new StorageRefused(refusal(creation));
  if (found.has(unfinishedMove) && !isMoveTarget) {
    throw new StorageRefused(
      "only a part of a store was moved here: run the same waypost migrate-store again to continue",
    );
  }
  const moved = findMoved(found);
  if (moved !== null && onMoved) {
    onMoved(moved);
    await connection.query(movedMark.remove, []);
  }
  if (keepsVersion) return;
  for (const migration of upgrade) await migrate(connection, database, { migration, run });
}

/**
 * Changes the tables, and lists the schemas whose programs may use them from now on. Programs of another
 * schema notice it with their next transaction. All other rows of the table are marks, and stay.
 */
async function migrate(
  connection: DatabaseConnection,
  database: DatabaseKind,
  { migration, run }: { migration: Migration } & Pick<TableCreation, "run">,
): Promise<void> {
  const { from, to, sql, allowsOlder } = migration;
  await run(toDialect(database, sql));
  await connection.query(`delete from ${schemaTable} where ${isSchemaHash} and hash <> ?`, [
    allowsOlder ? from[database] : to[database],
  ]);
  await connection.query(`insert into ${schemaTable} (hash) values (?)`, [to[database]]);
}

/** Tells the SHA-256 of a schema, in hex, from a mark. A long mark has spaces. */
const isSchemaHash = "length(hash) = 64 and hash not like '% %'";

/** Throws `StorageRefused` if this program may not use the tables of a database. Changes nothing. */
export async function assertSchema(connection: DatabaseConnection, database: DatabaseKind): Promise<void> {
  const isTable =
    database === "sqlite"
      ? "select 1 as found from sqlite_schema where type = 'table' and name = ?"
      : "select 1 as found where to_regclass(?) is not null";
  const [name, place] =
    database === "sqlite" ? ["the store", "an empty data folder"] : ["the database", "an empty database"];
  await createTables(connection, database, {
    name,
    place,
    hasTable: async (table) => (await connection.query(isTable, [table])).length > 0,
    run: async () => {
      throw new StorageRefused(
        `${name}: has no tables of this version; the next start of the server creates or upgrades them`,
      );
    },
  });
}

/** A row of the table of schemas that exists while a store is being moved into this database. */
const unfinishedMove = "unfinished move";

/** Statements for the target of a move. */
export const moveMark = {
  find: `select hash from ${schemaTable} where hash = '${unfinishedMove}'`,
  add: `insert into ${schemaTable} (hash) values ('${unfinishedMove}')`,
  remove: `delete from ${schemaTable} where hash = '${unfinishedMove}'`,
} as const;
