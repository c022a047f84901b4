// node scripts/buildConsole.js: builds the web console into console/dist, if its sources have changed. Plain
// JavaScript, because `waypost dev` calls it with the Node.js that started it.
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { fail, home, modernNode } from "../launch/modernNode.js";
import { buildOnce, listFiles } from "./buildOnce.js";
import { install, isMain } from "./install.js";

const folder = join(home, "console");
const output = join(folder, "dist");

/** Builds the console unless the built one has the present sources. Ends the process if that fails. */
export function buildConsole() {
  const sources = listFiles(folder).filter((path) => !path.startsWith(output));
  buildOnce({ output, product: join(output, "index.html"), sources, build });
}

function build() {
  process.stderr.write("waypost: building the web console\n");
  const vite = join(home, "node_modules", "vite", "bin", "vite.js");
  const { status, error } = spawnSync(
    modernNode(),
    ["--disable-warning=ExperimentalWarning", vite, "build", "--config", join(folder, "vite.config.ts")],
    // Another value, such as that of a test, would build the development version of React.
    { cwd: home, stdio: ["ignore", "ignore", "inherit"], env: { ...process.env, NODE_ENV: "production" } },
  );
  if (error || status !== 0) fail("the web console could not be built, see above");
  compress();
}

/** Writes a compressed form next to each text file, so that no request waits for it. */
function compress() {
  for (const file of listFiles(output).filter((path) => /\.(js|css|svg)$/.test(path))) {
    const bytes = readFileSync(file);
    writeFileSync(
      `${file}.br`,
      brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }),
    );
    writeFileSync(`${file}.gz`, gzipSync(bytes, { level: 9 }));
  }
}

if (isMain(import.meta.url)) {
  install();
  buildConsole();
}
