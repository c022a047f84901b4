import { closeSync, fdatasync, fdatasyncSync, fstatSync, fsyncSync, openSync, statfsSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { promisify } from "node:util";
import type { Millis } from "../../core/model/message.ts";

/** Brings to the disk what was written to a file. */
export type Disk = {
  /** Resolves when all that was written before is on the disk. Rejects when it is not known whether it is, and then never is again. */
  sync(): Promise<void>;
  /** How many bytes it takes before it is full. */
  room(): number;
  close(): void;
};

const dataSync = promisify(fdatasync);

/**
 * That of an SQLite database in WAL mode, at this path. What is synced is its write-ahead log. A sync fails if the log or the database no
 * longer has its name: however well both are on the disk, the next start would not find them. `elapsed`: a stopwatch that nobody sets.
 */
export function diskOf(path: string, elapsed: () => Millis): Disk {
  syncFolder(dirname(path));
  const file = openSync(`${path}-wal`, "r+");
  const names = [
    { name: `${path}-wal`, file: fstatSync(file).ino },
    { name: path, file: statSync(path).ino },
  ];
  const waits = patient({ here: () => fdatasyncSync(file), elsewhere: () => dataSync(file), elapsed });
  const sync = async (): Promise<void> => {
    await waits();
    for (const one of names)
      if (statSync(one.name, { throwIfNoEntry: false })?.ino !== one.file)
        throw new Error(`${one.name} was removed, renamed or replaced while the server used it`);
  };
  const room = (): number => {
    const { bavail, bsize } = statfsSync(dirname(path));
    return bavail * bsize;
  };
  return { sync, room, close: () => closeSync(file) };
}

type Ways = { here(): void; elsewhere(): Promise<void>; elapsed(): Millis };

/**
 * Waits here for a disk that is quick, as handing the wait to another thread and hearing of its end takes longer than that. After a
 * wait that was long, others are waited for elsewhere: the more of them, the more often it happens (docs/decisions/0036).
 */
export function patient({ here, elsewhere, elapsed }: Ways): () => Promise<void> {
  let left = 0;
  let most = fewestElsewhere;
  return async () => {
    if (left > 0) {
      left--;
      return elsewhere();
    }
    const since = elapsed();
    here();
    if (elapsed() - since <= quick) {
      most = Math.max(fewestElsewhere, most / 2);
      return;
    }
    left = most;
    most = Math.min(mostElsewhere, most * 2);
  };
}

/** Under load a batch takes several times as long. */
const quick: Millis = 0.5;
const [fewestElsewhere, mostElsewhere] = [64, 4096];

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
