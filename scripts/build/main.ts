/**
 * Writes the npm package to `dist`, or to another folder that does not exist yet.
 *
 *   npm run build
 *   npm run build -- <folder>
 *   npm run build -- <folder> --without-site     without the documentation, for tests
 */
import { resolve } from "node:path";
import { fail, home } from "../../launch/modernNode.js";
import { writePackage } from "./writePackage.ts";

const withSite = !process.argv.includes("--without-site");
const folder = process.argv.slice(2).find((arg) => arg !== "--without-site");
try {
  const { bytes, packages } = await writePackage(
    folder === undefined ? resolve(home, "dist") : resolve(folder),
    { withSite },
  );
  console.log(`${folder ?? "dist"}: the server and ${packages} packages in one file of ${bytes} bytes`);
} catch (error) {
  fail(error instanceof Error ? error.message : String(error));
}
