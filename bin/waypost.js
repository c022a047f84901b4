#!/usr/bin/env node
// The `waypost` command. Plain JavaScript, because the Node.js that starts it may be older than the one that runs the sources.
import { install, isModern } from "../scripts/install.js";
import { run } from "../scripts/run.js";

install();
if (isModern) await import("../src/main.ts");
else run("src/main.ts", process.argv.slice(2));
