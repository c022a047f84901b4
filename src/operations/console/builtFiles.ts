import { existsSync, readdirSync, readFileSync } from "node:fs";
import { extname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import type { BuiltConsole, ConsoleFile } from "./files.ts";

/** The folder with the built console. `npm run build:console` writes it. */
const folder = fileURLToPath(new URL("../../../console/dist", import.meta.url));

const types: Readonly<Record<string, string>> = {
  ".css": "text/css; charset=utf-8",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".svg": "image/svg+xml",
};

/**
 * Returns the files of the built console, or null if it has not been built. They are kept in memory: they are
 * small, and no request can then name another file of the disk.
 */
export function readBuiltConsole(from = folder): BuiltConsole {
  if (!existsSync(join(from, "index.html"))) return null;
  const paths = readdirSync(from, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && extname(entry.name) in types)
    .map((entry) => join(entry.parentPath, entry.name));
  return new Map(paths.map((path) => [relative(from, path).replaceAll(sep, "/"), readFile(path)] as const));
}

function readFile(path: string): ConsoleFile {
  const readOptional = (name: string): Buffer | undefined =>
    existsSync(name) ? readFileSync(name) : undefined;
  const br = readOptional(`${path}.br`);
  const gzip = readOptional(`${path}.gz`);
  return {
    type: types[extname(path)] ?? "application/octet-stream",
    body: readFileSync(path),
    ...(br && { br }),
    ...(gzip && { gzip }),
  };
}
