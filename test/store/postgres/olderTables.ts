import { migrations } from "../../../src/store/sql/migrate.ts";

/** Makes the tables of an older version, as the program of that version did. */
export async function makeTablesOf(version: number, database: "sqlite" | "postgres", run: (sql: string) => unknown): Promise<void> {
  await run("create table schema_version (version integer not null)");
  for (const one of migrations(database).filter((migration) => migration.version <= version)) {
    await run(one.sql);
    await run(`insert into schema_version (version) values (${one.version})`);
  }
}
