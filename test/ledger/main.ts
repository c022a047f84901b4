/** Compares what messages and steps cost with the ledger, and records it there. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { startPostgres } from "../postgres.ts";
import { compareCosts, type Ledger, ledgerPath, readLedger, toLedgerCosts } from "./ledger.ts";
import { measureLoads } from "./measure.ts";
import { createStillDatabase } from "./stillDatabase.ts";

const usage = `Counts what a message and a workflow step cost.
Prints the differences from bench/ledger.json.

npm run ledger -- [--why "reason"]  record the differences, with their reason
`;

async function main(): Promise<void> {
  const { why, help } = parseArgs({ options: { why: { type: "string" }, help: { type: "boolean" } } }).values;
  if (help) {
    console.log(usage);
    return;
  }
  const ledger = readLedger();
  const changed = (await measureStores()).flatMap(([store, load, costs]) => {
    const row = ledger[store][load];
    const differences = compareCosts(row?.costs, costs, { comparesBytes: ledger.node === process.version });
    if (differences.length === 0) return [];
    console.log(`${store}, ${load}\n  ${differences.join("\n  ")}`);
    return [[store, load, costs] as const];
  });
  if (changed.length === 0) {
    console.log("nothing differs from the ledger");
    return;
  }
  if (why === undefined) {
    console.error('\nnot recorded; run the command again with --why "reason"');
    process.exitCode = 1;
    return;
  }
  for (const [store, load, costs] of changed) ledger[store][load] = { why, costs };
  write({ ...ledger, node: process.version });
}

const write = (ledger: Ledger): void => writeFileSync(ledgerPath, `${JSON.stringify(ledger, null, 2)}\n`);

async function measureStores() {
  const data = mkdtempSync(join(tmpdir(), "waypost-ledger-"));
  const postgres = await startPostgres();
  try {
    const stores = [
      ["sqlite", await measureLoads({ data, databaseUrl: "" })],
      ["postgres", await measureLoads({ data, databaseUrl: await createStillDatabase(postgres.url) })],
    ] as const;
    return stores.flatMap(([store, loads]) =>
      [...loads].map(([load, costs]) => [store, load, toLedgerCosts(costs)] as const),
    );
  } finally {
    await postgres.stop();
    rmSync(data, { recursive: true, force: true });
  }
}

await main();
