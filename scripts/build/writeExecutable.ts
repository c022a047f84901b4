import { spawnSync } from "node:child_process";
import { chmodSync, copyFileSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { home } from "../../launch/modernNode.js";
import { buildConsole } from "../buildConsole.js";
import { buildSite, sitePackFile } from "../buildSite.ts";
import type { Bundle } from "./bundle.ts";
import { bundle, sitePackName } from "./bundle.ts";

/** The mark in the binary of Node.js that says whether it contains a program. */
const fuse = "NODE_SEA_FUSE_fce680ab2cc467b6e072b8b5df1996b2";

/**
 * Writes the server and Node.js as one executable file for this platform, as a single executable application
 * of Node.js. Returns its size in bytes.
 */
export async function writeExecutable(target: string): Promise<number> {
  buildConsole();
  buildSite();
  const { server, client, replica } = await bundle(home);
  const health = readFileSync(join(home, "launch/health.cjs"), "utf8");
  const folder = mkdtempSync(join(tmpdir(), "waypost-executable-"));
  try {
    const main = join(folder, "main.cjs");
    writeFileSync(main, makeMain({ server, client, health, replica }));
    const blob = join(folder, "program.blob");
    const settings = {
      main,
      output: blob,
      disableExperimentalSEAWarning: true,
      useCodeCache: true,
      assets: { [sitePackName]: sitePackFile },
      execArgv: ["--disable-warning=ExperimentalWarning"],
    };
    writeFileSync(join(folder, "settings.json"), JSON.stringify(settings));
    run("--experimental-sea-config", join(folder, "settings.json"));
    const file = join(folder, "waypost");
    copyFileSync(process.execPath, file);
    chmodSync(file, 0o755);
    run(
      join(home, "node_modules/postject/dist/cli.js"),
      file,
      "NODE_SEA_BLOB",
      blob,
      "--sentinel-fuse",
      fuse,
    );
    // A running program cannot be written to, but it can be removed.
    rmSync(target, { force: true });
    copyFileSync(file, target);
    chmodSync(target, 0o755);
    return statSync(target).size;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function run(...args: readonly string[]): void {
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
  if (status !== 0) throw new Error(`the executable could not be made: ${stdout}${stderr}`);
}

type Programs = Omit<Bundle, "packages"> & { health: string };

/**
 * Returns a program that runs the server only for commands that need it. The parentheses around `startServer`
 * make Node.js compile it into the code cache of the executable. Without them, each start compiles the whole
 * server, which takes 0.2 s and 46 MB.
 */
const makeMain = ({ server, client, health, replica }: Programs): string => `
const args = process.argv.slice(2);
const isServer = args[0] === "start" || args[0] === "dev";
// See launch/start.js.
if (isServer && !/semi[-_]space[-_]growth[-_]factor/.test(process.env.NODE_OPTIONS ?? ""))
  require("node:v8").setFlagsFromString("--semi-space-growth-factor=1");
const startServer = (function () { ${server} });
if (args[0] === "health") {
  const module = { exports: {} };
  (function (module) { ${health} })(module);
  module.exports.answerProbe(args, process.env).then(() => process.exitCode === undefined && startServer());
} else if (args[0] === "write-replica") {
  (function () { ${replica} })();
} else if (isServer) startServer();
else {
  const exports = {};
  (function (exports) { ${client} })(exports);
  exports.runClientCommand(args, process.env).then((isDone) => isDone || startServer());
}
`;
