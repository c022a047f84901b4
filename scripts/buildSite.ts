/**
 * Builds the documentation into `site/dist`, as one file that a server reads pages from. It does nothing if
 * the built one has the present sources.
 *
 *   npm run build:site
 */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { globSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { extname, join, relative, sep } from "node:path";
import { brotliCompressSync, constants } from "node:zlib";
import { fail, home } from "../launch/modernNode.js";
import type { UnpackedFile } from "../src/server/site/sitePack.ts";
import { packSite } from "../src/server/site/sitePack.ts";
import { buildOnce, listFiles } from "./buildOnce.js";

const output = join(home, "site/dist");
/** The file with the whole site. */
export const sitePackFile = join(output, "site.pack");

/** Builds the documentation unless the built one has the present sources. Ends the process if that fails. */
export function buildSite(): void {
  const texts = ["*.md", "bench/*.md", "docs/**/*.{json,md,png,svg}", "site/*.ts", "site/.vitepress/**/*.ts"];
  const sources = [
    import.meta.filename,
    join(home, "src/server/site/sitePack.ts"),
    ...globSync(texts, { cwd: home }).map((file) => join(home, file)),
  ];
  buildOnce({ output, product: sitePackFile, sources, build });
}

function build(): void {
  process.stderr.write("waypost: building the documentation\n");
  const vitepress = join(home, "node_modules/vitepress/bin/vitepress.js");
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    ["--disable-warning=ExperimentalWarning", vitepress, "build", join(home, "site")],
    { cwd: home, encoding: "utf8", env: { ...process.env, NODE_ENV: "production" } },
  );
  if (status !== 0) fail(`the documentation could not be built:\n${stdout}${stderr}`);
  checkAnchors(join(output, "site"));
  // A server that runs keeps the file that it has open.
  writeFileSync(`${sitePackFile}.new`, pack(join(output, "site")));
  renameSync(`${sitePackFile}.new`, sitePackFile);
}

/** Ends the process if a link names an anchor that its page does not have. */
function checkAnchors(folder: string): void {
  const toPath = (file: string): string => relative(folder, file).split(sep).join("/");
  const pages = new Map(
    listFiles(folder)
      .filter((file) => file.endsWith(".html"))
      .map((file) => [toPath(file).replace(/\.html$/, ""), readFileSync(file, "utf8")] as const),
  );
  const dead = [...pages].flatMap(([page, html]) =>
    Array.from(html.matchAll(/ href="(\/docs\/[^"#]*|)#([^"]+)"/g), ([, path = "", anchor = ""]) => {
      const name = path === "" ? page : path.slice("/docs/".length).replace(/(^|\/)$/, "$1index");
      return pages.get(name)?.includes(` id="${decodeURI(anchor)}"`) ? [] : [`${page}: ${name}#${anchor}`];
    }).flat(),
  );
  if (dead.length > 0) fail(`these links name no heading:\n${dead.join("\n")}`);
}

const types: Readonly<Record<string, string>> = {
  ".css": "text/css; charset=utf-8",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".json": "application/json",
  ".png": "image/png",
  ".svg": "image/svg+xml",
  ".txt": "text/plain; charset=utf-8",
};

function pack(folder: string): Buffer {
  const files = listFiles(folder).filter((file) => !file.endsWith("hashmap.json"));
  const unknown = files.find((file) => !(extname(file) in types));
  if (unknown !== undefined) fail(`${unknown}: add its type to scripts/buildSite.ts`);
  const pages = files.filter((file) => file.endsWith(".html")).map((file) => readFileSync(file, "utf8"));
  const inlineScripts = pages.join("").matchAll(/<script(?: id="[^"]*")?>([^]*?)<\/script>/g);
  const hashes = Array.from(inlineScripts, ([, code = ""]) =>
    createHash("sha256").update(code).digest("base64"),
  );
  return packSite(
    [...new Set(hashes)].map((hash) => `'sha256-${hash}'`),
    files.map((file) => compress(folder, file)),
  );
}

function compress(folder: string, file: string): UnpackedFile {
  const bytes = readFileSync(file);
  const isPacked = extname(file) !== ".png";
  const params = { [constants.BROTLI_PARAM_QUALITY]: 9, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length };
  return {
    path: relative(folder, file).split(sep).join("/"),
    type: types[extname(file)] ?? "",
    size: bytes.length,
    body: isPacked ? brotliCompressSync(bytes, { params }) : bytes,
    isPacked,
  };
}

if (import.meta.main) buildSite();
