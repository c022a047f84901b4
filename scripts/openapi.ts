// Writes docs/openapi.json from the table of routes. With --check it writes nothing and fails if the file
// differs.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { openApi } from "../src/api/server/openapi.ts";
import { routes } from "../src/operations/routes.ts";

const path = join(import.meta.dirname, "../docs/openapi.json");
const text = `${JSON.stringify(openApi(routes), null, 2)}\n`;

if (!process.argv.includes("--check")) writeFileSync(path, text);
else if (!existsSync(path) || readFileSync(path, "utf8") !== text) {
  console.error(
    "docs/openapi.json does not match the routes. Run npm run openapi, check the diff, and commit it.",
  );
  process.exitCode = 1;
}
