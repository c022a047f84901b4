#!/usr/bin/env node
// The `waypost` command of a checkout, which runs the sources. Plain JavaScript, because the Node.js that starts
// it may be older than the one that runs the sources. The command of the package is launch/waypost.js.
import { join } from "node:path";
import { followNpm } from "../launch/follow.js";
import { home, isModern, modernNode } from "../launch/modernNode.js";
import { runFile } from "../launch/runFile.js";
import { buildConsole } from "../scripts/buildConsole.js";
import { install, isCheckout, mustBeInstalled } from "../scripts/install.js";

// Only the development server of a checkout installs packages and builds the console. Every other command uses
// what is there, so it works offline and on a read-only disk.
if (process.argv[2] === "dev" && isCheckout) {
  install();
  buildConsole();
} else mustBeInstalled();
followNpm();
if (isModern) await import("../src/cli/main.ts");
else runFile(modernNode(), join(home, "src/cli/main.ts"), process.argv.slice(2));
