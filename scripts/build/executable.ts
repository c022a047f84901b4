/**
 * Writes the server and Node.js as one executable file: `build/waypost`, or another file.
 *
 *   npm run build:executable
 *   npm run build:executable -- <file>
 */
import { mkdirSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { fail, home } from "../../launch/modernNode.js";
import { writeExecutable } from "./writeExecutable.ts";

const [given] = process.argv.slice(2);
const target = given === undefined ? resolve(home, "build/waypost") : resolve(given);
try {
  mkdirSync(dirname(target), { recursive: true });
  console.log(`${target}: ${await writeExecutable(target)} bytes`);
} catch (error) {
  fail(error instanceof Error ? error.message : String(error));
}
