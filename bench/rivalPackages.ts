/**
 * The packages of rivals that are not dependencies of Waypost. They are installed on first use, in a folder
 * that git ignores. Their install scripts do not run.
 */
import { execFile } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { promisify } from "node:util";
import { root } from "./benchResources.ts";

/** The versions of all packages of each rival. */
const versions = {
  restate: { "@restatedev/restate-server": "1.7.12", "@restatedev/restate-sdk": "1.17.2" },
  dbos: { "@dbos-inc/dbos-sdk": "5.3.0", pg: "8.23.1" },
  bullmq: { bullmq: "6.7.0", ioredis: "6.0.0" },
} as const satisfies Record<string, Record<string, string>>;

/** A rival whose packages are installed on first use. */
export type PackagedRival = keyof typeof versions;

const installLimit = 180_000;

/**
 * Installs the packages of a rival if they are missing or have another version. Returns their folder. Throws
 * if npm fails.
 */
export async function installRival(rival: PackagedRival): Promise<string> {
  const folder = join(root, "node_modules/.cache/bench-rivals", rival);
  const packages = Object.entries(versions[rival]);
  if (packages.every(([name, version]) => readVersion(folder, name) === version)) return folder;
  const wanted = packages.map(([name, version]) => `${name}@${version}`);
  console.error(`Installing ${wanted.join(" and ")} in ${folder}. Waypost itself does not use them.`);
  mkdirSync(folder, { recursive: true });
  const quiet = ["--no-save", "--ignore-scripts", "--no-audit", "--no-fund"];
  try {
    await promisify(execFile)("npm", ["install", "--prefix", folder, ...quiet, ...wanted], {
      cwd: folder,
      timeout: installLimit,
    });
  } catch (error) {
    const [, reason = "no output"] = String(error).split("\n");
    throw new Error(`npm could not install ${wanted.join(" and ")}: ${reason}`, { cause: error });
  }
  return folder;
}

/** Loads an installed package of a rival. The caller declares the part of its interface that it uses. */
export function loadPackage(folder: string, name: string): unknown {
  return createRequire(join(folder, "package.json"))(name) as unknown;
}

function readVersion(folder: string, name: string): string | null {
  try {
    const text = readFileSync(join(folder, "node_modules", name, "package.json"), "utf8");
    return /"version":\s*"([^"]+)"/.exec(text)?.[1] ?? null;
  } catch {
    return null;
  }
}
