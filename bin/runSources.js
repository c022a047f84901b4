import { join } from "node:path";
import { followNpm } from "../launch/follow.js";
import { home, isModern, modernNode } from "../launch/modernNode.js";
import { runFile } from "../launch/runFile.js";
import { buildConsole } from "../scripts/buildConsole.js";
import { install, isCheckout, mustBeInstalled } from "../scripts/install.js";

/** Runs the command line from the sources. If this Node.js is too old, the one that npm installed runs it. */
export async function runSources(args) {
  // Only the development server of a checkout installs packages and builds the console. Every other command
  // uses what is there, so it works offline and on a read-only disk.
  if (args[0] === "dev" && isCheckout) {
    install();
    buildConsole();
  } else mustBeInstalled();
  followNpm();
  const startsServer = args[0] === "start" || args[0] === "dev";
  const main = startsServer ? "src/server/cli/main.ts" : "bin/waypost.js";
  if (!isModern) runFile(modernNode(), join(home, main), args);
  else if (startsServer || !(await runsOnServer(args))) await import("../src/server/cli/main.ts");
}

/** Runs a command for a running server without loading the server. Returns false for any other command. */
async function runsOnServer(args) {
  const { runClientCommand } = await import("../src/client/main.ts");
  return runClientCommand(args, process.env);
}
