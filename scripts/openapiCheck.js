// Fails if docs/openapi.json does not match the routes. Leaves the file unchanged.
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fail, home } from "../launch/modernNode.js";
import { install } from "./install.js";

const path = join(home, "docs/openapi.json");
const advice = "Run npm run openapi, check the diff, and commit it.";

install();
const committed = read();
if (committed === null) fail(`docs/openapi.json is missing. ${advice}`);
const { status } = spawnSync(process.execPath, [join(home, "scripts/run.js"), "scripts/openapi.ts"], {
  stdio: "inherit",
  cwd: home,
});
const generated = read();
writeFileSync(path, committed);
if (status !== 0) fail("scripts/openapi.ts failed, see above.");
if (generated !== committed) fail(`docs/openapi.json is out of date. ${advice}`);

function read() {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return null;
  }
}
