// node scripts/run.js <file.ts> [arguments]: installs what is missing, then runs a source file on Node 24.
import { join } from "node:path";
import { fail, home, modernNode } from "../launch/modernNode.js";
import { runFile } from "../launch/runFile.js";
import { install } from "./install.js";

const [file, ...args] = process.argv.slice(2);
if (!file) fail("node scripts/run.js <file.ts> [arguments]");
install();
runFile(modernNode(), join(home, file), args);
