import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";

/** Longer than git ever takes for it. */
const longestSearch = 5_000;

/** The commit of sources that do not tell it. Their version must not look like that of the release. */
const unknown = "unknown";

/**
 * Returns the commit of a checkout as eight digits. Returns null for the commit of the release, which the tag
 * of the version marks. Returns `unknown` if the folder is not a checkout or git is not installed.
 */
export function findCommit(home: string, version: string): string | null {
  // Without its own .git, an installation inside another repository would get the commit of that one.
  const folder = join(home, ".git");
  if (!existsSync(folder)) return unknown;
  const tag = `refs/tags/v${version}`;
  const format = ["--abbrev=8", "--format=%h %D", "--decorate=full", `--decorate-refs=${tag}`];
  try {
    const line = execFileSync("git", [`--git-dir=${folder}`, "log", "-1", "--no-show-signature", ...format], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
      timeout: longestSearch,
    });
    const [commit = ""] = line.split(" ");
    return line.includes(tag) ? null : commit.trim() || unknown;
  } catch {
    return unknown;
  }
}

/** Returns the version of a build: `0.1.0` for the release, or `0.1.0+46bd8069` for the build of a commit. */
export const formatVersion = (version: string, commit: string | null): string =>
  commit === null ? version : `${version}+${commit}`;
