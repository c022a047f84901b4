import { spawn } from "node:child_process";
import { availableParallelism, constants } from "node:os";
import { fail } from "./modernNode.js";

/**
 * With two cores or fewer, the threads of the garbage collector slow down the server. Without these threads,
 * a message takes a tenth less CPU time, and the slowest hundredth of publishes at 1,000/s takes half as
 * long.
 */
const flags = availableParallelism() <= 2 ? ["--single-threaded-gc"] : [];

/**
 * Makes the child end in order when this process has ended, even after `kill -9`, because the channel between
 * them closes.
 */
const follow = ["--import", new URL("follow.js", import.meta.url).href];

/** The options of a Node.js that runs Waypost as a child of this process, through an `ipc` channel. */
export const childOptions = ["--disable-warning=ExperimentalWarning", ...flags, ...follow];

/**
 * Runs a file with this Node.js in its own process. Signals are passed on to it, and its exit code becomes
 * that of this process.
 */
export function runFile(node, file, args) {
  const child = spawn(node, [...childOptions, file, ...args], {
    stdio: ["inherit", "inherit", "inherit", "ipc"],
  });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
  child.on("error", (error) =>
    fail(
      `${child.spawnfile} could not be started (${error.message}). ` +
        "Install Node.js 24 or later and run the command again.",
    ),
  );
  child.on("exit", (code, signal) => process.exit(code ?? 128 + (constants.signals[signal] ?? 0)));
}
