// node scripts/buildConsole.js: builds the web console into console/dist, if its sources have changed. Plain
// JavaScript, because `waypost dev` calls it with the Node.js that started it.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  closeSync,
  existsSync,
  openSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { fail, home, modernNode } from "../launch/modernNode.js";
import { install, isMain } from "./install.js";

const folder = join(home, "console");
const output = join(folder, "dist");
/** The hash of the sources that were built. */
const stamp = join(output, ".sources");
/** Present while a process builds, so that two processes do not write the same files. */
const lock = join(folder, ".building");
const longestBuild = 120_000;

/** Builds the console unless the built one has the present sources. Ends the process if that fails. */
export function buildConsole() {
  const sources = hashSources();
  const isBuilt = () => existsSync(stamp) && readFileSync(stamp, "utf8") === sources;
  if (isBuilt()) return;
  takeLock();
  try {
    if (!isBuilt()) build(sources);
  } finally {
    rmSync(lock, { force: true });
  }
}

/** Waits until no other process builds. A lock is ignored if it is older than any build takes. */
function takeLock() {
  for (;;) {
    try {
      closeSync(openSync(lock, "wx"));
      return;
    } catch {
      const since = statSync(lock, { throwIfNoEntry: false })?.mtimeMs ?? 0;
      if (Date.now() - since > longestBuild) rmSync(lock, { force: true });
      else Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100);
    }
  }
}

function build(sources) {
  process.stderr.write("waypost: building the web console\n");
  const vite = join(home, "node_modules", "vite", "bin", "vite.js");
  const { status, error } = spawnSync(
    modernNode(),
    ["--disable-warning=ExperimentalWarning", vite, "build", "--config", join(folder, "vite.config.ts")],
    // Another value, such as that of a test, would build the development version of React.
    { cwd: home, stdio: ["ignore", "ignore", "inherit"], env: { ...process.env, NODE_ENV: "production" } },
  );
  if (error || status !== 0) fail("the web console could not be built, see above");
  compress();
  writeFileSync(stamp, sources);
}

/** Returns a hash of everything that the build depends on. It compares contents, because times may be any. */
function hashSources() {
  const hash = createHash("sha256").update(readFileSync(join(home, "package-lock.json")));
  for (const file of listFiles(folder)
    .filter((path) => !path.startsWith(output) && path !== lock)
    .toSorted())
    hash.update(`\n${file.slice(folder.length)}\n`).update(readFileSync(file));
  return hash.digest("hex");
}

const listFiles = (from) =>
  readdirSync(from, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));

/** Writes a compressed form next to each text file, so that no request waits for it. */
function compress() {
  for (const file of listFiles(output).filter((path) => /\.(js|css|svg)$/.test(path))) {
    const bytes = readFileSync(file);
    writeFileSync(
      `${file}.br`,
      brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }),
    );
    writeFileSync(`${file}.gz`, gzipSync(bytes, { level: 9 }));
  }
}

if (isMain(import.meta.url)) {
  install();
  buildConsole();
}
