#!/usr/bin/env node
// The `waypost` command of the package. Plain JavaScript, because the Node.js that starts it may be older
// than the one that runs the server. The command of a checkout is bin/waypost.js.
const args = process.argv.slice(2);

// A probe runs often and has little memory, so it is answered before anything else is loaded.
if (args[0] === "health")
  await import("./health.cjs").then(({ answerProbe }) => answerProbe(args, process.env));
if (process.exitCode === undefined) await import("./start.js").then(({ start }) => start(args));
