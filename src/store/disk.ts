import { closeSync, fdatasync, fsyncSync, openSync } from "node:fs";
import { dirname } from "node:path";
import { promisify } from "node:util";

/** Brings to the disk what was written to a file, while its thread goes on. */
export type Disk = {
  /** Resolves when all that was written before is on the disk. Rejects when it is not known whether it is, and then never is again. */
  sync(): Promise<void>;
  close(): void;
};

const dataSync = promisify(fdatasync);

/** That of a file which is there: also its name in the folder is on the disk afterwards. */
export function diskOf(path: string): Disk {
  syncFolder(dirname(path));
  const file = openSync(path, "r+");
  return { sync: () => dataSync(file), close: () => closeSync(file) };
}

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
