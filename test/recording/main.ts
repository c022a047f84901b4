import { readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { differences } from "./compare.ts";
import { record } from "./record.ts";

const usage = `Records what a server answers and delivers to a fixed script of requests,
to show that a change of the code does not change it.

npm run record -- --out <file>             records this checkout
                  [--source <folder>]      records another checkout instead, with the script of this one
npm run record -- --compare <file> <file>  prints what differs besides texts of errors;
                                           exits with 1 if anything does, and with 2 for an error`;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    out: { type: "string" },
    source: { type: "string" },
    compare: { type: "boolean" },
    help: { type: "boolean" },
  },
});

async function main(): Promise<number> {
  const [before, after] = positionals;
  if (values.compare && before !== undefined && after !== undefined) {
    const found = differences(readFileSync(before, "utf8"), readFileSync(after, "utf8"));
    for (const difference of found) console.log(difference);
    console.log(`${found.length} differences`);
    return found.length > 0 ? 1 : 0;
  }
  if (values.out !== undefined && !values.compare) {
    const source = values.source ?? join(import.meta.dirname, "../..");
    const { lines, requestCount } = await record(resolve(source));
    writeFileSync(values.out, `${lines.join("\n")}\n`);
    console.log(`${requestCount} requests and ${lines.length - requestCount} deliveries in ${values.out}`);
    return 0;
  }
  console.log(usage);
  return values.help ? 0 : 2;
}

process.exitCode = await main().catch((error: unknown) => {
  console.error(`record: ${error instanceof Error ? error.message : String(error)}`);
  return 2;
});
