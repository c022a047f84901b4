import { closeSync, fdatasync, fdatasyncSync, fstatSync, fsyncSync, openSync, statfsSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { promisify } from "node:util";
import type { Millis } from "../../core/model/message.ts";

/** Brings to the disk what was written to a file. */
export type Disk = {
  /** Resolves when all that was written before is on the disk. Rejects when it is not known whether it is, and then never is again. */
  sync(): Promise<void>;
  /** How many bytes it takes before it is full. */
  readFreeBytes(): number;
  close(): void;
};

const dataSync = promisify(fdatasync);

/**
 * That of an SQLite database in WAL mode, at this path. What is synced is its write-ahead log. A sync fails if the log or the database no
 * longer has its name: however well both are on the disk, the next start would not find them. `elapsed`: a stopwatch that nobody sets.
 */
export function openDisk(path: string, elapsed: () => Millis): Disk {
  syncFolder(dirname(path));
  const file = openSync(`${path}-wal`, "r+");
  const names = [
    { name: `${path}-wal`, file: fstatSync(file).ino },
    { name: path, file: statSync(path).ino },
  ];
  const waitForSync = createAdaptiveSync({ here: () => fdatasyncSync(file), elsewhere: () => dataSync(file), elapsed });
  const sync = async (): Promise<void> => {
    await waitForSync();
    for (const one of names)
      if (statSync(one.name, { throwIfNoEntry: false })?.ino !== one.file)
        throw new Error(`${one.name} was removed, renamed or replaced while the server used it`);
  };
  const readFreeBytes = (): number => {
    const { bavail, bsize } = statfsSync(dirname(path));
    return bavail * bsize;
  };
  return { sync, readFreeBytes, close: () => closeSync(file) };
}

type SyncWays = { here(): void; elsewhere(): Promise<void>; elapsed(): Millis };

/**
 * Waits here for a disk that is quick, as handing the wait to another thread and hearing of its end takes longer than that. After a
 * wait that was long, others are waited for elsewhere: the more of them, the more often it happens (docs/decisions/0036).
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

/** Under load a batch takes several times as long. */
const quickSync: Millis = 0.5;
const minElsewhere = 64;
const maxElsewhere = 4096;

/** Windows knows no folder that could be brought to the disk, and needs none. */
function syncFolder(path: string): void {
  if (process.platform === "win32") return;
  const folder = openSync(path, "r");
  try {
    fsyncSync(folder);
  } finally {
    closeSync(folder);
  }
}
