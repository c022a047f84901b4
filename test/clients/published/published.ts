import { execFile } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { homedir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/** The packages of clients of which several versions are tested. */
export type PublishedName = "@upstash/qstash" | "@upstash/workflow";

/** Loads a module of a package, such as `@upstash/workflow/cloudflare`, in one version. */
export type Published = { version: string; load<T>(module: string): T };

/** Where packages are kept between runs: outside of the repository, one folder for each version. */
const cache = join(process.env["XDG_CACHE_HOME"] || join(homedir(), ".cache"), "waypost-test-clients");

/** How long an installation may take, in milliseconds. */
const timeout = 180_000;

/**
 * Returns one version of a published package. It is installed from the npm registry at its first use, and
 * kept. Returns the reason as a string if it cannot be installed, for example because there is no network.
 */
export async function findPublished(name: PublishedName, version: string): Promise<Published | string> {
  const found = await findPackages(`${name.replace("/", "+")}@${version}`, [`${name}@${version}`]);
  if ("problem" in found) return found.problem;
  const { folder } = found;
  const require = createRequire(join(folder, "index.js"));
  const readVersion = (one: PublishedName): string =>
    (
      JSON.parse(readFileSync(join(folder, "node_modules", one, "package.json"), "utf8")) as {
        version: string;
      }
    ).version.replace(/^v/, "");
  if (readVersion(name) !== version) throw new Error(`${folder}: is not version ${version}; remove it`);
  return { version, load: <T>(module: string): T => require(module) as T };
}

/**
 * Returns the folder with these packages, such as `hono@4.13.19`. They are installed from the npm registry at
 * their first use, and kept under the name. Returns the problem if they cannot be installed.
 */
export async function findPackages(
  name: string,
  packages: readonly string[],
): Promise<{ folder: string } | { problem: string }> {
  const folder = join(cache, name);
  const problem = existsSync(folder) ? null : await install(packages, folder);
  return problem === null ? { folder } : { problem };
}

async function install(packages: readonly string[], folder: string): Promise<string | null> {
  mkdirSync(cache, { recursive: true });
  const unfinished = mkdtempSync(join(cache, "unfinished-"));
  const flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--omit=peer"];
  try {
    await run("npm", ["install", ...flags, "--prefix", unfinished, ...packages], {
      timeout,
      cwd: unfinished,
    });
    // Another worker may have been faster.
    if (!existsSync(folder)) renameSync(unfinished, folder);
    return null;
  } catch (error) {
    if (existsSync(folder)) return null;
    const reason = error instanceof Error ? (error.message.split("\n")[1] ?? error.message) : String(error);
    return `${packages.join(", ")} cannot be installed: ${reason}`;
  } finally {
    rmSync(unfinished, { recursive: true, force: true });
  }
}
