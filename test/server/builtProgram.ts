import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
} from "node:fs";
import { join } from "node:path";

const project = join(import.meta.dirname, "../..");
const cache = join(project, "node_modules/.cache/program");
/** The files that the program is built from, besides the dependencies. */
const sources = ["src/**/*.{ts,sql}", "launch/*", "scripts/build/*", "console/dist/.sources"];
const others = ["package.json", "package-lock.json", "CHANGELOG.md", "LICENSE", "NOTICE", "docs/package.md"];

let folder: string | null = null;

/**
 * Returns the folder of the program as `npm run build` writes it. The program is built once for each state of
 * the sources. It starts in a third of the time that the sources take, and is what people run.
 */
function builtProgram(): string {
  folder ??= build(join(cache, hashSources()));
  return folder;
}

/** The server and the commands that need no running one. */
export const builtServer = (): string => join(builtProgram(), "server/waypost.cjs");

/** The command of the package. */
export const builtCommand = (): string => join(builtProgram(), "launch/waypost.js");

function build(target: string): string {
  if (existsSync(target)) return target;
  mkdirSync(cache, { recursive: true });
  removeOld();
  const unfinished = mkdtempSync(join(cache, "unfinished-"));
  const built = join(unfinished, "built");
  const args = [join(project, "scripts/run.js"), "scripts/build/main.ts", built, "--without-site"];
  const { status, stderr } = spawnSync(process.execPath, args, { cwd: project, encoding: "utf8" });
  if (status !== 0) throw new Error(`the program could not be built: ${stderr}`);
  try {
    renameSync(built, target);
  } catch (error) {
    // Another worker was faster.
    if (!existsSync(target)) throw error;
  }
  rmSync(unfinished, { recursive: true, force: true });
  return target;
}

/** Removes what was built more than a day ago. */
function removeOld(): void {
  for (const name of readdirSync(cache)) {
    const { mtimeMs } = statSync(join(cache, name), { throwIfNoEntry: false }) ?? { mtimeMs: Infinity };
    if (mtimeMs < Date.now() - 86_400_000) rmSync(join(cache, name), { recursive: true, force: true });
  }
}

/** Returns a hash of the contents, because times may be any. */
function hashSources(): string {
  const hash = createHash("sha256").update(process.version);
  const names = [...globSync(sources, { cwd: project }), ...others].toSorted();
  for (const name of names) hash.update(`${name}\0`).update(readFileSync(join(project, name)));
  return hash.digest("hex").slice(0, 16);
}
