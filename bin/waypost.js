#!/usr/bin/env node
// The `waypost` command. Plain JavaScript, because the Node.js that starts it may be older than the one that
// runs the sources.
import { followNpm } from "../scripts/follow.js";
import { install, isCheckout, isModern, mustBeInstalled } from "../scripts/install.js";
import { run } from "../scripts/run.js";

// Only the development server of a checkout installs packages. Every other command uses what is installed, so
// it works offline and on a read-only disk.
if (process.argv[2] === "dev" && isCheckout) install();
else mustBeInstalled();
followNpm();
if (isModern) await import("../src/cli/main.ts");
else run("src/cli/main.ts", process.argv.slice(2));
