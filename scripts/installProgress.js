// node scripts/installProgress.js: prints how many packages "npm ci" has written, until its parent ends it.
// Plain JavaScript for Node 20 without dependencies, as scripts/install.js.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { home } from "../launch/modernNode.js";

const interval = 5_000;
const parent = process.ppid;
const { packages } = JSON.parse(readFileSync(join(home, "package-lock.json"), "utf8"));
// Optional packages are those of other platforms, too.
const wanted = Object.keys(packages).filter((path) => path !== "" && packages[path].optional !== true);
let last = -1;

setInterval(() => {
  // A parent that was killed does not end this process.
  if (process.ppid !== parent) process.exit();
  const count = wanted.filter((path) => existsSync(join(home, path, "package.json"))).length;
  const news = count === last ? "npm is still at work" : `${count} of ${wanted.length} packages`;
  last = count;
  process.stderr.write(`waypost: ${news}\n`);
}, interval);
