// node scripts/run.js <file.ts | folder/> [arguments]: installs what is missing, then runs a source file on Node 24.
// With a folder, the first argument names the file in it: `run.js bench/ messages` runs bench/messages.ts.
import { spawn } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { constants } from "node:os";
import { join } from "node:path";
import { fail, home, install, isMain, modernNode } from "./install.js";

/** Runs a source file in a process of its own. Signals reach it, and its exit code becomes ours. */
export function run(file, args) {
  const child = spawn(modernNode(), ["--disable-warning=ExperimentalWarning", join(home, file), ...args], { stdio: "inherit" });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
  child.on("error", (error) => fail(`${child.spawnfile} could not be started (${error.message}). Install Node.js 24 or later and run the command again.`));
  child.on("exit", (code, signal) => process.exit(code ?? 128 + (constants.signals[signal] ?? 0)));
}

function fileFor(place, args) {
  if (!place) fail("node scripts/run.js <file.ts | folder/> [arguments]");
  if (!place.endsWith("/")) return [place, args];
  const [name, ...rest] = args;
  if (name && /^[\w-]+$/.test(name) && existsSync(join(home, place, `${name}.ts`))) return [`${place}${name}.ts`, rest];
  const names = readdirSync(join(home, place)).filter((entry) => entry.endsWith(".ts"));
  fail(`${name ? `there is no ${place}${name}.ts` : "name one"}. There is: ${names.map((entry) => entry.slice(0, -3)).join(", ") || "nothing yet"}`);
}

if (isMain(import.meta.url)) {
  install();
  run(...fileFor(process.argv[2], process.argv.slice(3)));
}
