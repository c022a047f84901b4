import { readFileSync } from "node:fs";
import { join } from "node:path";

/** Returns the version of a package in this repository. */
export function presentVersion(name: string): string {
  const file = join(import.meta.dirname, "../../../node_modules", name, "package.json");
  return (JSON.parse(readFileSync(file, "utf8")) as { version: string }).version;
}
