// Ends a process in order when the one that started it is gone, however that one ended.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { isMainThread } from "node:worker_threads";

const ourPackage = join(fileURLToPath(new URL("..", import.meta.url)), "package.json");

/** How often the parent is looked at, in milliseconds. */
const interval = 500;

/** Does what SIGTERM would do, on every platform. */
function end() {
  if (!process.emit("SIGTERM", "SIGTERM")) process.exit(143);
}

/**
 * Ends this process when the npm or npx that started it is gone. npm starts a script in a shell, and a signal to either may end only
 * that one. A server that a shell or a supervisor started outlives its parent if that is what people want, so it is not followed.
 */
export function followNpm() {
  const { npm_lifecycle_event: event, npm_package_json: started } = process.env;
  if (event !== "npx" && !(started === ourPackage && (event === "start" || event === "dev"))) return;
  const parent = process.ppid;
  const npm = isShell(parent) ? parentOf(parent) : null;
  setInterval(() => (process.ppid !== parent || (npm !== null && parentOf(parent) !== npm)) && end(), interval).unref();
}

/** Whether a process is a shell that waits for a command, as Linux tells it. Elsewhere the shell of npm becomes that command. */
const isShell = (pid) => told(pid, "cmdline").split("\0")[1] === "-c";

/** The parent of another process. The second field is a name in parentheses, which may hold anything. */
const parentOf = (pid) => Number(told(pid, "stat").replace(/^.*\)/s, "").split(" ")[2]);

function told(pid, what) {
  try {
    return readFileSync(`/proc/${pid}/${what}`, "utf8");
  } catch {
    return "";
  }
}

// Loaded before a source file that `scripts/run.js` starts: the channel to the launcher closes when that ends.
if (isMainThread && process.channel) {
  process.once("disconnect", end);
  process.channel.unref();
}
