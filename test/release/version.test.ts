import { execFileSync, spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import packageFile from "../../package.json" with { type: "json" };
import { findCommit, formatVersion } from "../../src/settings/commit.ts";
import { runWaypost, temporaryFolder } from "../server/waypost.ts";

const home = join(import.meta.dirname, "../..");
const isCheckout = spawnSync("git", ["rev-parse"], { cwd: home }).status === 0;

/** Makes a repository with one commit. Returns its folder, and functions that run git in it. */
function makeRepository() {
  const root = temporaryFolder();
  const git = (...args: string[]): string =>
    execFileSync("git", ["-c", "user.name=test", "-c", "user.email=test@placeholder.invalid", ...args], {
      cwd: root,
      encoding: "utf8",
    }).trim();
  const commit = (text: string): string => {
    writeFileSync(join(root, "file"), text);
    git("add", "file");
    git("commit", "--quiet", "--message", text);
    return git("rev-parse", "HEAD").slice(0, 8);
  };
  git("init", "--quiet");
  return { root, git, first: commit("one"), commit };
}

test("a commit is part of the version, unless the tag of the version marks it", () => {
  const { root, git, first, commit } = makeRepository();
  expect(findCommit(root, "1.2.3")).toBe(first);
  git("tag", "v1.2.30");
  git("tag", "not-v1.2.3");
  expect(findCommit(root, "1.2.3")).toBe(first);
  git("tag", "--annotate", "v1.2.3", "--message", "Waypost 1.2.3");
  expect(findCommit(root, "1.2.3")).toBe(null);
  expect(findCommit(root, "1.2.4")).toBe(first);
  git("pack-refs", "--all");
  expect(findCommit(root, "1.2.3")).toBe(null);
  const second = commit("two");
  expect(findCommit(root, "1.2.3")).toBe(second);

  const worktree = join(temporaryFolder(), "tree");
  git("worktree", "add", "--quiet", "--detach", worktree, "v1.2.3");
  expect([findCommit(worktree, "1.2.3"), findCommit(worktree, "1.2.4")]).toEqual([null, first]);
});

test("the commit is unknown without its own repository, without commits, and without git", () => {
  const { root } = makeRepository();
  expect(findCommit(join(root, "node_modules/waypost"), "1.2.3")).toBe("unknown");
  const empty = temporaryFolder();
  execFileSync("git", ["init", "--quiet"], { cwd: empty });
  expect(findCommit(empty, "1.2.3")).toBe("unknown");
  const code =
    `const { findCommit } = await import(${JSON.stringify(join(home, "src/settings/commit.ts"))});` +
    `console.log(findCommit(${JSON.stringify(root)}, "1.2.3"));`;
  const { stdout, stderr } = spawnSync(process.execPath, ["--input-type=module", "--eval", code], {
    encoding: "utf8",
    env: { PATH: "/nowhere" },
  });
  expect({ stdout, stderr }).toEqual({ stdout: "unknown\n", stderr: "" });
});

test("the version of a build has the form of a semantic version with build metadata", () => {
  expect(formatVersion("0.1.0", null)).toBe("0.1.0");
  expect(formatVersion("0.1.0", "46bd8069")).toBe("0.1.0+46bd8069");
});

test.skipIf(!isCheckout)("--version of a checkout names its commit", async () => {
  const { version } = packageFile;
  const { code, out } = await runWaypost(["--version"], { TEST_SOURCES: home }).ended;
  expect({ code, out }).toEqual({ code: 0, out: `${formatVersion(version, findCommit(home, version))}\n` });
});

test.skipIf(!isCheckout)("--version of an archive of the sources does not look like a release", () => {
  const folder = temporaryFolder();
  const archive = execFileSync("git", ["archive", "HEAD", "src", "package.json"], {
    cwd: home,
    maxBuffer: 1e9,
  });
  execFileSync("tar", ["x"], { cwd: folder, input: archive });
  const file = JSON.stringify(join(folder, "src/settings/version.ts"));
  const code = `console.log((await import(${file})).version)`;
  const { stdout } = spawnSync(process.execPath, ["--input-type=module", "--eval", code], {
    encoding: "utf8",
  });
  expect(stdout).toBe(`${packageFile.version}+unknown\n`);
});
