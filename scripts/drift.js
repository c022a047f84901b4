// Tells what messages and steps cost now, compared with an earlier version: the last release, or the start
// of the comparison if there is none. Plain JavaScript for Node 20. It never fails: a ratio depends on the
// machine.
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { home } from "../launch/modernNode.js";

/** The version with which the comparison started. It counts until a release tag exists. */
const start = "cf16940e74e093d29d1dd64f0c0752099aa84e20";
/** A turn is short: the ratio of a few turns shows a drift of a tenth. */
const turns = ["--rounds", "4", "--warm-up", "1", "--messages", "10000", "--runs", "500"];
const loads = ["--loads", "messages,workflows"];

/** The longest time of one command, in milliseconds. */
const longest = 10 * 60_000;

function run(command, args, { cwd = home, stdio = "pipe" } = {}) {
  const options = { cwd, encoding: "utf8", stdio: ["ignore", stdio, stdio], timeout: longest };
  const result = spawnSync(command, args, options);
  const why = result.error?.message ?? (result.stderr || `exit code ${result.status}`);
  if (result.status !== 0) throw new Error(`${command} ${args[0]} failed: ${why}`);
  return result.stdout ?? "";
}

/** Returns the commit of the last release before this version, or the start. */
function findBase() {
  const described = spawnSync("git", ["describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^"], {
    cwd: home,
    encoding: "utf8",
  });
  const base = described.status === 0 ? described.stdout.trim() : start;
  run("git", ["cat-file", "-e", `${base}^{commit}`]);
  return base;
}

const folder = mkdtempSync(join(tmpdir(), "waypost-drift-"));
const before = join(folder, "before");
try {
  const base = findBase();
  console.log(`compared with ${base.slice(0, 12)}:`);
  run("git", ["worktree", "add", "--detach", before, base]);
  run("npm", ["ci", "--no-audit", "--no-fund"], { cwd: before });
  const bench = ["scripts/run.js", "bench/main.ts", "versions", "--before", before, ...turns, ...loads];
  run("node", bench, { stdio: "inherit" });
} catch (error) {
  console.log(`the costs were not compared: ${error.message.trim().split("\n")[0]}`);
} finally {
  spawnSync("git", ["worktree", "remove", "--force", before], { cwd: home });
  rmSync(folder, { recursive: true, force: true });
}
