/** Drops each operation, or those that are named, one at a time, and type checks what remains of src. */
import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { home } from "../launch/modernNode.js";
import { listFiles, withoutOperation } from "./dropOperation.ts";

/**
 * Operations that the server does not take from a list alone, because there is one of each. They receive or
 * give figures, serve the console and open its sessions, and copy the file of the store. Only the program
 * uses the doctor. Dropping one also needs an edit of these files.
 */
const namedBy: Readonly<Record<string, readonly string[]>> = {
  backup: ["src/server/openStore.ts", "src/server/serve.ts"],
  console: ["src/server/serve.ts", "src/api/auth/consoleSessions.ts"],
  doctor: ["src/server/cli/main.ts"],
  monitoring: ["src/server/listening.ts", "src/server/serve.ts"],
  outbox: ["src/server/serve.ts"],
};

const named = process.argv.slice(2);
const allOperations = readdirSync(join(home, "src/operations"), { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map(({ name }) => name)
  .toSorted();

/** Returns the errors of the types of src without some operations. */
function checkWithout(operations: readonly string[]): string[] {
  const copy = mkdtempSync(join(tmpdir(), "waypost-drops-"));
  try {
    for (const name of ["src", "launch", "package.json"])
      cpSync(join(home, name), join(copy, name), { recursive: true });
    symlinkSync(join(home, "node_modules"), join(copy, "node_modules"));
    const options = JSON.parse(readFileSync(join(home, "tsconfig.json"), "utf8")) as object;
    writeFileSync(join(copy, "tsconfig.json"), JSON.stringify({ ...options, include: ["src"] }));
    for (const operation of operations) {
      rmSync(join(copy, "src/operations", operation), { recursive: true });
      for (const file of listFiles) {
        const path = join(copy, file);
        writeFileSync(path, withoutOperation(readFileSync(path, "utf8"), operation));
      }
    }
    return listTypeErrors(copy);
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
}

function listTypeErrors(folder: string): string[] {
  try {
    execFileSync(join(home, "node_modules/.bin/tsc"), ["-p", "."], { cwd: folder, encoding: "utf8" });
    return [];
  } catch (error) {
    const { stdout } = error as { stdout: string };
    return stdout.split("\n").filter((line) => line.includes("error TS"));
  }
}

let failed = 0;
for (const operation of named.length > 0 ? named : allOperations) {
  const expected = namedBy[operation] ?? [];
  const errors = checkWithout([operation]);
  const surplus = errors.filter((line) => !expected.some((file) => line.startsWith(`${file}(`)));
  const edits = expected.length > 0 ? `; edit ${expected.join(" and ")} as well` : "";
  console.log(
    surplus.length === 0 ? `${operation}: can be dropped${edits}` : `${operation}: cannot be dropped`,
  );
  for (const line of surplus) console.log(`  ${line}`);
  if (surplus.length > 0) failed++;
}
if (failed > 0) process.exitCode = 1;
