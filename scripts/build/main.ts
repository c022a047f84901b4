/**
 * Writes the npm package to `dist`, or to another folder that does not exist yet.
 *
 *   npm run build
 *   npm run build -- <folder>
 */
import { resolve } from "node:path";
import { fail, home } from "../../launch/modernNode.js";
import { buildConsole } from "../buildConsole.js";
import { writePackage } from "./writePackage.ts";

const [folder] = process.argv.slice(2);
buildConsole();
try {
  const { bytes, packages } = await writePackage(
    folder === undefined ? resolve(home, "dist") : resolve(folder),
  );
  console.log(`${folder ?? "dist"}: the server and ${packages} packages in one file of ${bytes} bytes`);
} catch (error) {
  fail(error instanceof Error ? error.message : String(error));
}
