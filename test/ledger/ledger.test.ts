import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { startPostgres } from "../postgres.ts";
import { compareCosts, type Ledger, listRowsWithoutReason, readLedger, toLedgerCosts } from "./ledger.ts";
import { measureLoads } from "./measure.ts";
import { createStillDatabase } from "./stillDatabase.ts";

const ledger = readLedger();

describe.runIf(process.platform === "linux").each(["sqlite", "postgres"] as const)(
  "what messages and steps cost on %s",
  (store) => {
    test("is recorded in the ledger", async () => {
      const data = mkdtempSync(join(tmpdir(), "waypost-ledger-"));
      onTestFinished(() => rmSync(data, { recursive: true, force: true }));
      const databaseUrl = store === "sqlite" ? "" : await createSeparateDatabase();
      const measured = await measureLoads({ data, databaseUrl });
      const comparesBytes = ledger.node === process.version;
      const differences = [...measured].flatMap(([load, costs]) =>
        compareCosts(ledger[store][load]?.costs, toLedgerCosts(costs), { comparesBytes }).map(
          (line) => `${load}: ${line}`,
        ),
      );
      expect(differences, 'record a change with: npm run ledger -- --why "reason"').toEqual([]);
      expect(Object.keys(ledger[store])).toEqual([...measured.keys()]);
    });
  },
);

/** Creates a database on a separate server: the log of a server also has what other tests write. */
async function createSeparateDatabase(): Promise<string> {
  const postgres = await startPostgres();
  onTestFinished(postgres.stop);
  return createStillDatabase(postgres.url);
}

function git(...args: string[]): string {
  return execFileSync("git", args, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
}

/** Returns the ledger before its last change, or null if the history does not reach that far. */
function readEarlierLedger(): Ledger | null {
  const path = "bench/ledger.json";
  try {
    const isCommitted = git("status", "--porcelain", "--", path) === "";
    const revision = isCommitted ? `${git("log", "-1", "--format=%H", "--", path)}^` : "HEAD";
    return JSON.parse(git("show", `${revision}:${path}`)) as Ledger;
  } catch {
    return null;
  }
}

test("a row whose costs have changed has another reason", ({ skip }) => {
  const earlier = readEarlierLedger();
  if (earlier === null) return skip("the history has no earlier ledger");
  expect(listRowsWithoutReason(earlier, ledger)).toEqual([]);
});

describe("compareCosts", () => {
  const costs = toLedgerCosts({
    ...{ statements: { "insert log": 1 }, rows: { "insert log": 1 }, commits: 2, syncs: 2, pages: 20 },
    ...{ json: 9, base64: 2, timers: 1, socketWrites: 2, allocated: 100_000, logBytes: 0 },
  });
  const compare = (changed: Partial<typeof costs>) =>
    compareCosts(costs, { ...costs, ...changed }, { comparesBytes: true });

  test("notices one more statement, row, commit, conversion or timer", () => {
    expect(compare({})).toEqual([]);
    expect(compare({ statements: { "insert log": [2, 1] } })).toEqual([
      'statements "insert log": 1 in the ledger, 2 now',
    ]);
    expect(compare({ statements: { "insert log": [1, 1], "insert tags": [1, 3] } })).toHaveLength(2);
    expect(compare({ statements: {} })).toHaveLength(2);
    for (const name of ["commits", "syncs", "json", "base64"] as const)
      expect(compare({ [name]: costs[name] + 0.001 })).toHaveLength(1);
    expect(compare({ timers: costs.timers + 1 })).toHaveLength(1);
  });

  test("accepts 5 % more or less of what depends on chance", () => {
    expect(compare({ allocated: 105_000, pages: 19 })).toEqual([]);
    expect(compare({ timers: costs.timers + 1 / 64 })).toEqual([]);
    expect(compare({ timers: costs.timers + 2 / 64 })).toHaveLength(1);
    expect(compare({ allocated: 105_001 })).toHaveLength(1);
    expect(compare({ allocated: 94_999 })).toHaveLength(1);
    expect(compareCosts(costs, { ...costs, allocated: 1 }, { comparesBytes: false })).toEqual([]);
  });

  test("a new load differs from nothing", () => {
    expect(compareCosts(undefined, costs, { comparesBytes: true })).toContain(
      "commits: 0 in the ledger, 2 now",
    );
  });
});

test("a row whose costs changed needs another reason", () => {
  const [load, row] = Object.entries(ledger.sqlite)[0] ?? [];
  if (load === undefined || row === undefined) throw new Error("the ledger is empty");
  const changed = { ...row, costs: { ...row.costs, commits: row.costs.commits + 1 } };
  const withRow = (other: typeof row): Ledger => ({ ...ledger, sqlite: { ...ledger.sqlite, [load]: other } });
  expect(listRowsWithoutReason(ledger, withRow(changed))).toEqual([`sqlite, ${load}`]);
  expect(listRowsWithoutReason(ledger, withRow({ ...changed, why: "a new promise" }))).toEqual([]);
});
