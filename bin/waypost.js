#!/usr/bin/env node
// The `waypost` command of a checkout, which runs the sources. Plain JavaScript, because the Node.js that starts
// it may be older than the one that runs the sources. The command of the package is launch/waypost.js.
const args = process.argv.slice(2);

// As in the package, a probe is answered before anything else is loaded.
if (args[0] === "health")
  await import("../launch/health.cjs").then(({ answerProbe }) => answerProbe(args, process.env));
if (process.exitCode === undefined)
  await import("./runSources.js").then(({ runSources }) => runSources(args));
