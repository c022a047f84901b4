// Plain JavaScript for Node 20 without dependencies, so that a new machine needs only Node and npm.
import { spawn, spawnSync } from "node:child_process";
import { existsSync, linkSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { fail, folderOf, home, modernNode } from "../launch/modernNode.js";

/** Whether this is a clone of the repository, and not an installation. */
export const isCheckout = existsSync(join(home, ".git"));

/** Ends the process with advice if a package that the server needs is missing. Changes nothing. */
export function mustBeInstalled() {
  const { dependencies } = JSON.parse(readFileSync(join(home, "package.json"), "utf8"));
  const missing = Object.keys(dependencies).filter((name) => folderOf(name) === null);
  if (missing.length === 0) return;
  fail(
    `packages are missing (${missing.join(", ")}). ` +
      `Run "npm ci --omit=dev" in ${home}, and run the command again.`,
  );
}

/**
 * Runs `npm ci` if node_modules is missing or differs from package-lock.json, and prints one line. If several
 * processes start at once, one installs and the others wait. Ends the process if the installation fails.
 */
export function install() {
  if (installed()) return;
  if (!takeLock()) waitForOther();
  process.once("exit", releaseLock);
  if (!installed()) runNpm();
  releaseLock();
}

/** The lock file. It contains the id of the process that installs. */
const lock = join(home, ".installing");

/**
 * Takes the lock by linking a complete file, so that the lock exists either with its content or not at all.
 */
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
  const reason = missing ? "first run" : "they differ from package-lock.json";
  process.stderr.write(
    `waypost: installing the dependencies into node_modules with "npm ci" (${reason}; ` +
      "about 700 MB on disk, half a minute or several minutes on a slow network)\n",
  );
  const progress = reportProgress();
  const { error, status } = spawnSync(
    "npm",
    ["ci", "--include=dev", "--include=optional", "--no-audit", "--no-fund", "--loglevel=error"],
    {
      cwd: home,
      stdio: ["ignore", "ignore", "inherit"],
      shell: process.platform === "win32",
    },
  );
  progress.kill();
  if (error)
    fail(
      `npm could not be started (${error.message}). ` +
        "Install npm, which comes with Node.js, and run the command again.",
    );
  if (status !== 0)
    fail(
      "npm ci failed, see above. " +
        "Check the network and the npm registry settings, then run the command again.",
    );
}

/** Starts a process that prints the progress of npm, because this one waits for npm. */
const reportProgress = () =>
  spawn(process.execPath, [join(home, "scripts", "installProgress.js")], {
    cwd: home,
    stdio: ["ignore", "ignore", "inherit"],
  }).on("error", () => {});

/** Reports whether a module is the one that Node.js was started with. */
export const isMain = (url) =>
  process.argv[1] !== undefined && realpathSync(process.argv[1]) === fileURLToPath(url);

/**
 * Reports whether the installed packages match package-lock.json. It compares contents, because a checkout or
 * a copy may set any times.
 */
function installed() {
  const wanted = packagesOf("package-lock.json");
  const present = packagesOf("node_modules/.package-lock.json");
  if (wanted === null)
    fail("package-lock.json is missing. Take it from the repository again: git checkout package-lock.json");
  if (present === null) return false;
  const asWanted = Object.entries(wanted).every(([path, one]) => {
    const other = present[path];
    if (path === "" || (other && other.version === one.version && other.integrity === one.integrity))
      return true;
    // An optional package for another platform is not installed.
    return !other && one.optional === true && !isForHere(one);
  });
  return asWanted && Object.keys(present).every((path) => path in wanted);
}

/** Reports whether a package is made only for this platform, as the packaged Node.js is. */
const isForHere = ({ os, cpu, libc }) =>
  os !== undefined &&
  cpu !== undefined &&
  libc === undefined &&
  os.includes(process.platform) &&
  cpu.includes(process.arch);

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
