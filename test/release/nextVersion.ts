import { execFileSync } from "node:child_process";
import { cpSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { temporaryFolder } from "../server/waypost.ts";

const home = join(import.meta.dirname, "../..");
const schemaFile = "src/engine/store/catalog/schema.sql";
const migrationsFile = "src/engine/store/sql/schema.ts";

type Hashes = { sqlite: string; postgres: string };

/** Returns the hashes of the schema of a version. */
function readHashes(sources: string): Hashes {
  const code =
    `import { isSchemaKnown } from ${JSON.stringify(join(sources, "src/engine/store/sql/schema.ts"))};` +
    `const read = (name) => /'(\\w+)'/.exec(isSchemaKnown(name))[1];` +
    `console.log(JSON.stringify(["sqlite", "postgres"].map(read)))`;
  const out = execFileSync(process.execPath, ["--input-type=module", "-e", code], { encoding: "utf8" });
  const [sqlite = "", postgres = ""] = JSON.parse(out) as string[];
  return { sqlite, postgres };
}

/** A change of the schema: in the text, and as the statements of a migration. */
export type SchemaChange = { replaces: string; by: string; sql: string; allowsOlder: boolean };

/**
 * Makes the sources of a later version than `before` in a temporary folder, with another schema and a
 * migration to it. Returns the folder.
 */
export function makeNextVersion(change: SchemaChange, before: string = home): string {
  const next = temporaryFolder();
  for (const name of ["src", "launch", "package.json"])
    cpSync(join(before, name), join(next, name), { recursive: true });
  symlinkSync(join(home, "node_modules"), join(next, "node_modules"));
  edit(join(next, schemaFile), change.replaces, change.by);
  const migration = {
    version: "9.9.9",
    from: readHashes(before),
    to: readHashes(next),
    sql: change.sql,
    allowsOlder: change.allowsOlder,
  };
  edit(join(next, migrationsFile), "readonly Migration[] = [", `$&${JSON.stringify(migration)}, `);
  return next;
}

function edit(path: string, replaces: string, by: string): void {
  const text = readFileSync(path, "utf8");
  if (!text.includes(replaces)) throw new Error(`${path}: has no ${replaces}`);
  writeFileSync(path, text.replace(replaces, by));
}
