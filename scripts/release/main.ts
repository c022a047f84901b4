/**
 * Makes a release: its files in `build/release-<version>`, a commit and a tag. Pushes and publishes nothing.
 *
 *   npm run release -- 1.2.3
 *   npm run release -- 1.2.3 --dry-run          makes the files, and leaves the checkout as it was
 *   npm run release -- 1.2.3 --out <folder>
 */
import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { fail, home } from "../../launch/modernNode.js";
import { makeRelease } from "./makeRelease.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { "dry-run": { type: "boolean", default: false }, out: { type: "string" } },
});
const [version] = positionals;
if (version === undefined) fail("name the version: npm run release -- 1.2.3 --dry-run");
const out = resolve(values.out ?? `build/release-${version}`);
const isRehearsal = values["dry-run"];
const date = new Date().toISOString().slice(0, 10);
try {
  const files = makeRelease({ root: home, version, out, date, isRehearsal });
  console.log([`${out}:`, ...files.map((name) => `  ${name}`)].join("\n"));
  console.log(
    isRehearsal
      ? "this was a rehearsal: nothing is committed or tagged"
      : `committed and tagged v${version}; check the files, then push: git push origin main v${version}`,
  );
} catch (error) {
  fail(error instanceof Error ? error.message : String(error));
}
