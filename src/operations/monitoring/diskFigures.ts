import { stat, statfs } from "node:fs/promises";
import { dirname } from "node:path";
import type { DiskFigures } from "./storeSampler.ts";

/** Returns the sizes of an SQLite file and its log, and the free space of its disk. */
export async function readDiskFigures(path: string): Promise<DiskFigures> {
  const [store, wal, { bavail, bsize }] = await Promise.all([
    readSize(path),
    readSize(`${path}-wal`),
    statfs(dirname(path)),
  ]);
  return { storeBytes: store, walBytes: wal, freeBytes: bavail * bsize };
}

const readSize = (path: string): Promise<number> =>
  stat(path).then(
    ({ size }) => size,
    () => 0,
  );
