import {
  closeSync,
  fdatasync,
  fdatasyncSync,
  fstatSync,
  fsyncSync,
  openSync,
  statfsSync,
  statSync,
} from "node:fs";
import { dirname } from "node:path";
import { promisify } from "node:util";
import type { Millis } from "../../core/values/basics.ts";

/** The free bytes of a disk, and all its bytes. */
export type DiskSpace = { free: number; size: number };

/** The disk of a database. */
export type Disk = {
  /**
   * Resolves when everything written before is on the disk. Rejects if this is unknown. It then stays
   * unknown, even if a later sync succeeds.
   */
  sync(): Promise<void>;
  /** Returns how many bytes can be written before the disk is full. */
  readFreeBytes(): number;
  readSpace(): DiskSpace;
  close(): void;
};

const dataSync = promisify(fdatasync);

/**
 * Opens the disk of an SQLite database in WAL mode at this path. A sync writes the write-ahead log to the
 * disk. It fails if the log or the database file was removed, renamed or replaced, because the next start
 * would not find the data. `elapsed` is a monotonic clock.
 */
export function openDisk(path: string, elapsed: () => Millis): Disk {
  syncFolder(dirname(path));
  const file = openSync(`${path}-wal`, "r+");
  const names = [
    { name: `${path}-wal`, file: fstatSync(file).ino },
    { name: path, file: statSync(path).ino },
  ];
  const waitForSync = createAdaptiveSync({
    here: () => fdatasyncSync(file),
    elsewhere: () => dataSync(file),
    elapsed,
  });
  const sync = async (): Promise<void> => {
    await waitForSync();
    for (const one of names)
      if (statSync(one.name, { throwIfNoEntry: false })?.ino !== one.file)
        throw new Error(`${one.name} was removed, renamed or replaced while the server used it`);
  };
  const readSpace = (): DiskSpace => {
    const { bavail, blocks, bsize } = statfsSync(dirname(path));
    return { free: bavail * bsize, size: blocks * bsize };
  };
  return { sync, readFreeBytes: () => readSpace().free, readSpace, close: () => closeSync(file) };
}

type SyncWays = { here(): void; elsewhere(): Promise<void>; elapsed(): Millis };

/**
 * Returns a sync that waits for a quick disk on this thread, because another thread would take longer. After
 * a slow sync, the next 64 syncs wait on another thread. Each further slow sync doubles that number, up to
 * 4,096; each quick sync on this thread halves it, down to 64 (docs/decisions/0036).
 */
export function createAdaptiveSync({ here, elsewhere, elapsed }: SyncWays): () => Promise<void> {
  let syncsElsewhere = 0;
  let nextElsewhere = minElsewhere;
  return async () => {
    if (syncsElsewhere > 0) {
      syncsElsewhere--;
      return elsewhere();
    }
    const since = elapsed();
    here();
    if (elapsed() - since <= quickSync) {
      nextElsewhere = Math.max(minElsewhere, nextElsewhere / 2);
      return;
    }
    syncsElsewhere = nextElsewhere;
    nextElsewhere = Math.min(maxElsewhere, nextElsewhere * 2);
  };
}

/** A sync that takes at most this long is quick. Under load, a batch takes several times as long. */
const quickSync: Millis = 0.5;
const minElsewhere = 64;
const maxElsewhere = 4096;

/** Syncs a folder. Windows cannot sync folders and need not. */
function syncFolder(path: string): void {
  if (process.platform === "win32") return;
  const folder = openSync(path, "r");
  try {
    fsyncSync(folder);
  } finally {
    closeSync(folder);
  }
}
