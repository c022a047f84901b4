/** The machine of a measurement. Absolute figures mean nothing without it. */
import { execFileSync } from "node:child_process";
import { closeSync, fsyncSync, openSync, rmSync, statfsSync, writeSync } from "node:fs";
import { availableParallelism, cpus, release, totalmem } from "node:os";
import { join } from "node:path";
import { microseconds } from "./clock.ts";
import { type Spread, spread } from "./figures.ts";
import { root } from "./benchResources.ts";

/** The machine and the revision of a measurement. */
export type Machine = {
  cpu: string;
  /** The cores that this process may use: `taskset` may leave it fewer than the machine has. */
  cores: number;
  memory: number;
  kernel: string;
  node: string;
  revision: string;
  /** Milliseconds of one write and fsync of 4 KiB in the data folder. */
  diskSync: Spread;
};

/** Describes this machine and the disk of a folder. */
export function describeMachine(folder: string): Machine {
  return {
    cpu: cpus()[0]?.model ?? "unknown",
    cores: availableParallelism(),
    memory: totalmem(),
    kernel: release(),
    node: process.version,
    revision: revision(),
    diskSync: diskSync(folder),
  };
}

const tmpfs = 0x01021994;

/** Throws if the folder is in memory, where a sync costs nothing. */
export function requireDisk(folder: string): void {
  if (statfsSync(folder).type !== tmpfs) return;
  throw new Error(
    "The data folder is on tmpfs, where durability costs nothing. Use a folder on a disk with --data-root.",
  );
}

function diskSync(folder: string): Spread {
  const path = join(folder, "sync-probe");
  const file = openSync(path, "w");
  const block = Buffer.alloc(4096, 1);
  const samples = Float64Array.from({ length: 200 }, () => {
    const startedAt = microseconds();
    writeSync(file, block);
    fsyncSync(file);
    return microseconds() - startedAt;
  });
  closeSync(file);
  rmSync(path);
  return spread(samples, samples.length);
}

function revision(): string {
  try {
    return execFileSync("git", ["describe", "--always", "--dirty"], {
      cwd: root,
      encoding: "utf8",
      stdio: "pipe",
    }).trim();
  } catch {
    return "unknown";
  }
}
