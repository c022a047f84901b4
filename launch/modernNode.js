// Plain JavaScript for Node 20 without dependencies: the Node.js that starts Waypost may be older than that
// which runs it.
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The folder of the project or of the installed package, without a trailing slash. */
export const home = fileURLToPath(new URL("..", import.meta.url)).replace(/[\\/]$/, "");

/** Whether this Node.js can run the server. */
export const isModern = Number(process.versions.node.split(".")[0]) >= 24;

/** Returns a Node.js that can run the server: this one, or the one that npm installed. Null: none. */
export function findModernNode() {
  if (isModern) return process.execPath;
  const packaged = folderOf(
    `node-${process.platform === "win32" ? "win" : process.platform}-${process.arch}`,
  );
  const path = packaged && join(packaged, "bin", process.platform === "win32" ? "node.exe" : "node");
  return path !== null && existsSync(path) ? path : null;
}

/** What to do if no Node.js can run the server. */
export const noModernNode =
  `Node.js 24 or later is needed, this is ${process.version}, ` +
  `and npm has installed none for ${process.platform} ${process.arch}.\n` +
  "Install Node.js 24 from https://nodejs.org or with your package manager, and run the command again.";

/** Returns a Node.js that can run the server. Ends the process if there is none. */
export const modernNode = () => findModernNode() ?? fail(noModernNode);

/**
 * Returns the folder of an installed package, where Node.js finds it: here, or in a parent folder. Returns
 * null if the package is not installed.
 */
export function folderOf(name) {
  for (let at = home; ; at = dirname(at)) {
    const folder = join(at, "node_modules", name);
    if (existsSync(folder)) return folder;
    if (at === dirname(at)) return null;
  }
}

/** Prints a message and ends the process with code 1. */
export function fail(message) {
  process.stderr.write(`waypost: ${message}\n`);
  process.exit(1);
}
