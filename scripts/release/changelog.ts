const unreleased = "## [Unreleased]";

/**
 * Returns the changelog with the unreleased changes under a version, and an empty section for the next ones.
 * Throws an Error if there are no changes, or if the version is there already.
 */
export function cutChangelog(text: string, { version, date }: { version: string; date: string }): string {
  if (text.includes(`\n## [${version}]`)) throw new Error(`CHANGELOG.md: has ${version} already`);
  const start = text.indexOf(`\n${unreleased}\n`);
  if (start < 0) throw new Error(`CHANGELOG.md: has no section ${unreleased}`);
  const contentStart = start + unreleased.length + 2;
  const nextSection = text.indexOf("\n## [", contentStart);
  const changes = text.slice(contentStart, nextSection < 0 ? undefined : nextSection);
  if (!/^- /m.test(changes)) throw new Error("CHANGELOG.md: has no unreleased changes");
  const rest = nextSection < 0 ? "" : text.slice(nextSection);
  return `${text.slice(0, start)}\n${unreleased}\n\n## [${version}] - ${date}\n${changes.trimEnd()}\n${rest}`;
}

/** Returns the text of a package file or a lock file with another version of the package itself. */
export function setVersion(text: string, version: string): string {
  const file = JSON.parse(text) as { version: string; packages?: Record<string, { version?: string }> };
  file.version = version;
  const own = file.packages?.[""];
  if (own) own.version = version;
  return `${JSON.stringify(file, null, 2)}\n`;
}

const pattern = /^(\d+)\.(\d+)\.(\d+)(-[0-9A-Za-z.-]+)?$/;

/** Throws an Error if a version is not one, or is older than the present one. */
export function requireNextVersion(version: string, present: string): void {
  const [next, now] = [version, present].map((text) => pattern.exec(text)?.slice(1, 4).map(Number));
  if (!next || !now) throw new Error(`"${version}" is not a version; use one such as 1.2.3`);
  const at = [0, 1, 2].find((index) => next[index] !== now[index]);
  if (at !== undefined && (next[at] ?? 0) < (now[at] ?? 0))
    throw new Error(`${version} is older than the present version ${present}`);
}
