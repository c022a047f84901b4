import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/**
 * Returns the path of promtool: from the PATH, or from Debian's package of Prometheus, which is downloaded
 * once and not installed. Returns null if there is neither.
 */
export function findPromtool(): string | null {
  if (spawnSync("promtool", ["--version"]).status === 0) return "promtool";
  const folder = join(tmpdir(), "waypost-prometheus");
  const program = join(folder, "usr/bin/promtool");
  if (!existsSync(program)) unpackPackage(folder);
  return spawnSync(program, ["--version"]).status === 0 ? program : null;
}

function unpackPackage(folder: string): void {
  mkdirSync(folder, { recursive: true });
  spawnSync("apt-get", ["download", "prometheus"], { cwd: folder, timeout: 120_000 });
  const file = readdirSync(folder).find((name) => name.startsWith("prometheus_"));
  if (file !== undefined) spawnSync("dpkg-deb", ["-x", file, "."], { cwd: folder });
}
