// Runs on Node 20 already, so that a fresh machine needs nothing but Node and npm: plain JavaScript, no dependencies.
import { spawnSync } from "node:child_process";
import { existsSync, linkSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The folder of the project, without a slash at the end. */
export const home = fileURLToPath(new URL("..", import.meta.url)).replace(/[\\/]$/, "");

/** Whether this is a clone of the repository, as opposed to an installation. */
export const isCheckout = existsSync(join(home, ".git"));

/** Ends the process with advice when a package is missing that the server needs. Changes nothing. */
export function mustBeInstalled() {
  const { dependencies } = JSON.parse(readFileSync(join(home, "package.json"), "utf8"));
  const missing = Object.keys(dependencies).filter((name) => folderOf(name) === null);
  if (missing.length === 0) return;
  fail(`packages are missing (${missing.join(", ")}). Run "npm ci --omit=dev" in ${home}, and run the command again.`);
}

/** The folder of an installed package, where Node.js looks for it: here, or in a folder above. Null: it is not installed. */
function folderOf(name) {
  for (let at = home; ; at = dirname(at)) {
    const folder = join(at, "node_modules", name);
    if (existsSync(folder)) return folder;
    if (at === dirname(at)) return null;
  }
}

/**
 * Runs `npm ci` when node_modules is missing or differs from package-lock.json; says so in one line. Of several that
 * are started at once, one installs and the others wait. Ends the process when it fails.
 */
export function install() {
  if (installed()) return;
  if (!takeLock()) waitForOther();
  process.once("exit", releaseLock);
  if (!installed()) runNpm();
  releaseLock();
}

/** Holds the number of the process that installs. */
const lock = join(home, ".installing");

/** A link to a file that is written already: it either comes to be, whole, or there is one. */
function takeLock() {
  const mine = `${lock}.${process.pid}`;
  writeFileSync(mine, String(process.pid));
  try {
    linkSync(mine, lock);
    return true;
  } catch {
    return false;
  } finally {
    rmSync(mine);
  }
}

const releaseLock = () => holder() === process.pid && rmSync(lock, { force: true });

function holder() {
  try {
    return Number(readFileSync(lock, "utf8"));
  } catch {
    return null;
  }
}

function waitForOther() {
  process.stderr.write("waypost: dependencies are being installed from another terminal; waiting for it\n");
  while (!takeLock()) {
    const other = holder();
    if (other !== null && !isAlive(other)) rmSync(lock, { force: true });
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200);
  }
}

function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === "EPERM";
  }
}

function runNpm() {
  const missing = !existsSync(join(home, "node_modules"));
  const reason = missing ? "first run, about half a minute" : "they are not those of package-lock.json";
  process.stderr.write(`waypost: installing dependencies (${reason}): npm ci\n`);
  const { error, status } = spawnSync("npm", ["ci", "--include=dev", "--include=optional", "--no-audit", "--no-fund", "--loglevel=error"], {
    cwd: home,
    stdio: ["ignore", "ignore", "inherit"],
    shell: process.platform === "win32",
  });
  if (error) fail(`npm could not be started (${error.message}). Install npm, which comes with Node.js, and run the command again.`);
  if (status !== 0) fail("npm ci failed, see above. Check the network and the npm registry settings, then run the command again.");
}

/** A Node.js that runs the sources: this one from version 24 on, otherwise the one that npm installed. Ends the process when there is none. */
export function modernNode() {
  if (isModern) return process.execPath;
  const packaged = folderOf(`node-${process.platform === "win32" ? "win" : process.platform}-${process.arch}`);
  const path = packaged && join(packaged, "bin", process.platform === "win32" ? "node.exe" : "node");
  if (path !== null && existsSync(path)) return path;
  fail(
    `Node.js 24 or later is needed, this is ${process.version}, and npm has none for ${process.platform} ${process.arch}.\n` +
      "Install Node.js 24 from https://nodejs.org or with your package manager, and run the command again.",
  );
}

/** Whether this Node.js runs TypeScript sources as they are. */
export const isModern = Number(process.versions.node.split(".")[0]) >= 24;

export function fail(message) {
  process.stderr.write(`waypost: ${message}\n`);
  process.exit(1);
}

/** Whether a module is the one that Node.js was started with. */
export const isMain = (url) => process.argv[1] !== undefined && realpathSync(process.argv[1]) === fileURLToPath(url);

/** Compares contents, not times: a checkout or a copy sets times as it likes. */
function installed() {
  const wanted = packagesOf("package-lock.json");
  const present = packagesOf("node_modules/.package-lock.json");
  if (wanted === null) fail("package-lock.json is missing. Take it from the repository again: git checkout package-lock.json");
  if (present === null) return false;
  const asWanted = Object.entries(wanted).every(([path, one]) => {
    const other = present[path];
    if (path === "" || (other && other.version === one.version && other.integrity === one.integrity)) return true;
    // An optional package is absent where it is for another platform.
    return !other && one.optional === true && !isForHere(one);
  });
  return asWanted && Object.keys(present).every((path) => path in wanted);
}

/** Whether a package is made for just this platform, as the packaged Node.js is. */
const isForHere = ({ os, cpu, libc }) =>
  os !== undefined && cpu !== undefined && libc === undefined && os.includes(process.platform) && cpu.includes(process.arch);

function packagesOf(file) {
  try {
    return JSON.parse(readFileSync(join(home, file), "utf8")).packages;
  } catch {
    return null;
  }
}

if (isMain(import.meta.url)) {
  install();
  modernNode();
}
