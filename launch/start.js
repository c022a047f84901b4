import { mkdirSync, statSync } from "node:fs";
import module from "node:module";
import { homedir } from "node:os";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { followNpm } from "./follow.js";
import { home, isModern, modernNode } from "./modernNode.js";
import { runFile } from "./runFile.js";

/**
 * Runs the command line of the package. If this Node.js is too old, the one that npm installed runs it.
 * Commands for a running server do not load the server.
 */
export async function start(args) {
  followNpm();
  if (!isModern) return runFile(modernNode(), join(home, "launch/waypost.js"), args);
  enableCache();
  const setsGrowth = growthFactor.test(process.env.NODE_OPTIONS ?? "");
  if (isServer(args) && !setsGrowth) setFlagsFromString(smallWhileLoading);
  const load = module.createRequire(import.meta.url);
  if (!isServer(args)) {
    const { runClientCommand } = load("../server/client.cjs");
    if (await runClientCommand(args, process.env)) return;
  }
  load("../server/waypost.cjs");
}

const isServer = ([command]) => command === "start" || command === "dev";

/**
 * Nearly everything that a start creates is kept, so the young generation of V8 would grow to 32 MB, and an
 * idle server would keep them. The server lets it grow when it serves.
 */
const smallWhileLoading = "--semi-space-growth-factor=1";
/** If the operator has set the factor, the start does not change it. */
const growthFactor = /semi[-_]space[-_]growth[-_]factor/;

/**
 * Keeps the compiled server in the user's folder for caches, which halves the time of later starts. A folder
 * in which others can write is not used, because they could put code there. Without a usable folder, nothing
 * is kept.
 */
function enableCache() {
  if (process.env.NODE_COMPILE_CACHE !== undefined || process.platform === "win32") return;
  try {
    const folder = join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "waypost");
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const { uid, mode } = statSync(folder);
    if (uid === process.getuid() && (mode & 0o022) === 0) module.enableCompileCache(folder);
  } catch {
    // The disk is read-only, or the user has no home folder.
  }
}
