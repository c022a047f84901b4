import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { keepPublished } from "./sbom.ts";
import { cutChangelog, requireNextVersion, setVersion } from "./changelog.ts";

/** The options of a release. `root`: the checkout. `isRehearsal`: nothing is committed or tagged. */
export type ReleaseOptions = {
  root: string;
  version: string;
  /** A new folder for the files of the release. */
  out: string;
  date: string;
  isRehearsal: boolean;
};

type SbomInput = Parameters<typeof keepPublished>[0];
type LockInput = Parameters<typeof keepPublished>[1];

const versionFiles = ["package.json", "package-lock.json"];

/**
 * Makes the files of a release: the package, the executable, a list of what they contain, and checksums.
 * Then commits the version and the changelog, and tags the commit. Returns the names of the files. If a step
 * fails, or in a rehearsal, the checkout is as before.
 */
export function makeRelease({ root, version, out, date, isRehearsal }: ReleaseOptions): string[] {
  const git = (...args: string[]): string =>
    execFileSync("git", args, { cwd: root, encoding: "utf8" }).trim();
  requireClean(git("status", "--porcelain"));
  requireNextVersion(version, readVersion(root));
  const tag = `v${version}`;
  if (git("tag", "--list", tag) !== "") throw new Error(`the tag ${tag} exists already`);
  if (existsSync(out)) throw new Error(`${out}: already exists; choose another folder`);
  const changed = ["CHANGELOG.md", ...versionFiles];
  const before = new Map(changed.map((name) => [name, readFileSync(join(root, name), "utf8")]));
  let isDone = false;
  try {
    for (const [name, text] of before)
      writeFileSync(
        join(root, name),
        name === "CHANGELOG.md" ? cutChangelog(text, { version, date }) : setVersion(text, version),
      );
    const files = makeFiles(root, { version, out });
    if (isRehearsal) return files;
    git("commit", "--quiet", "--message", `Release ${version}`, "--", ...changed);
    git("tag", "--annotate", tag, "--message", `Waypost ${version}`);
    isDone = true;
    return files;
  } finally {
    if (!isDone) for (const [name, text] of before) writeFileSync(join(root, name), text);
  }
}

function requireClean(status: string): void {
  if (status !== "")
    throw new Error(`there are uncommitted changes; commit or remove them first:\n${status}`);
}

const readVersion = (root: string): string =>
  (JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { version: string }).version;

function makeFiles(root: string, { version, out }: { version: string; out: string }): string[] {
  mkdirSync(out, { recursive: true });
  const run = (command: string, ...args: string[]): string =>
    execFileSync(command, args, {
      cwd: root,
      encoding: "utf8",
      maxBuffer: 64 * 1024 * 1024,
      env: { ...process.env, SOURCE_COMMIT: "" },
    });
  const content = join(out, "content");
  // Not through scripts/run.js, which would install again because the lock file has another version.
  const build = (script: string, target: string): string =>
    run(process.execPath, "--disable-warning=ExperimentalWarning", join("scripts/build", script), target);
  build("main.ts", content);
  run("npm", "pack", "--silent", content, "--pack-destination", out);
  rmSync(content, { recursive: true });
  const executable = `waypost-${version}-${process.platform}-${process.arch}`;
  build("executable.ts", join(out, executable));
  // From the lock file, so that it works offline and lists exactly what was installed. It must not matter
  // that a package of the documentation wishes for an older React.
  const all = JSON.parse(
    run("npm", "sbom", "--package-lock-only", "--legacy-peer-deps", "--sbom-format", "cyclonedx"),
  ) as SbomInput;
  const lock = JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8")) as LockInput;
  writeFileSync(
    join(out, `waypost-${version}.cdx.json`),
    `${JSON.stringify(keepPublished(all, lock), null, 2)}\n`,
  );
  const files = readdirSync(out).toSorted();
  const sums = files.map((name) => `${hashFile(join(out, name))}  ${name}\n`);
  writeFileSync(join(out, "SHA256SUMS"), sums.join(""));
  return [...files, "SHA256SUMS"];
}

const hashFile = (path: string): string => createHash("sha256").update(readFileSync(path)).digest("hex");
