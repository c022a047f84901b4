// Plain JavaScript, because `waypost dev` calls it with the Node.js that started it.
import { createHash } from "node:crypto";
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join, relative } from "node:path";
import { fail, home } from "../launch/modernNode.js";

/** A build takes at most this long, in milliseconds. */
const longestBuild = 600_000;

/**
 * Calls `build`, which writes the folder `output` with the file `product`, unless that file was built from
 * the same sources.
 */
export function buildOnce({ output, product, sources, build }) {
  const hash = hashFiles([join(home, "package-lock.json"), ...sources]);
  const stamp = join(output, ".sources");
  const describe = () => `${hash} ${statSync(product, { throwIfNoEntry: false })?.size}`;
  const isBuilt = () => existsSync(stamp) && readFileSync(stamp, "utf8") === describe();
  if (isBuilt()) return;
  mkdirSync(dirname(output), { recursive: true });
  // Present while a process builds, so that two processes do not write the same files.
  const lock = `${output}.building`;
  takeLock(lock);
  const release = () => rmSync(lock, { force: true });
  // A build that fails ends the process, or throws in a test.
  process.once("exit", release);
  try {
    if (!isBuilt()) {
      build();
      mkdirSync(output, { recursive: true });
      writeFileSync(stamp, describe());
    }
  } finally {
    process.off("exit", release);
    release();
  }
}

/** Waits until no other process builds. A lock is ignored if it is older than any build takes. */
function takeLock(lock) {
  for (;;) {
    try {
      closeSync(openSync(lock, "wx"));
      return;
    } catch (error) {
      if (error.code !== "EEXIST") fail(`${lock}: ${error.message}`);
      const since = statSync(lock, { throwIfNoEntry: false })?.mtimeMs ?? 0;
      if (Date.now() - since > longestBuild) rmSync(lock, { force: true });
      else Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100);
    }
  }
}

/** Returns a hash of files. It compares contents, because times may be any. */
function hashFiles(files) {
  const hash = createHash("sha256");
  for (const file of files.toSorted()) hash.update(`\n${relative(home, file)}\n`).update(readFileSync(file));
  return hash.digest("hex");
}

/** Returns the files in a folder and the folders below it. */
export const listFiles = (from) =>
  readdirSync(from, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
