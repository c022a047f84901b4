import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Place } from "./onCall.ts";

/** Mounts a small disk in memory, and returns a data folder on it. Null: only root can do that. */
export function openSmallDisk(): Place {
  const disk = mkdtempSync(join(tmpdir(), "waypost-disk-"));
  if (spawnSync("mount", ["-t", "tmpfs", "-o", "size=96m", "tmpfs", disk]).status !== 0) {
    rmSync(disk, { recursive: true });
    return null;
  }
  return {
    data: join(disk, "data"),
    close: () => {
      spawnSync("umount", ["--lazy", disk]);
      rmSync(disk, { recursive: true, force: true });
    },
  };
}
