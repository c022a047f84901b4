import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Where a program is in a package of Debian. `versionFlag` makes it print its version. */
type Packaged = { inPackage: string; at: string; versionFlag: string };

/**
 * Returns the path of a program: from the PATH, or from a package of Debian, which is downloaded once and not
 * installed. Returns null if there is neither.
 */
export function findProgram(name: string, { inPackage, at, versionFlag }: Packaged): string | null {
  const runs = (program: string): boolean => spawnSync(program, [versionFlag]).status === 0;
  if (runs(name)) return name;
  const folder = join(tmpdir(), `waypost-${inPackage}`);
  const program = join(folder, at);
  if (!existsSync(program)) unpackPackage(inPackage, folder);
  return runs(program) ? program : null;
}

function unpackPackage(name: string, folder: string): void {
  mkdirSync(folder, { recursive: true });
  spawnSync("apt-get", ["download", name], { cwd: folder, timeout: 120_000 });
  const file = readdirSync(folder).find((one) => one.startsWith(`${name}_`));
  if (file !== undefined) spawnSync("dpkg-deb", ["-x", file, "."], { cwd: folder });
}
