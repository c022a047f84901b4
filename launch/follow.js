// Ends a process in order when the process that started it has gone, even if that was killed.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { isMainThread } from "node:worker_threads";

const ourPackage = join(fileURLToPath(new URL("..", import.meta.url)), "package.json");

/** How often the parent is checked, in milliseconds. */
const interval = 500;

/** Does what SIGTERM would do, on every platform. */
function end() {
  if (!process.emit("SIGTERM", "SIGTERM")) process.exit(143);
}

/**
 * Ends this process when the npm or npx that started it has ended. npm starts scripts in a shell, and a
 * signal may end only one of the two. A server that a shell or a supervisor started is not ended, because it
 * may have to outlive its parent.
 */
export function followNpm() {
  const { npm_lifecycle_event: event, npm_package_json: started } = process.env;
  if (event !== "npx" && !(started === ourPackage && (event === "start" || event === "dev"))) return;
  const parent = process.ppid;
  const npm = isShell(parent) ? parentOf(parent) : null;
  setInterval(
    () => (process.ppid !== parent || (npm !== null && parentOf(parent) !== npm)) && end(),
    interval,
  ).unref();
}

/**
 * Reports whether a process is a shell that waits for a command, according to Linux. On other systems the
 * shell of npm becomes that command.
 */
const isShell = (pid) => readProcFile(pid, "cmdline").split("\0")[1] === "-c";

/**
 * Returns the parent of a process. The second field of `stat` is a name in parentheses, which may contain
 * anything.
 */
const parentOf = (pid) => Number(readProcFile(pid, "stat").replace(/^.*\)/s, "").split(" ")[2]);

function readProcFile(pid, name) {
  try {
    return readFileSync(`/proc/${pid}/${name}`, "utf8");
  } catch {
    return "";
  }
}

// Preloaded before a file that `launch/runFile.js` starts: the channel to the launcher closes when the
// launcher ends.
if (isMainThread && process.channel) {
  process.once("disconnect", end);
  process.channel.unref();
}
