import { readFileSync } from "node:fs";
import { join, relative, sep } from "node:path";
import type { OutputOptions, Plugin } from "rolldown";
import { rolldown } from "rolldown";
import { readBuiltConsole } from "../../src/operations/console/builtFiles.ts";
import type { BuiltConsole, ConsoleFile } from "../../src/operations/console/files.ts";
import { findCommit, formatVersion } from "../../src/settings/commit.ts";

/** The files of a build. `packages` lists the folders of the packages that they contain. */
export type Bundle = {
  server: string;
  client: string;
  replica: string;
  packages: readonly string[];
};

/**
 * Source files that a bundle replaces, because in a checkout they read other files, and the code that
 * replaces each.
 */
type Replacements = Readonly<Record<string, () => string>>;

/** Bundles the server, and the commands that run without the server. */
export async function bundle(home: string): Promise<Bundle> {
  const schema = (): string => {
    const text = readFileSync(join(home, "src/engine/store/catalog/schema.sql"), "utf8");
    return `export const engineSchema = ${toLiteral(text)};`;
  };
  const worker = await bundleFile(home, {
    input: "src/engine/store/sqlite/workerMain.ts",
    replacements: { "src/engine/store/catalog/engineSchema.ts": schema },
  });
  const replica = await bundleFile(home, {
    input: "src/operations/backup/replica/writerMain.ts",
    replacements: {},
  });
  const server = await bundleFile(home, {
    input: "src/server/cli/main.ts",
    replacements: {
      "src/engine/store/catalog/engineSchema.ts": schema,
      "src/engine/store/sqlite/workerCode.ts": () => `export const workerCode = ${toLiteral(worker.code)};`,
      "src/operations/backup/replica/writerCode.ts": () =>
        `export const writerCode = ${toLiteral(replica.code)};`,
      "src/operations/console/builtFiles.ts": () => toConsoleModule(readBuiltConsole()),
      "src/server/site/builtSite.ts": () => siteModule,
      "src/settings/version.ts": () => `export const version = ${toLiteral(readVersion(home))};`,
    },
  });
  const client = await bundleFile(home, { input: "src/client/main.ts", replacements: {} });
  return {
    server: server.code,
    client: client.code,
    replica: replica.code,
    packages: [...new Set([server, worker, client, replica].flatMap(({ packages }) => packages))].toSorted(),
  };
}

/**
 * Returns the version of the build. `SOURCE_COMMIT` names its commit where git cannot, as in an image. It is
 * empty for a release, which is built before its commit is made.
 */
function readVersion(home: string): string {
  const { version } = JSON.parse(readFileSync(join(home, "package.json"), "utf8")) as { version: string };
  const given = process.env["SOURCE_COMMIT"];
  return formatVersion(version, given === undefined ? findCommit(home, version) : given.slice(0, 8) || null);
}

/**
 * Returns the code of a module that has the files of the console in it, or none if it has not been built. A
 * file is in the code once, in its smallest form. The other forms are made at the first request for them,
 * which takes some milliseconds once, and kept.
 */
function toConsoleModule(built: BuiltConsole): string {
  const toCode = ({ type, body, br }: ConsoleFile): string =>
    br === undefined
      ? `keep({ type: ${toLiteral(type)}, body: () => ${toBuffer(body)} })`
      : `packed(${toLiteral(type)}, () => ${toBuffer(br)})`;
  const files = [...(built ?? [])].map(([path, file]) => `[${toLiteral(path)}, ${toCode(file)}]`);
  const map = built === null ? "null" : `new Map([${files.join(", ")}])`;
  return `
    import { brotliDecompressSync, gzipSync } from "node:zlib";
    const keep = ({ type, ...forms }) => {
      const file = { type };
      for (const [name, make] of Object.entries(forms)) {
        let kept;
        Object.defineProperty(file, name, { get: () => (kept ??= make()) });
      }
      return file;
    };
    const packed = (type, br) => {
      const file = keep({
        type,
        br,
        body: () => brotliDecompressSync(file.br),
        gzip: () => gzipSync(file.body, { level: 9 }),
      });
      return file;
    };
    const built = ${map};
    export const readBuiltConsole = () => built;
  `;
}

/** The name of the file with the documentation, beside the server or as an asset of the executable. */
export const sitePackName = "site.pack";

/** The code of a module that opens the documentation of an executable or of a package. */
const siteModule = `
  import { join } from "node:path";
  import { getRawAsset, isSea } from "node:sea";
  import { openPack, openPackFile } from "./sitePack.ts";
  const openAsset = (bytes) => openPack((start, length) => bytes.subarray(start, start + length));
  export const openBuiltSite = () =>
    isSea()
      ? openAsset(Buffer.from(getRawAsset("${sitePackName}")))
      : openPackFile(join(import.meta.dirname, "${sitePackName}"));
`;

const toBuffer = (bytes: Buffer): string => `Buffer.from("${bytes.toString("base64")}", "base64")`;

const toLiteral = (text: string): string => JSON.stringify(text);

type BundleOptions = { input: string; replacements: Replacements };

async function bundleFile(home: string, { input, replacements }: BundleOptions) {
  const unused = new Set(Object.keys(replacements));
  const replacing: Plugin = {
    name: "replace files that read other files",
    load(id) {
      const file = toProjectPath(home, id);
      unused.delete(file);
      return replacements[file]?.() ?? null;
    },
  };
  const build = await rolldown({
    input: join(home, input),
    platform: "node",
    // An optional addon of pg, which is not installed.
    external: [/^node:/, "pg-native"],
    plugins: [replacing],
    onLog(level, log) {
      if (level === "warn") throw new Error(`${input}: ${log.message}`);
    },
  });
  const { output } = await build.generate(outputOptions);
  await build.close();
  const [chunk] = output;
  if (output.length !== 1) throw new Error(`${input}: became ${output.length} files instead of one`);
  if (unused.size > 0) throw new Error(`${input}: never loads ${[...unused].join(", ")}`);
  requireOneFile(input, chunk.code);
  return { code: toAscii(chunk.code), packages: chunk.moduleIds.flatMap((id) => toPackage(home, id)) };
}

const outputOptions: OutputOptions = {
  // A single executable runs nothing else. Also, an import of node:http would load all of it.
  format: "cjs",
  codeSplitting: false,
  // Names are kept, so that stack traces can be read.
  minify: { compress: false, mangle: false, codegen: { removeWhitespace: true } },
};

/**
 * Returns the same code in ASCII. V8 keeps the text of a program as long as it runs, with two bytes for each
 * character if one of them is not in Latin-1. That was another 5 MB. Throws if an escape would mean something
 * else.
 */
export function toAscii(code: string): string {
  const [raw] = /String\.raw`[^`]*[\u0080-\uffff].{0,40}/.exec(code) ?? [];
  if (raw !== undefined) throw new Error(`String.raw has a character that is not in ASCII: ${raw}`);
  return code.replaceAll(
    /[\u0080-\uffff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** Throws if the bundle would read another file, which the package does not have. */
function requireOneFile(input: string, code: string): void {
  const [found] = /.{0,80}(?:import\.meta\.url|pathToFileURL\(__filename\)).{0,80}/.exec(code) ?? [];
  if (found !== undefined)
    throw new Error(`${input}: reads another file; add it to the replacements: ${found}`);
}

const toProjectPath = (home: string, id: string): string => relative(home, id).split(sep).join("/");

/** Returns the folder of the package that a module belongs to, or nothing for sources. */
function toPackage(home: string, id: string): string[] {
  const [, folder] = /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(toProjectPath(home, id)) ?? [];
  return folder === undefined ? [] : [folder];
}
